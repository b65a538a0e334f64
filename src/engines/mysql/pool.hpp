// Connections for the verbs: as many as are in use at once, up to a limit, and then kept.
//
// A connection that was given up in the middle of a statement leaves a ghost: the statement may still run on the
// server, and take a lock for an owner that core has settled meanwhile. So the pool remembers ghosts, and settle()
// lays them first.
#pragma once

#include "engines/mysql/connection.hpp"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

namespace holdfast::engines::mysql {

// What was given up and may still run.
class ghosts {
 public:
  void add(const identity& whose);
  bool any() const;
  // Ends them, and returns when they have ended. unavailable when that cannot be made sure of in time.
  result<void> lay(connection& by, const settings& how, const call& limits);

 private:
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

  pool(const settings& how, watchdog& by, ghosts& left, connection::kind what)
      : how_(how), by_(by), ghosts_(left), kind_(what) {}

  // Waits for one that is in use when there may be no more. The calls on it have these limits, and are about `name`.
  result<lease> take(const call& limits, std::string_view name);

 private:
  friend class lease;
  void give_back(std::unique_ptr<connection> what) noexcept;

  const settings& how_;
  watchdog& by_;
  ghosts& ghosts_;
  const connection::kind kind_;
  std::mutex guard_;
  std::condition_variable_any freed_;
  std::vector<std::unique_ptr<connection>> idle_;
  unsigned count_ = 0;  // idle or in use
};

}  // namespace holdfast::engines::mysql
