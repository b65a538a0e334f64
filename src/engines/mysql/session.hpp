// A client's session: one connection of its own that holds a user lock named after the client (GET_LOCK), and on which
// all its grants are renewed.
//
// Presence. While the connection lives, no other can have that user lock; when the process dies, the server frees it
// within a millisecond. With a grace (?grace=, 3 s unless told otherwise) others may take our locks once they have
// found the user lock free for that long, and the grant is older than that, although its ttl has not passed. So a
// lease must not be believed for longer than the grace after the last proof that the connection was there, or after
// the grant was asked for. The proof is an answered statement on this very connection: connections do not come back
// to life, so it was there at least until that statement was sent; and it proves nothing about grants of the connection
// before (session_belief.hpp). So this connection is a session as in engine.hpp; its heartbeat is one small SELECT.
//
// A half-open connection (the client's machine vanished without a word) keeps the user lock for as long as the server
// does not notice. Then the ttl ends the grants, as it does without a grace.
#pragma once

#include "engines/common/session_belief.hpp"
#include "engines/mysql/connection.hpp"
#include "engines/mysql/pool.hpp"
#include "engines/mysql/sql.hpp"

#include <holdfast/engine.hpp>

#include <algorithm>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace holdfast::engines::mysql {

// grant.handle: whether the row is in holdfast_entry.
inline bool is_entry(const grant& held) { return held.handle != 0; }

// What a store's answer says about a grant of ours.
struct seen_grant {
  std::string_view name;
  owner_id owner;
  lock_mode mode = lock_mode::exclusive;
  std::uint64_t weight = 0;
  fencing_token token;
  nanoseconds ttl{};
  nanoseconds left{};  // of the ttl, when the server looked: so at least so much since we asked
  bool is_entry = false;
};

class session {
 public:
  struct identity_of_client {
    std::string client;  // 16 bytes
    std::string host;
    std::int64_t pid = 0;
  };

  session(const settings& how, watchdog& by, late_requests& left, const class clock& time,
          identity_of_client own)
      : how_(how), by_(by), late_requests_(left), clock_(time), identity_(std::move(own)) {}

  // Connects, and finds out whether user locks are what they should be. Then grace and listening are known.
  result<void> open(const call& limits);
  // False: no waiter can be woken here, and no client is seen to be gone: proxies, Galera, wait=poll.
  bool has_user_locks() const noexcept { return has_user_locks_; }
  const std::string& why_not() const noexcept { return why_not_; }
  nanoseconds grace() const noexcept { return has_user_locks_ ? how_.grace : nanoseconds::zero(); }

  // How long a lease is believed after the last answer; 0: for its ttl. A client that cannot be told of revocations
  // must ask for them.
  nanoseconds longest_validity() const noexcept {
    return has_user_locks_ ? how_.grace : nanoseconds{std::chrono::seconds{3}};
  }

  // How long a listener sleeps that has several clients to watch. MySQL's GET_LOCK knows whole seconds only, and takes
  // less than half of one for none.
  nanoseconds sleep_between_looks() const noexcept {
    using std::chrono::seconds;
    if (version_.is_mariadb) return how_.grace / 2;
    return std::max(std::chrono::floor<seconds>(how_.grace / 2), seconds{1});
  }

  const std::string& client() const noexcept { return identity_.client; }
  const server_version& version() const noexcept { return version_; }

  // To be read before a question is sent whose answer may show grants of ours.
  sending now() const {
    const auto number = belief_.current();  // first: the question is not older than its session
    return {clock_.now(), number};
  }
  // A grant that the store has shown, with what is known of the session in which it was asked.
  grant grant_of(const seen_grant& what, const sending& asked) const;

  // Asks the store about each. `revoked`: the numbers of all grants of ours that were revoked, in the batch or not, and
  // of which core has not been told yet; also when the answer is an error.
  result<session_proof> renew(std::span<renewal> batch, const call& limits,
                              std::vector<std::uint64_t>& revoked);
  // Connects again, if need be: without its session a client's waiters count as dead.
  result<void> revive(const call& limits);
  // The same, unless another thread is at it just now, for which this does not wait.
  result<void> try_revive(const call& limits);
  // Has the connection ended? Neither asks the server nor waits for another thread.
  bool is_gone() const;
  // The connection goes, and with it the user lock.
  void close() noexcept;

 private:
  // An answer may be read long after it was asked for, and then counts on a session of that time.
  static constexpr std::size_t kept_sessions = 4;

  result<void> connect(const call& limits);
  result<void> join(std::unique_ptr<connection> fresh, const call& limits);
  result<void> join_on(connection& fresh, const call& limits);
  result<void> take_user_lock(connection& on);
  result<bool> check_user_locks(const call& limits);
  void write_rows(std::span<renewal> batch, std::span<const std::size_t> chosen,
                  steady_time deadline);
  result<void> write_some(std::span<renewal> batch, std::span<const std::size_t> some,
                          std::size_t size);

  const settings& how_;
  watchdog& by_;
  late_requests& late_requests_;
  const class clock& clock_;
  const identity_of_client identity_;
  bool has_user_locks_ = false;
  std::string why_not_;
  server_version version_;
  session_belief belief_{kept_sessions};

  mutable std::mutex guard_;  // of what follows: one renewal at a time
  std::unique_ptr<connection> connection_;
  identity last_;  // of the connection before
};

}  // namespace holdfast::engines::mysql
