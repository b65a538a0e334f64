// The locks of this library, on whatever store a scheme names: the same few lines for all of them.
//
// A lock that is held by a lease is free again when its holder dies, and is renewed as long as its holder lives. What
// no such lock can do alone: keep a holder that was paused for longer than its lease from writing. That is what the
// token is for: the variants "-fenced" show it at the read already, and the store refuses older ones. All others are
// safe until a holder is paused.
#include "flash_sale/recipes.hpp"
#include "flash_sale/stock.hpp"

#include <holdfast/client.hpp>
#include <holdfast/mutex.hpp>
#include <holdfast/recursive_mutex.hpp>
#include <holdfast/shared_mutex.hpp>
#include <holdfast/striped_mutex.hpp>

#include <algorithm>
#include <vector>

namespace holdfast::cli::flash {

namespace {

using namespace std::chrono_literals;

// With sessions as short as the ttl, where the store takes such; else the death of a process is noticed later.
std::string address_of_locks(const sale_setting& about) {
  if (about.what->needs.empty()) return "file:" + about.folder + "/locks";
  const auto kind = about.what->needs.front();
  const auto& url = about.url(kind);
  const auto seconds = std::to_string(
      std::max<std::int64_t>(1, std::chrono::ceil<std::chrono::seconds>(about.ttl).count()));
  switch (kind) {
    case store_kind::redis:
      return with_option(url, "grace", "1s");
    case store_kind::mysql:
      return with_option(with_option(url, "grace", "1s"), "create", "1");
    case store_kind::zk:
    case store_kind::etcd:
      return with_option(url, "session", seconds + 's');
    case store_kind::consul:
    case store_kind::redlock:
      return url;
  }
  return url;
}

// What passes: the store lost sight of us during a pause, the sale is closed. Anything else ends the buyer.
bought was_not_granted(const error& why) {
  switch (why.code()) {
    case errc::cancelled:
    case errc::busy:
    case errc::timed_out:
    case errc::lost:
    case errc::unavailable:
    case errc::outcome_unknown:
      return bought::again;
    default:
      throw lock_error{why};
  }
}

// One client per process, shared by its buyers.
struct held_shop : shop {
  held_shop(const sale_setting& of, const std::string& address)
      : about(of), store(client::open(address, {.ttl = of.ttl})) {}
  std::chrono::nanoseconds takeover() const override {
    const auto& can = store.capabilities();
    return std::max(about.ttl + can.expiry_slack, can.dead_holder_bound);
  }
  const sale_setting& about;
  client store;
};

struct held_buyer : buyer {
  held_buyer(const sale_setting& about, till& with) : till_(with), stock_(open_stock(about)) {}
  acquire_options until_closed() const { return {.stop = till_.closing()}; }
  bought sell_one(std::int32_t shelf = 0) {
    return till_.sell([&] { return std::optional{stock_->read(shelf)}; },
                      [&](std::int64_t left) { return stock_->write(shelf, left), true; }, shelf);
  }
  till& till_;
  std::unique_ptr<stock> stock_;
};

template <class Recipe, class Lock, class... More>
class shop_with_lock final : public held_shop {
 public:
  shop_with_lock(const sale_setting& of, const std::string& address, More... more)
      : held_shop(of, address), lock_(store, of.lock_name(), more...) {}
  std::unique_ptr<buyer> new_buyer(till& with) override {
    return std::make_unique<Recipe>(lock_, about, with);
  }

 private:
  Lock lock_;
};

// ---- a mutex; first come, first served where the store can

class under_a_mutex final : public held_buyer {
 public:
  under_a_mutex(mutex& lock, const sale_setting& about, till& with)
      : held_buyer(about, with), lock_(lock) {}
  bought buy() override {
    const auto held = lock_.acquire(until_closed());
    if (!held) return was_not_granted(held.error());
    return sell_one();
  }

 private:
  mutex& lock_;
};

class under_a_fenced_mutex final : public held_buyer {
 public:
  under_a_fenced_mutex(mutex& lock, const sale_setting& about, till& with)
      : held_buyer(about, with), lock_(lock) {}
  bought buy() override {
    const auto held = lock_.acquire(until_closed());
    if (!held) return was_not_granted(held.error());
    return till_.sell([&] { return stock_->read(0, held->token()); },
                      [&](std::int64_t left) { return stock_->write(0, left, held->token()); });
  }

