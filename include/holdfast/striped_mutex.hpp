// striped_mutex: one hot name split into n segments, so that n holders work side by side.
//
// The stock-in-ranges trick: 1,000 items as 10 stripes of 100, each with its own lock. acquire(key)
// always takes the same stripe for a key; acquire_any takes whichever is free, starting at random;
// acquire_all takes every stripe (to re-balance).
#pragma once

#include <holdfast/mutex.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast {

struct stripe_lease {
  std::size_t stripe = 0;
  lease held;
};

class striped_mutex {
 public:
  // Stripes are the locks `name/0` ... `name/n-1`. Throws lock_error misconfigured unless 1 <= n <= 4096.
  striped_mutex(const client& store, std::string name, std::size_t stripes);

  // The same stripe for the same key on every machine and in every version (FNV-1a of its bytes).
  std::size_t stripe_of(std::string_view key) const noexcept;
  result<stripe_lease> acquire(std::string_view key, const acquire_options& options = {});
  // Tries every stripe once without waiting, then queues for one of them.
  result<stripe_lease> acquire_any(const acquire_options& options = {});
  result<std::vector<lease>> acquire_all(const acquire_options& options = {});

  mutex& operator[](std::size_t stripe) noexcept { return *stripes_[stripe]; }
  std::size_t size() const noexcept { return stripes_.size(); }

 private:
  client store_;
  std::vector<std::unique_ptr<mutex>> stripes_;
};

}  // namespace holdfast
