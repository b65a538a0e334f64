// holdfast elect: one command runs wherever the leader is.
#include "args.hpp"
#include "exit_codes.hpp"
#include "output.hpp"
#include "supervise.hpp"

#include <holdfast/election.hpp>

#include <fmt/format.h>

#include <memory>

namespace holdfast::cli {

namespace {

using namespace std::chrono_literals;

// Leads until the command ends or the leadership is lost.
outcome lead(const arguments& args, const program& what, lease& term, signal_inbox& signals,
             guard_process& guard, const loss_reason& reason) {
  auto ended = supervise({.what = what,
                          .variables = variables_for(args, term),
                          .held = term,
                          .signals = signals,
                          .guard = guard,
                          .reason = reason,
                          .end_when_lost = true,
                          .grace = args.duration("--grace", 5s)});
  const auto resigned = term.release();
  if (resigned || ended.lost) return ended;
  if (resigned.error().code() != errc::lost) {
    warn(resigned.error().message());
    return ended;
  }
  complain(fmt::format("The leadership of \"{}\" was lost{} before the command had ended.",
                       term.name(), reason.str()));
  ended.exit_code = exit_code::lost;
  return ended;
}

}  // namespace

int elect(const arguments& args) {
  acquire_options options;
  options.ttl = args.ttl();
  try {
    const auto what = find_program(args.program());
    signal_inbox signals;
    guard_process guard{guard_process::duty::end_the_group,
                        args.duration("--grace", 5s),
                        "",
                        {args.store_text(), args.text("NAME")}};
    const auto reason = std::make_shared<loss_reason>();
    const auto store = args.open_store({.observer = reason});
    warn_if_private(store);
    args.check_ttl(store);
    election candidacy{store, args.text("NAME"), args.text("--value")};
    for (;;) {
      cancel_on_signal cancel{signals};
      options.stop = cancel.token();
      auto term = candidacy.campaign(options);
      cancel.finish();
      if (cancel.signal() != 0) return exit_code::by_signal + cancel.signal();
      if (!term) {
        complain(term.error().message());
        return exit_code_for(term.error().code());
      }
      if (notices_death_late(store.capabilities())) guard.release_if_killed(term->owner());
      const auto ended = lead(args, what, *term, signals, guard, *reason);
      guard.forget_grant();
      if (!ended.lost || ended.asked_to_end) return ended.exit_code;
    }
  } catch (const program_error& e) {
    complain(e.sentence);
    return e.exit_code;
  }
}

}  // namespace holdfast::cli