 private:
  mutex& lock_;
};

// ---- re-entrant: a buyer that has it may call what takes it again, without a word to the store. The lease is renewed
// for as long as its process lives (some call that a watchdog).

class re_entering final : public held_buyer {
 public:
  re_entering(recursive_mutex& lock, const sale_setting& about, till& with)
      : held_buyer(about, with), lock_(lock) {}
  bought buy() override {
    const auto held = lock_.acquire(until_closed());
    if (!held) return was_not_granted(held.error());
    return take_one_from_stock();
  }

 private:
  bought take_one_from_stock() {
    const auto again = lock_.acquire(until_closed());
    if (!again) return was_not_granted(again.error());
    return sell_one();
  }
  recursive_mutex& lock_;
};

// ---- read-write: all browse at once, one buys. What was seen while browsing is looked up again under the writer's
// lock: between the two anybody may have bought.

class browsing_and_buying final : public held_buyer {
 public:
  browsing_and_buying(shared_mutex& lock, const sale_setting& about, till& with)
      : held_buyer(about, with), lock_(lock) {}
  bought buy() override {
    {
      const auto browsing = lock_.acquire_shared(until_closed());
      if (!browsing) return was_not_granted(browsing.error());
      if (stock_->read(0) <= 0) return bought::sold_out;
    }
    const auto held = lock_.acquire(until_closed());
    if (!held) return was_not_granted(held.error());
    return sell_one();
  }

 private:
  shared_mutex& lock_;
};

// ---- striped: the stock in ranges, each under a lock of its own, so that as many buyers sell at a time. Whoever finds
// its shelf empty goes to another; only who has seen all empty goes home.

class at_any_shelf final : public held_buyer {
 public:
  at_any_shelf(striped_mutex& shelves, const sale_setting& about, till& with)
      : held_buyer(about, with), shelves_(shelves), is_empty_(shelves.size()) {}
  bought buy() override {
    const auto shelf = std::ranges::find(is_empty_, false);
    if (shelf == is_empty_.end()) return bought::sold_out;
    auto held = at_once();
    if (!held) {  // all others are taken: queue for one that has not been seen empty
      const auto index = static_cast<std::size_t>(shelf - is_empty_.begin());
      auto waited = shelves_[index].acquire(until_closed());
      if (!waited) return was_not_granted(waited.error());
      held = stripe_lease{index, std::move(*waited)};
    }
    const auto outcome = sell_one(static_cast<std::int32_t>(held->stripe));
    if (outcome != bought::sold_out) return outcome;
    is_empty_[held->stripe] = true;
    return bought::again;
  }

 private:
  // One that is free and not known to be empty; each buyer begins elsewhere.
  std::optional<stripe_lease> at_once() {
    for (std::size_t i = 0; i < shelves_.size(); ++i) {
      const auto index = next_++ % shelves_.size();
      if (is_empty_[index]) continue;
      if (auto got = shelves_[index].try_acquire()) return stripe_lease{index, std::move(*got)};
    }
    return std::nullopt;
  }
  striped_mutex& shelves_;
  std::vector<bool> is_empty_;
  std::size_t next_ = std::hash<const void*>{}(this) / 64;
};

}  // namespace

std::unique_ptr<shop> open_held_mutex(const sale_setting& about) {
  return std::make_unique<shop_with_lock<under_a_mutex, mutex>>(about, address_of_locks(about));
}

std::unique_ptr<shop> open_held_mutex_fenced(const sale_setting& about) {
  return std::make_unique<shop_with_lock<under_a_fenced_mutex, mutex>>(about,
                                                                       address_of_locks(about));
}

std::unique_ptr<shop> open_held_reentrant(const sale_setting& about) {
  return std::make_unique<shop_with_lock<re_entering, recursive_mutex>>(about,
                                                                        address_of_locks(about));
}

std::unique_ptr<shop> open_held_read_write(const sale_setting& about) {
  return std::make_unique<shop_with_lock<browsing_and_buying, shared_mutex>>(
      about, address_of_locks(about));
}

std::unique_ptr<shop> open_held_striped(const sale_setting& about) {
  return std::make_unique<shop_with_lock<at_any_shelf, striped_mutex, std::size_t>>(
      about, address_of_locks(about), static_cast<std::size_t>(about.shelves()));
}

// ZooKeeper's simplest lock: one node, and all who wait watch that node, so each release wakes them all.
std::unique_ptr<shop> open_held_zk_exclusive(const sale_setting& about) {
  return std::make_unique<shop_with_lock<under_a_mutex, mutex>>(
      about, with_option(address_of_locks(about), "layout", "exclusive"));
}

}  // namespace holdfast::cli::flash
