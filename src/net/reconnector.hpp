// A channel is its connections, one after the other, and the time between them: this part of it, for every protocol.
//
// A connection is made when a call needs one and it is not too early to try again; attempts that fail, and
// connections that break without having been of use, are followed by longer and longer pauses.
#pragma once

#include "net/connection.hpp"
#include "net/reactor_impl.hpp"
#include "support/fork.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace holdfast::net {

class reconnector : public std::enable_shared_from_this<reconnector> {
 public:
  virtual ~reconnector() = default;
  reconnector(const reconnector&) = delete;
  reconnector& operator=(const reconnector&) = delete;

  // Afterwards all callbacks have run, unless it is called on the reactor's thread.
  void close() noexcept;
  void drop(const error& why) noexcept;
  std::uint64_t generation() const noexcept { return generation_.load(std::memory_order_relaxed); }
  std::uint64_t received() noexcept;

  bool forked() const noexcept { return born_ != support::fork_generation(); }
  error fork_refusal() const;
  // Of a forked child: lets go of the socket without a word, because it is the parent's too.
  void close_in_child() const noexcept;
  // A blocking call on the thread that would have to answer it.
  std::optional<error> refuse_on_reactor() const;

  // For the connections. With their mutex held.
  std::uint64_t note_accepted(const connection& which, int fd) noexcept;  // returns its generation
  void note_lost(const connection& which, const error& why) noexcept;
  // It takes no new calls and finishes the old ones; the next call gets another one.
  void note_retired(const connection& which) noexcept;

 protected:
  reconnector(reactor::impl& loop, connection_settings settings)
      : loop_(loop), settings_(std::make_shared<const connection_settings>(std::move(settings))) {}

  // For the connection with this serial number. With the mutex held.
  virtual std::unique_ptr<protocol> make_protocol(std::uint32_t serial) = 0;
  // The connection to use now; begins to make one when there is none and it is not too early to try again.
  result<std::shared_ptr<connection>> current();
  // Null: it is lost.
  std::shared_ptr<connection> find(std::uint32_t serial) noexcept;

  reactor::impl& loop_;
  const std::shared_ptr<const connection_settings> settings_;

 private:
  void plan_next(const connection& after) noexcept;

  const std::uint64_t born_ = support::fork_generation();
  std::atomic<std::uint64_t> generation_{0};  // of the connection that is up
  std::atomic<int> socket_{-1};               // of the same, for a forked child
  std::atomic<bool> closed_{false};

  std::mutex guard_;
  std::shared_ptr<connection> current_;
  std::vector<std::shared_ptr<connection>> retired_;
  std::uint64_t generations_ = 0;
  std::uint32_t last_serial_ = 0;
  steady_time up_since_{};
  nanoseconds delay_{};
  steady_time retry_at_{};  // in the past: at once
  error last_{errc::unavailable, "There was no attempt to connect yet."};
};

}  // namespace holdfast::net
