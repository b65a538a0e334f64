// holdfast run: one command under a lock.
#include "args.hpp"
#include "exit_codes.hpp"
#include "output.hpp"
#include "supervise.hpp"
#include "text.hpp"
#include "waiting.hpp"

#include <holdfast/counting_semaphore.hpp>
#include <holdfast/mutex.hpp>
#include <holdfast/shared_mutex.hpp>

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>

namespace holdfast::cli {

namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

struct permits {
  std::size_t taken, total;
};

permits parse_permits(const std::string& text) {
  const auto number = [&](std::string_view digits) {
    std::size_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc{} || end != digits.data() + digits.size() || value == 0)
      throw usage_error(fmt::format(
          "--permits takes K/N, such as 1/4 for one of four permits, not \"{}\".", text));
    return value;
  };
  const std::string_view all{text};
  const auto slash = all.find('/');
  if (slash == std::string_view::npos) return {1, number(all)};
  const permits out{number(all.substr(0, slash)), number(all.substr(slash + 1))};
  if (out.taken > out.total)
    throw usage_error(fmt::format("--permits {} asks for more permits than there are.", text));
  return out;
}

// What the flags mean, checked before anything happens.
struct plan {
  std::string name;
  bool shared = false;
  std::optional<permits> share;
  acquire_options options;
  bool end_when_lost = true;
  nanoseconds grace{};
  nanoseconds at_least{};
  bool wait_for_group = false;
  int code_when_not_acquired = exit_code::not_acquired;
};

plan plan_from(const arguments& args) {
  plan out;
  out.name = args.text("NAME");
  out.shared = args.has("--shared");
  if (args.has("--permits")) out.share = parse_permits(args.text("--permits"));
  out.options.wait = args.has("--no-wait") ? 0ns : args.duration("--wait", forever);
  out.options.ttl = args.ttl();
  out.options.max_hold = args.duration("--max-hold", 0ns);
  out.options.priority = static_cast<int>(args.integer("--priority", 0, -1'000'000, 1'000'000));
  out.options.label = args.text("--label");
  out.end_when_lost = args.text("--on-lost") != "warn";
  out.grace = args.duration("--grace", 5s);
  out.at_least = args.duration("--at-least", 0ns);
  if (out.options.max_hold > 0ns && out.at_least > out.options.max_hold)
    throw usage_error("--at-least is longer than --max-hold; make one of them fit the other.");
  out.wait_for_group = args.has("--wait-group");
  out.code_when_not_acquired =
      static_cast<int>(args.integer("--conflict-exit-code", exit_code::not_acquired, 0, 255));
  return out;
}

// A lock named in any of the three ways. Kept alive beside its lease.
struct any_lock {
  any_lock(const client& store, const plan& what) {
    if (what.share) {
      semaphore = std::make_unique<counting_semaphore>(store, what.name, what.share->total);
    } else if (what.shared) {
      readers = std::make_unique<shared_mutex>(store, what.name);
    } else {
      exclusive = std::make_unique<mutex>(store, what.name);
    }
  }
  result<lease> acquire(const plan& what, const acquire_options& options) const {
    if (semaphore) return semaphore->acquire_permits(what.share->taken, options);
    return readers ? readers->acquire_shared(options) : exclusive->acquire(options);
  }
  std::unique_ptr<counting_semaphore> semaphore;
  std::unique_ptr<shared_mutex> readers;
  std::unique_ptr<mutex> exclusive;
};

// Why there is no lease, with the holder that has it instead; and the exit code for that.
int not_acquired(const plan& what, const error& why, const client& store, const wanted& goal) {
  if (why.code() != errc::busy && why.code() != errc::timed_out) {
    complain(why.message());
    return exit_code_for(why.code());
  }
  const auto holders = look_at_holders(store, goal);
  auto sentence = fmt::format("{}.", why.message());
  if (!holders.words.empty())
    sentence = why.code() == errc::busy
                   ? fmt::format("The lock \"{}\" is held by {}.", what.name, holders.words)
                   : fmt::format("The lock \"{}\" did not become free in {}: held by {}.",
                                 what.name, format_duration(what.options.wait), holders.words);
  if (holders.ourselves) sentence += " That is the holdfast around this very command.";
  complain(sentence);
  return what.code_when_not_acquired;
}

