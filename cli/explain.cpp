// holdfast explain: what the store promises, in words, from its capabilities as data.
#include "args.hpp"
#include "exit_codes.hpp"
#include "json.hpp"
#include "output.hpp"
#include "text.hpp"

#include <holdfast/url.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace holdfast::cli {

namespace {

using namespace std::chrono_literals;

struct promise {
  std::string_view about;
  std::string sentence;
};

std::string joined(std::string first, const std::string& more) {
  return more.empty() ? first : std::move(first) + ' ' + more;
}

std::string fencing(const capabilities& caps) {
  const auto origin = [&]() -> std::string_view {
    switch (caps.token) {
      case token_origin::counter:
        return "They come from a counter of the store.";
      case token_origin::server_time:
        return "They come from the server's clock, never below the last one.";
      case token_origin::store_revision:
        return "They are revisions of the store itself.";
    }
    return "";
  };
  switch (caps.fencing) {
    case fencing_strength::strict:
      return fmt::format(
          "Strict: every grant of a name carries a larger token than all before it. {}", origin());
    case fencing_strength::best_effort:
      return fmt::format("Best effort: tokens rise unless the store loses data. {}", origin());
    case fencing_strength::none:
      return "None: do not rely on tokens here.";
  }
  return "";
}

std::string dead_holder(const capabilities& caps, nanoseconds ttl) {
  if (caps.dead_holder_bound == 0ns)
    return fmt::format("Others have the lock within its ttl plus {}: {} by default.",
                       format_duration(caps.expiry_slack),
                       format_duration(ttl + caps.expiry_slack));
  const bool ttl_may_be_shorter = caps.min_ttl + caps.expiry_slack < caps.dead_holder_bound;
  // A server learns of a death because the connection ends. A machine without power ends none.
  const bool by_connection = caps.clock == expiry_clock::server;
  return fmt::format("Others have the lock within {}{}.{}", format_duration(caps.dead_holder_bound),
                     ttl_may_be_shorter ? ", or within its ttl if that is shorter" : "",
                     by_connection
                         ? " When its whole machine vanishes without a word, it counts as "
                           "cut off instead."
                         : "");
}

std::string paused_holder(const capabilities& caps, nanoseconds ttl) {
  return fmt::format("Others have the lock within its ttl plus {}: {} by default. {}",
                     format_duration(caps.expiry_slack), format_duration(ttl + caps.expiry_slack),
                     caps.clock == expiry_clock::server
                         ? "The server's clock decides."
                         : "The steady clock of this machine decides.");
}

std::string validity(const capabilities& caps) {
  const bool exact = caps.drift_ppm == 0 && caps.margin == 0ns;
  const auto margin = exact ? std::string{}
                            : fmt::format(", less {} ppm for clocks of different speed and {}",
                                          caps.drift_ppm, format_duration(caps.margin));
  const auto longest =
      caps.longest_validity == 0ns
          ? std::string{}
          : fmt::format(
                " A lease is believed for at most {} after the last answer of the store, "
                "however long its ttl{}, and is renewed that much more often.",
                format_duration(caps.longest_validity),
                caps.validity_setting.empty() ? "" : " (" + caps.validity_setting + ")");
  return fmt::format(
      "A lease calls itself valid for its ttl from before the request was sent{}.{} It needs no "
      "network for that, and a process that wakes from a pause sees the truth at once.",
      margin, longest);
}

std::string restart(const capabilities& caps) {
  if (caps.survives_restart) return "Grants outlive it.";
  return caps.clock == expiry_clock::server
             ? "Grants outlive it only as far as the server has saved them: see holdfast doctor."
             : "All grants end with it.";
}

std::string order(const capabilities& caps) {
  return fmt::format("{} {} {}",
                     caps.fifo ? "First come, first served; dead waiters are skipped."
                               : "No order: a waiter that asks at the right moment gets it.",
                     caps.priorities ? "Priorities are kept." : "There are no priorities.",
                     caps.wakeup == wakeup_kind::push ? "The store wakes the next one."
                                                      : "Waiters ask again and again.");
}

std::string kinds(const capabilities& caps) {
  std::vector<std::string_view> can{"mutex", "recursive mutex", "election"};
  std::vector<std::string_view> cannot;
  const auto sort_in = [&](bool has, std::string_view what) {
    (has ? can : cannot).push_back(what);
  };
  sort_in(caps.shared, "shared mutex");
  sort_in(caps.upgrade, "upgradeable reads");
  sort_in(caps.permits, "counting semaphore");
  sort_in(caps.counters, "latch and barrier");
  sort_in(caps.atomic_multi, "several names in one step");
  sort_in(caps.listing, "listing");
  return fmt::format("{}.{}", fmt::join(can, ", "),
                     cannot.empty() ? "" : fmt::format(" Not here: {}.", fmt::join(cannot, ", ")));
}

std::vector<promise> promises(const capabilities& caps) {
  const auto ttl = client_options{}.ttl;
  return {
      {"One at a time", caps.exclusion},
      {"Fencing tokens", joined(fencing(caps), caps.token_scope)},
      {"When a holder dies", dead_holder(caps, ttl)},
      {"When it is paused or cut off", paused_holder(caps, ttl)},
      {"What valid means", validity(caps)},
      {"Order of service", order(caps)},
      {"Shared by", caps.cross_process ? "All processes that open this store."
                                       : "Only the threads of one process."},
      {"When the store restarts", restart(caps)},
      {"Possible ttl",
       fmt::format("From {} to {}.", format_duration(caps.min_ttl), format_duration(caps.max_ttl))},
      {"Kinds of lock", kinds(caps)},
      {"Limits", caps.limits},
      {"Nowhere guaranteed",
       "That a paused holder does not believe it still has the lock, between its last check and "
       "its act. No "
       "lock with a ttl can. Pass the token to what you protect, and let that refuse older ones."},
  };
}

}  // namespace

int explain(const arguments& args) {
  const auto store = args.open_store();
  const auto& caps = store.capabilities();
  if (args.has("--json")) {
    print(capabilities_json(store.url(), caps));
    return exit_code::ok;
  }
  constexpr std::size_t indent = 31;
  const auto columns = std::clamp<std::size_t>(screen().columns, 60, 110);
  auto text = fmt::format("{}{}{} ({} engine)\n\n", on(style::bold), printable(store.url()), off(),
                          printable(caps.engine));
  for (const auto& [about, sentence] : promises(caps)) {
    if (sentence.empty()) continue;
    text += fmt::format("{}{:<{}}{}{}\n", on(style::cyan), about, indent, off(),
                        wrapped(printable(sentence), columns, indent));
  }
  print(text);
  return exit_code::ok;
}

}  // namespace holdfast::cli
