// striped_mutex: one hot name split into n segments, so that n holders work side by side.
//
// The stock-in-ranges trick: 1,000 items as 10 stripes of 100, each with its own lock. acquire(key) always takes
// the same stripe for a key; acquire_any takes one that is free, starting at random; acquire_all takes every
// stripe (to re-balance).
//
//   holdfast::striped_mutex shelves{client, "stock/sku-42", 10};
//   auto any = shelves.acquire_any({.wait = 3s}).value();
//   sell_from(any.stripe, any.held.token());              // tokens rise per stripe: one fence for each
//
// All users of a name must agree on the number of stripes: the store does not know that they belong together, and a key
// lies elsewhere among 12 than among 10. Thread-safe. Loss, crash, fork: see lease.hpp and client.hpp; each stripe is
// lost by itself.
#pragma once

#include <holdfast/mutex.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast {

// A lease and what it is the lease of: 0 <= stripe < size().
struct stripe_lease {
  std::size_t stripe = 0;
  lease held;
};

class striped_mutex {
 public:
  // Stripes are the locks `name/0` ... `name/n-1`. Does not ask the store. Throws lock_error misconfigured for a bad
  // name, one that gets too long by its numbers, or unless 1 <= n <= 4096.
  striped_mutex(const client& store, std::string name, std::size_t stripes);

  // The same stripe for the same key on every machine and in every version (FNV-1a of its bytes). Any bytes will do.
  std::size_t stripe_of(std::string_view key) const noexcept;
  // The stripe of this key. Blocking, cancellation and errors as those of mutex::acquire.
  result<stripe_lease> acquire(std::string_view key, const acquire_options& options = {});
  // Tries every stripe once without waiting, then queues for one of them: that one may stay taken while another becomes
  // free. The wait counts from then on, so up to size() round trips more. busy with wait 0 when all are taken; the
  // first other error ends it; else as mutex::acquire. Each stripe that was found taken counts as busy in the metrics.
  result<stripe_lease> acquire_any(const acquire_options& options = {});
  // Every stripe, or none: lock_all() of their names, with its errors. The leases are in the order of the names as text
  // (name/10 comes before name/2), not of the numbers.
  result<std::vector<lease>> acquire_all(const acquire_options& options = {});

  // One stripe as a mutex, with both faces. REQUIRES: stripe < size(). Lives as long as this object.
  mutex& operator[](std::size_t stripe) noexcept { return *stripes_[stripe]; }
  std::size_t size() const noexcept { return stripes_.size(); }

 private:
  client store_;
  std::vector<std::unique_ptr<mutex>> stripes_;
};

}  // namespace holdfast
