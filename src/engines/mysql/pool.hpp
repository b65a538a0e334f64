// Connections for the verbs: as many as are in use at once, up to a limit, and then kept.
//
// A connection that was given up in the middle of a statement leaves a late request: the statement may still run on the
// server, or even be on its way there, and take a lock for an owner that core has settled meanwhile. So the pool
// remembers them, and a verb that says that an owner is gone for good ends them first.
#pragma once

#include "engines/mysql/connection.hpp"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

namespace holdfast::engines::mysql {

// What was given up and may still run, or has not even arrived.
class late_requests {
 public:
  void add(const connection& what);
  // Might one of them still do something about this name? (Empty: about anything.)
  bool any(std::string_view name) const;
  // Ends them and sees them gone from the server: what is delivered to a connection that is gone does nothing.
  // unavailable when that cannot be made sure of in time.
  result<void> end_all(std::string_view name, connection& by, const settings& how,
                       const call& limits);
  // When a call last timed out. Connections that have not been heard of since may get no answer either.
  steady_time last() const noexcept { return last_.load(); }

 private:
  std::vector<identity> about(std::string_view name) const;
  void forget(const identity& which);

  std::atomic<std::size_t> count_{0};
  std::atomic<steady_time> last_{steady_time::min()};
  mutable std::mutex guard_;
  std::vector<identity> all_;
};

class pool {
 public:
  // One connection, for as long as this lives.
  class lease {
   public:
    lease(pool& from, std::unique_ptr<connection> what) : from_(&from), what_(std::move(what)) {}
    lease(lease&&) = default;
    lease& operator=(lease&&) = delete;
    ~lease() {
      if (what_) from_->give_back(std::move(what_));
    }
    connection& operator*() const noexcept { return *what_; }
    connection* operator->() const noexcept { return what_.get(); }

   private:
    pool* from_;
    std::unique_ptr<connection> what_;
  };

  pool(const settings& how, watchdog& by, late_requests& left, connection::kind what)
      : how_(how), by_(by), late_requests_(left), kind_(what) {}

  // Waits for one that is in use when there may be no more. The calls on it have these limits, and are about `name`.
  result<lease> take(const call& limits, std::string_view name);

 private:
  friend class lease;
  void give_back(std::unique_ptr<connection> what) noexcept;

  const settings& how_;
  watchdog& by_;
  late_requests& late_requests_;
  const connection::kind kind_;
  std::mutex guard_;
  std::condition_variable_any freed_;
  std::vector<std::unique_ptr<connection>> idle_;
  unsigned count_ = 0;  // idle or in use
};

}  // namespace holdfast::engines::mysql
