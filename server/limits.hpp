// How much one key may have at a time. What is over is refused with 429, so that one client cannot take the place of
// all others.
#pragma once

#include "keys.hpp"

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace holdfast::server {

class limits {
 public:
  struct allowance {
    std::size_t leases = 0;
    std::size_t waiters = 0;
    std::size_t watchers = 0;  // of all keys together
    std::size_t sessions = 1'000;
    std::size_t processes = 1'000;  // that are watched, of all keys together
    std::size_t jobs = 64;          // that wait for a slow store
  };
  explicit limits(allowance most) : most_(most) {}

  // Throw refused when it is one too many. What was taken is given back by the destructor.
  class place;
  place lease(const key& who);
  place waiter(const key& who);
  place watcher();
  place session(const key& who);
  place process();
  // Of loop::work, which all keys share. Nothing: it is one too many.
  std::optional<place> job(const key& who);

  std::size_t leases() const noexcept { return all_leases_; }
  std::size_t waiters() const noexcept { return all_waiters_; }
  std::size_t watchers() const noexcept { return all_watchers_; }
  std::size_t jobs() const noexcept { return all_jobs_; }

 private:
  struct usage {
    std::size_t leases = 0;
    std::size_t waiters = 0;
    std::size_t sessions = 0;
    std::size_t jobs = 0;
  };
  allowance most_;
  std::map<std::string, usage, std::less<>> used_;  // one entry for each key that there is
  std::size_t all_leases_ = 0, all_waiters_ = 0, all_watchers_ = 0, all_processes_ = 0,
              all_jobs_ = 0;
};

class limits::place {
 public:
  place() = default;
  place(place&& other) noexcept;
  place& operator=(place&& other) noexcept;
  ~place() { give_back(); }

 private:
  friend class limits;
  place(std::size_t* own, std::size_t* all) noexcept : own_(own), all_(all) {}
  void give_back() noexcept;
  std::size_t* own_ = nullptr;
  std::size_t* all_ = nullptr;
};

}  // namespace holdfast::server
