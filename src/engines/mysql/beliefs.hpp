// What to believe of each grant of this client. Pure: no server, no clock of its own. Which session was proven when is
// in engines/common/session_belief.hpp; this adds what is known of the row of each grant.
//
// A grant ends in two ways: its row expires, or others find our session gone and take it after the grace. So it is
// believed until the earlier of: the end of its row as we last saw it, and `attention` after the last proof that the
// session was there, or after the row was last written.
//
// A session is one connection. Its proofs count for those grants only that were seen in the store by a question that
// was sent when that session had begun; a newer session says nothing about the rest, until the store was asked about
// them.
#pragma once

#include "engines/common/server_clock.hpp"
#include "engines/common/session_belief.hpp"

#include <holdfast/types.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>

namespace holdfast::engines::mysql {

// When something was asked for, and which session had begun by then. Read before the question is sent.
struct asking {
  steady_time at;
  std::uint64_t session = 0;
};

class beliefs {
 public:
  // What the store said about a grant: how long it will last from when it was asked.
  struct sight {
    asking asked;
    nanoseconds left{};
  };
  struct word {
    steady_time valid_from;
    nanoseconds ttl{};
  };

  // 0: a grant is believed as long as its row lasts.
  void set_attention(nanoseconds length) {
    const std::lock_guard lock{guard_};
    attention_ = length;
  }

  // A session has begun: others know that we are there, and have taken what they wanted to take. The
  // question that began it is its first proof.
  void begin_session(steady_time asked) {
    const std::lock_guard lock{guard_};
    const auto fresh = sessions_.current() + 1;
    sessions_.begin(fresh, asked);
    sessions_.proven(fresh, asked, asked);
  }
  // An answered question of that session's own.
  void proven(const asking& asked) { sessions_.proven(asked.session, asked.at, asked.at); }
  std::uint64_t session() const { return sessions_.current(); }

  // The grant with this number is in the store. Says what to believe of it from now on.
  word saw(std::uint64_t number, nanoseconds ttl, const sight& what);
  void forget(std::uint64_t number) {
    const std::lock_guard lock{guard_};
    seen_.erase(number);
  }
  // What to believe without asking about this very grant; nothing when it must be asked about: it is not known, was
  // last seen under another session, or has used up a third of its ttl.
  std::optional<word> without_asking(std::uint64_t number, nanoseconds ttl, steady_time now) const;

 private:
  static constexpr std::size_t kept_sessions = 4;
  // While a lease is bounded by the attention, core is told so much more, from so much earlier: it renews at a third of
  // it. So it asks every tenth of the attention, and nearly all of it is there to live through a pause of the server.
  static constexpr nanoseconds told(nanoseconds attention) {
    return attention + attention * 7 / 20;
  }

  word believed(const sight& what, nanoseconds ttl) const;

  mutable std::mutex guard_;
  nanoseconds attention_{};
  session_belief sessions_{kept_sessions};
  std::unordered_map<std::uint64_t, sight> seen_;
  std::size_t tidy_at_ = 64;
};

// REQUIRES: guard_ is held.
inline beliefs::word beliefs::believed(const sight& what, nanoseconds ttl) const {
  if (attention_ == nanoseconds::zero() || ttl <= attention_)
    return {what.asked.at + what.left - ttl, ttl};  // core takes the drift off
  auto end = what.asked.at + what.left - what.left / 1'000'000 * std::int64_t{server_drift_ppm};
  auto present = what.asked.at + what.left - ttl;  // then it was written, or later
  if (const auto proven = sessions_.proven_at(what.asked.session); proven != steady_time{})
    present = std::max(present, proven);
  end = std::min(end, present + attention_);
  const auto length = std::min(ttl, told(attention_));
  return {end - length, length};
}

inline beliefs::word beliefs::saw(std::uint64_t number, nanoseconds ttl, const sight& what) {
  const std::lock_guard lock{guard_};
  // What has ended was not renewed, so nobody holds it; who asks all the same must ask the store.
  if (seen_.size() >= tidy_at_) {
    std::erase_if(seen_, [&](const auto& one) {
      return one.second.asked.at + one.second.left < what.asked.at;
    });
    tidy_at_ = 2 * seen_.size() + 64;
  }
  auto& known = seen_.try_emplace(number, what).first->second;
  if (known.asked.at < what.asked.at) known = what;
  return believed(what, ttl);
}

inline std::optional<beliefs::word> beliefs::without_asking(std::uint64_t number, nanoseconds ttl,
                                                            steady_time now) const {
  const std::lock_guard lock{guard_};
  const auto at = seen_.find(number);
  if (attention_ == nanoseconds::zero() || at == seen_.end()) return std::nullopt;
  const auto& last = at->second;
  const bool is_due = last.asked.at + last.left - now <= ttl - ttl / 3;
  if (last.asked.session != sessions_.current() || is_due) return std::nullopt;
  return believed(last, ttl);
}

}  // namespace holdfast::engines::mysql
