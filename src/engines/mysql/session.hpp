// A client's session: one connection of its own that holds a user lock named after the client (GET_LOCK), and on which
// all its grants are renewed.
//
// Presence. While the connection lives, nobody else can have that user lock; when the process dies, the server frees
// it within a millisecond. With a grace (?grace=, 2 s unless told otherwise) others may take our locks once they have
// found the user lock free for that long, and the grant is older than that, although its ttl has not passed. So a
// lease must not be believed for longer than the grace after the last proof that the connection was there, or after
// the grant was asked for. The proof is an answered statement on this very connection: connections do not come back
// to life, so it was there at least until that statement was sent. Every grant is thus reported with a ttl of at most
// the grace, core renews it that often, and renew() turns most of those renewals into one small SELECT; rows are
// written at a third of the real ttl.
//
// A half-open connection (the client's machine vanished without a word) keeps the user lock for as long as the server
// does not notice. Then the ttl ends the grants, as it does without a grace.
#pragma once

#include "engines/mysql/connection.hpp"
#include "engines/mysql/pool.hpp"
#include "engines/mysql/sql.hpp"

#include <holdfast/engine.hpp>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace holdfast::engines::mysql {

// grant.handle: the real ttl in microseconds (46 bits, 2 years), whether the row is in holdfast_entry, and by how many
// milliseconds the ttl counts from earlier than valid_from says.
struct grant_handle {
  static constexpr std::uint64_t not_known = (1U << 17U) - 1;
  std::uint64_t ttl = 0;
  bool is_entry = false;
  std::uint64_t earlier = 0;
  static grant_handle of(const grant& held) {
    return {held.handle >> 1U & ((std::uint64_t{1} << 46U) - 1), (held.handle & 1U) != 0,
            held.handle >> 47U};
  }
  std::uint64_t packed() const {
    return std::min(earlier, not_known) << 47U | ttl << 1U | std::uint64_t{is_entry};
  }
};

class session {
 public:
  struct identity_of_client {
    std::string client;  // 16 bytes
    std::string host;
    std::int64_t pid = 0;
  };

  session(const settings& how, watchdog& by, ghosts& left, const class clock& time,
          identity_of_client who)
      : how_(how), by_(by), ghosts_(left), clock_(time), who_(std::move(who)) {}

  // Connects, and finds out whether user locks are what they should be. Then grace and listening are known.
  result<void> open(const call& limits);
  // Nobody can be told anything here, and nobody is seen to be gone: proxies, Galera, wait=poll.
  bool has_user_locks() const noexcept { return has_user_locks_; }
  const std::string& why_not() const noexcept { return why_not_; }
  nanoseconds grace() const noexcept { return has_user_locks_ ? how_.grace : nanoseconds::zero(); }

  // How long a lease is believed after the last answer; 0: for its ttl. Those who cannot be told that something was
  // revoked must ask for it.
  nanoseconds attention() const noexcept {
    return has_user_locks_ ? how_.grace : nanoseconds{std::chrono::seconds{2}};
  }

  const std::string& client() const noexcept { return who_.client; }
  const server_version& version() const noexcept { return version_; }

  // What to believe of a grant whose ttl the store counts from `from` on.
  grant believed(std::string_view name, const owner_id& owner, lock_mode mode, std::uint64_t weight,
                 fencing_token token, steady_time from, nanoseconds ttl, bool is_entry) const;

  // True in `has_mail` when something of ours was revoked.
  result<void> renew(std::span<renewal> batch, const call& limits, bool& has_mail);
  // Connects again, if need be: without its session a client's waiters count as dead.
  result<void> revive(const call& limits);
  // The session's row goes, and the connection.
  void close(const call& limits) noexcept;

 private:
  result<void> connect(const call& limits);
  result<void> take_user_lock(connection& on);
  result<bool> check_user_locks(const call& limits);
  result<void> write_rows(std::span<renewal> batch, const std::vector<std::size_t>& due,
                          bool entries);
  std::vector<std::size_t> due_for_renewal(std::span<const renewal> batch, steady_time now);
  nanoseconds believed_ttl(nanoseconds ttl) const;
  steady_time believed_from(steady_time from, nanoseconds ttl) const;
  void rise_presence(steady_time to) noexcept;

  const settings& how_;
  watchdog& by_;
  ghosts& ghosts_;
  const class clock& clock_;
  const identity_of_client who_;
  bool has_user_locks_ = false;
  std::string why_not_;
  server_version version_;
  std::atomic<std::int64_t> present_at_{0};  // steady ns: it was there at that time

  std::mutex guard_;  // of what follows: one renewal at a time
  std::unique_ptr<connection> connection_;
  identity last_;             // of the connection before
  bool look_at_all_ = false;  // after a reconnect: what we knew may be wrong
  std::unordered_map<std::uint64_t, steady_time>
      renewed_at_;  // by sequence: the ttl counts from then
};

// Taken off every ttl for clocks that differ in speed, in parts per million.
inline constexpr unsigned drift_ppm = 10'000;

}  // namespace holdfast::engines::mysql