// Keeps the lock until then, though the command has ended, unless a signal comes. Whether it is ours still.
bool keep(const lease& held, signal_inbox& signals, steady_clock::time_point until) {
  const auto left = until - steady_clock::now();
  if (left > 1s && stderr_is_terminal())
    complain(fmt::format("The command has ended; \"{}\" is held for another {} (--at-least).",
                         held.name(), brief(left)));
  const auto lost = make_event();
  const std::stop_callback on_loss{held.lost(), [&] { raise_event(lost); }};
  std::array<pollfd, 2> events{pollfd{signals.fd(), POLLIN, 0}, pollfd{lost.get(), POLLIN, 0}};
  for (auto now = steady_clock::now(); now < until; now = steady_clock::now()) {
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(until - now);
    ::poll(events.data(), events.size(), static_cast<int>(std::min(wait, 1'000'000ms).count()));
    if (events[1].revents != 0) return false;
    while (const auto signal = signals.next()) {
      if (*signal == SIGTSTP) stop_like_ctrl_z(false);
      if (means_end(*signal)) return true;
    }
  }
  return true;
}

// The rest of --at-least, and the end.
int finish(const plan& what, lease& held, const outcome& ended, const loss_reason& reason,
           signal_inbox& signals, steady_clock::time_point at_least_until) {
  const bool has_rest = steady_clock::now() < at_least_until && !ended.lost && !ended.asked_to_end;
  // Asked first, so that a loss which is noticed while we wait here came after the command's end.
  const auto proof = has_rest ? held.renew() : result<void>{};
  const bool is_ours = proof || proof.error().code() != errc::lost;
  if (has_rest && is_ours && !keep(held, signals, at_least_until)) {
    warn(
        fmt::format("The lock \"{}\" was lost{} after the command had ended, before --at-least was "
                    "over.",
                    what.name, reason.str()));
    return ended.exit_code;
  }
  const auto released = held.release();
  const bool lost_unseen = !released && released.error().code() == errc::lost && !ended.lost;
  if (lost_unseen)
    complain(fmt::format("The lock \"{}\" was lost{} before the command had ended.", what.name,
                         reason.str()));
  else if (!released && !ended.lost)
    warn(released.error().message());
  return what.end_when_lost && (ended.lost || lost_unseen) ? exit_code::lost : ended.exit_code;
}

}  // namespace

int run(const arguments& args) {
  const auto what = plan_from(args);
  try {
    const auto found = find_program(args.program());
    signal_inbox signals;
    guard_process guard{
        what.end_when_lost ? guard_process::duty::end_the_group : guard_process::duty::warn,
        what.grace,
        fmt::format("holdfast was killed; the command goes on without the lock \"{}\".", what.name),
        {args.store_text(), what.name}};
    const auto reason = std::make_shared<loss_reason>();
    const auto store = args.open_store({.observer = reason});
    warn_if_private(store);
    args.check_ttl(store);
    const any_lock lock{store, what};
    const wanted goal{what.name, what.share ? what.share->taken : 0,
                      token_around_us(args, what.name)};

    cancel_on_signal cancel{signals};
    wait_notice notice{store, goal};
    auto options = what.options;
    options.stop = cancel.token();
    auto held = lock.acquire(what, options);
    const auto at_least_until = in(what.at_least);
    notice.finish();
    cancel.finish();
    if (cancel.signal() != 0)
      return exit_code::by_signal + cancel.signal();  // releases, if it came to that
    if (!held) return not_acquired(what, held.error(), store, goal);
    if (notices_death_late(store.capabilities())) guard.release_if_killed(held->owner());
    const auto ended = supervise({.what = found,
                                  .variables = variables_for(args, *held),
                                  .held = *held,
                                  .signals = signals,
                                  .guard = guard,
                                  .reason = *reason,
                                  .end_when_lost = what.end_when_lost,
                                  .grace = what.grace,
                                  .wait_for_group = what.wait_for_group});
    const int code = finish(what, *held, ended, *reason, signals, at_least_until);
    guard.forget_grant();
    return code;
  } catch (const program_error& e) {
    complain(e.sentence);
    return e.exit_code;
  }
}

}  // namespace holdfast::cli
