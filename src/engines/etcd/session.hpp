// The lease of one client: made when it is needed, kept alive over one stream (whenever core asks for a proof), made
// anew when it is gone. All keys of the client lie under it, so they go when it does: it is a session as in engine.hpp.
//
// What may be believed. The cluster keeps the lease for its ttl after the last keep-alive that it heard; we count
// from the time before that was sent (`proven`), once we know that it was the leader that heard it (keep_alive.cpp).
// The ttl that counts is the one that was granted. A new leader gives every lease its full ttl anew, which is in our
// favour.
//
// A lease that was not proven for its whole ttl is dead to us, whatever the cluster says later: everything under it was
// announced as lost already. We take it back in the background and make another.
#pragma once

#include "engines/common/operation.hpp"
#include "engines/etcd/cluster.hpp"
#include "engines/etcd/queue_entry.hpp"
#include "engines/etcd/stream.hpp"

#include <holdfast/clock.hpp>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace holdfast::engines::etcd {

struct lease_view {
  std::int64_t id = 0;
  steady_time proven;
  nanoseconds ttl{};
  std::uint64_t number = 0;  // of our leases, from 1; 0: of one that we have given up

  // For a client that believes for `longest` after a proof: a lease may last less than the first one did.
  session_proof proof(nanoseconds longest) const noexcept {
    return {number, proven - std::max(nanoseconds::zero(), longest - ttl)};
  }
};

class session_listener {
 public:
  // The lease is gone, or dead to us: so is everything under it.
  virtual void on_lease_gone(const lease_view& gone, std::string_view why) noexcept = 0;
  // What this member says is not to be relied on. On the driver's thread.
  virtual void on_suspect(std::size_t member) noexcept = 0;

 protected:
  ~session_listener() = default;
};

class session final : private stream::user {
 public:
  session(cluster& with, const class clock& time, session_listener& listener);
  // No callbacks any more; gives the lease back. The cluster must still be there.
  void end() noexcept;

  // The lease to put keys under. A new one is made if there is none.
  operation<lease_view> ensure(invocation how);
  // The lease as it is; nothing: there is none, or it is over.
  std::optional<lease_view> current() const;
  // The cluster is full, and grants no leases.
  bool is_refused_for_space() const noexcept { return full_.load(std::memory_order_relaxed); }
  // The cluster says that there is no such lease.
  void is_gone(std::int64_t id, std::string_view why);

  // Makes sure that the lease was proven after `since`: sends a keep-alive if none is on its way. `done` is called
  // once, without locks: with what may be believed then, or with unavailable at the deadline.
  using proof = std::function<void(result<lease_view>)>;
  void prove(steady_time since, steady_time deadline, proof done);
  // co_await: the same, for an operation.
  class proving;
  proving proven_since(steady_time since, const invocation& how) noexcept;
  // The epoch of that lease, as it was last seen, and what was seen of it at a revision of the store.
  epoch_view epoch(std::int64_t lease) const;
  void note_epoch(std::int64_t lease, std::int64_t modified, std::int64_t revision);
  // Prolongs another lease (of a counter), without waiting for an answer.
  void touch(std::int64_t lease);

 private:
  struct dated_id {
    std::int64_t id;
    steady_time at;
  };
  class reading;
  struct half_proof {
    std::uint64_t number;
    std::int64_t lease;
    steady_time at;                     // sent
    std::optional<std::uint64_t> kept;  // the term in which the keep-alive was answered
    std::optional<std::uint64_t> seen;  // and the read
  };
  struct prover {
    steady_time since;
    steady_time deadline;  // of std::chrono::steady_clock, unlike all others here
    proof done;
  };

  dated_id candidate();  // and since when it is one
  lease_view install(const dated_id& made, nanoseconds ttl, bool is_certain);
  void give_back(std::int64_t id) noexcept;
  void wake();

  // Of the driver's thread.
  void on_open() noexcept override;
  void on_message(std::string_view message) noexcept override;
  void on_close() noexcept override;
  void tick();
  void bury_if_over(steady_time now);  // from any thread
  void speak(steady_time now);
  void send(std::int64_t id, steady_time now);
  void read(std::uint64_t number, const answer& said);
  void judge(const half_proof& half);
  bool is_overdue(steady_time now) const;
  void suspect_member();
  question probe() const;
  void settle_provers();
  void plan();
  nanoseconds patience() const noexcept;

  cluster& cluster_;
  const class clock& clock_;
  session_listener& listener_;
  stream stream_;
  std::atomic<bool> full_{false};

  mutable std::mutex guard_;
  bool ending_ = false;
  bool woken_ = false;  // a tick is posted
  std::optional<lease_view> lease_;
  std::uint64_t leases_ = 0;  // that we had
  // The answer that brought the lease was lost, and with it the ttl: at least what was asked for. A keep-alive tells.
  bool ttl_is_unsure_ = false;
  std::int64_t wanted_ = 0;  // the id to make the next lease with, since then
  steady_time wanted_since_{};
  std::vector<prover> provers_;
  std::vector<std::int64_t> touches_;
  struct {
    std::int64_t lease = 0, modified = 0, seen_at = 0;
  } epoch_;

  // Of the driver's thread.
  std::deque<dated_id> unanswered_;
  std::deque<half_proof> proofs_;
  std::uint64_t last_proof_ = 0;
  steady_time sent_at_{};
  std::optional<net::reactor::timer_id> timer_;
  steady_time timer_at_{};
};

class session::proving {
 public:
  proving(session& in, steady_time since, const invocation& how) noexcept
      : in_(in), since_(since), how_(how) {}
  bool await_ready();
  void await_suspend(std::coroutine_handle<> caller);
  result<lease_view> await_resume() { return std::move(*got_); }

 private:
  session& in_;
  const steady_time since_;
  const invocation& how_;
  std::optional<result<lease_view>> got_{};
};

inline session::proving session::proven_since(steady_time since, const invocation& how) noexcept {
  return proving{*this, since, how};
}

}  // namespace holdfast::engines::etcd
