#include "engines/redis/sentinels.hpp"

#include "support/parker.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <utility>

namespace holdfast::engines::redis {

namespace {

using namespace std::chrono_literals;
using level = finding::level;

// Less than the time for a connect: it is part of that.
constexpr nanoseconds sentinel_patience = 1s;
// How long it takes at most until all sentinels know what one of them does: they tell each other every two seconds.
constexpr nanoseconds to_agree = 5s;
constexpr std::string_view news = "+switch-master";

template <class N>
N number_of(std::string_view digits) {
  N out{};
  std::from_chars(digits.data(), digits.data() + digits.size(), out);
  return out;
}

template <class A, class B>
bool is_same(const A& a, const B& b) {
  return a.host == b.host && a.port == b.port;
}

std::optional<sighting> sighting_in(const result<answer>& said) {
  return said ? read_sighting(said->values[0], said->values[1]) : std::nullopt;
}

bool is_unknown_master(const result<answer>& said) {
  return !said && said.error().message().find("No such master") != std::string::npos;
}

}  // namespace

sentinels::sentinels(const settings& how, net::reactor& on, std::function<void()> on_switch)
    : how_(how), reactor_(on), on_switch_(std::move(on_switch)), peers_(on, this) {
  for (const auto& at : how_.sentinels) peers_.add(at, news);
}

// ---- asking

// In this order: see sighting.hpp.
command sentinels::question() const {
  command out({"SENTINEL", "MASTER", how_.master});
  out.then({"SENTINEL", "GET-MASTER-ADDR-BY-NAME", how_.master});
  return out;
}

void sentinels::ask(std::function<void(const peers::answers&)> done) {
  peers_.ask(
      question(), sentinel_patience,
      [this, open = is_open_](const peers::answers& got) {
        if (!*open) return true;
        // Where it is known better than what a majority says, the others are heard, too.
        const auto best = best_of(got);
        return answered(got) >= majority() && best && best->epoch >= highest_epoch_ &&
               !is_left(*best);
      },
      [open = is_open_, done = std::move(done)](const peers::answers& got) {
        if (*open) done(got);
      });
}

void sentinels::find(net::address_found done) {
  ask([this, done = std::move(done)](const peers::answers& got) {
    auto seen = choose(got);
    if (!seen) return done(std::move(seen).error());
    const bool is_another = current_ && !is_same(*current_, *seen);
    current_ = address_of(*seen);
    if (!is_another) return done(*current_);
    // All begin anew, this one too: what one connection proves counts for what was asked over the others.
    done(error{errc::unavailable, fmt::format("{}: the master has changed.", how_.url)});
    on_switch_();
  });
}

// What a sentinel has told while none of our connections to it was up was not heard.
void sentinels::look_again() {
  if (!current_) return;
  ask([this](const peers::answers& got) {
    auto seen = choose(got);
    if (!seen || !current_ || is_same(*seen, *current_)) return;
    current_ = address_of(*seen);
    on_switch_();
  });
}

// "NAME OLD-IP OLD-PORT NEW-IP NEW-PORT"
void sentinels::on_told(std::string_view message) {
  std::array<std::string_view, 5> words;
  for (auto& word : words) {
    const auto end = std::min(message.find(' '), message.size());
    word = message.substr(0, end);
    message.remove_prefix(std::min(end + 1, message.size()));
  }
  if (words[0] != how_.master) return;
  auto& left = left_.emplace();
  left.host = words[1];
  left.port = number_of<std::uint16_t>(words[2]);
  left_until_ = std::chrono::steady_clock::now() + to_agree;
  auto next = how_.where;
  next.host = words[3];
  next.port = number_of<std::uint16_t>(words[4]);
  if (current_ && is_same(*current_, next)) return;  // told by another one before, and followed
  current_ = std::move(next);
  on_switch_();
}

// ---- answers

net::address sentinels::address_of(const sighting& seen) const {
  auto out = how_.where;
  out.host = seen.host;
  out.port = seen.port;
  // The name that was asked for, if any, else the one that the sentinels say.
  if (out.use_tls && out.tls.server_name.empty()) out.tls.server_name = out.host;
  return out;
}

// Older than what we have seen; unless a majority keeps saying so, as sentinels do that were set up anew.
bool sentinels::is_outdated(const sighting& seen) {
  if (seen.epoch >= highest_epoch_) return false;
  const auto now = std::chrono::steady_clock::now();
  if (!lower_since_) lower_since_ = now;
  return now - *lower_since_ < 2 * to_agree;
}

bool sentinels::is_left(const sighting& seen) const {
  return left_ && is_same(*left_, seen) && std::chrono::steady_clock::now() < left_until_;
}

std::optional<sighting> sentinels::best_of(const peers::answers& got) const {
  std::optional<sighting> best;
  for (const auto& said : got) {
    if (!said) continue;
    auto seen = sighting_in(*said);
    if (!seen || (best && best->epoch >= seen->epoch)) continue;
    best = std::move(seen);
  }
  return best;
}

result<sighting> sentinels::choose(const peers::answers& got) {
  if (answered(got) < majority()) return too_few(got);
  auto best = best_of(got);
  if (best && !is_outdated(*best) && !is_left(*best)) {
    highest_epoch_ = best->epoch;
    lower_since_.reset();
    return std::move(*best);
  }
  return error{errc::unavailable,
               fmt::format("{}: the sentinels do not agree yet which server is the master; this "
                           "takes a few seconds after a fail-over.",
                           how_.url)};
}

error sentinels::too_few(const peers::answers& got) const {
  std::size_t unknown = 0;
  std::optional<error> why;
  for (const auto& said : got) {
    if (!said || *said) continue;
    if (is_unknown_master(*said)) ++unknown;
    if (!why || why->code() == errc::unavailable || why->code() == errc::outcome_unknown)
      why = said->error();
  }
  if (unknown > got.size() - majority())
    return {errc::misconfigured,
            fmt::format("{}: the sentinels know no master named {}; it is the path of the address.",
                        how_.url, support::quoted(how_.master))};
  const auto code = why && (why->code() == errc::denied || why->code() == errc::misconfigured)
                        ? why->code()
                        : errc::unavailable;
  return {code, fmt::format("{}: {} of {} sentinels say where the master is, and {} are needed{}{}",
                            how_.url, answered(got), got.size(), majority(),
                            why ? ". One of the others: " : ".",
                            why ? std::string_view{why->message()} : std::string_view{})};
}

// ---- holdfast doctor

std::vector<finding> sentinels::diagnose() {
  std::vector<finding> out;
  support::parker done;
  reactor_.post([this, &out, &done] {
    peers_.ask(question(), sentinel_patience, {}, [this, &out, &done](const peers::answers& got) {
      out = judge(got);
      done.set(1);
    });
  });
  done.wait(steady_time::max());
  return out;
}

std::vector<finding> sentinels::judge(const peers::answers& got) {
  std::vector<finding> out;
  const auto there = answered(got);
  out.push_back({there == got.size()   ? level::good
                 : there >= majority() ? level::warning
                                       : level::bad,
                 "sentinels",
                 fmt::format("{} of {} answer; {} are needed to find the master.", there,
                             got.size(), majority())});
  auto seen = choose(got);
  if (!seen) {
    out.push_back({level::bad, "master", seen.error().message()});
    return out;
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!got[i] || !*got[i]) {
      out.push_back({level::warning, how_.sentinels[i].url,
                     got[i] ? got[i]->error().message() : "It did not answer in time."});
      continue;
    }
    const auto said = sighting_in(*got[i]);
    if (said && is_same(*said, *seen)) continue;
    out.push_back({level::warning, how_.sentinels[i].url, "It names another master."});
  }
  const auto known = seen->others + 1;
  const bool named_all = known == static_cast<std::int64_t>(got.size());
  out.push_back({named_all ? level::good : level::warning, "number of sentinels",
                 named_all
                     ? fmt::format("{}, and the address names all of them.", known)
                     : fmt::format("There are {}, and the address names {}: name them all, or a "
                                   "majority of those named may be a minority of all.",
                                   known, got.size())});
  if (known < 3)
    out.push_back({level::warning, "fail-over",
                   "Fewer than three sentinels: none can be lost, or no fail-over comes about."});
  out.push_back(
      {seen->replicas > 0 ? level::good : level::warning, "replicas",
       seen->replicas > 0
           ? fmt::format("{} known to the sentinels.", seen->replicas)
           : std::string{"The sentinels know none, so there is nothing to fail over to."}});
  return out;
}

}  // namespace holdfast::engines::redis
