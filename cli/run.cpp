// holdfast run: one command under a lock.
#include "args.hpp"
#include "exit_codes.hpp"
#include "output.hpp"
#include "supervise.hpp"

#include <holdfast/counting_semaphore.hpp>
#include <holdfast/mutex.hpp>
#include <holdfast/shared_mutex.hpp>

#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <optional>

namespace holdfast::cli {

namespace {

using namespace std::chrono_literals;

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
};

plan plan_from(const arguments& args) {
  plan out;
  out.name = args.text("NAME");
  out.shared = args.has("--shared");
  if (args.has("--permits")) out.share = parse_permits(args.text("--permits"));
  out.options.wait = args.has("--no-wait") ? 0ns : args.duration("--wait", forever);
  if (args.has("--ttl")) out.options.ttl = args.duration("--ttl", 0ns);
  out.options.max_hold = args.duration("--max-hold", 0ns);
  out.options.priority = static_cast<int>(args.integer("--priority", 0, -1'000'000, 1'000'000));
  out.options.label = args.text("--label");
  out.end_when_lost = args.text("--on-lost") != "warn";
  out.grace = args.duration("--grace", 5s);
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

int finish(const plan& what, lease& held, const outcome& ended, const loss_reason& reason) {
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
    const any_lock lock{store, what};

    cancel_on_signal cancel{signals};
    auto options = what.options;
    options.stop = cancel.token();
    auto held = lock.acquire(what, options);
    cancel.finish();
    if (cancel.signal() != 0)
      return exit_code::by_signal + cancel.signal();  // releases, if it came to that
    if (!held) {
      complain(held.error().message());
      return exit_code_for(held.error().code());
    }
    if (notices_death_late(store.capabilities())) guard.release_if_killed(held->owner());
    const auto ended = supervise({.what = found,
                                  .variables = variables_for(args, *held),
                                  .held = *held,
                                  .signals = signals,
                                  .guard = guard,
                                  .reason = *reason,
                                  .end_when_lost = what.end_when_lost,
                                  .grace = what.grace});
    const int code = finish(what, *held, ended, *reason);
    guard.forget_grant();
    return code;
  } catch (const program_error& e) {
    complain(e.sentence);
    return e.exit_code;
  }
}

}  // namespace holdfast::cli
