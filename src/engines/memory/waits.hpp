// Sleeping until a store changes: what to look for, and two ways to sleep.
//
// A condition is looked at with the store's guard held, again and again until it is met. A thread sleeps on its own
// condition variable (block_until); an async wait sleeps in the session thread, one for all of them.
#pragma once

#include "engines/memory/store.hpp"

#include <holdfast/engine.hpp>

namespace holdfast::engines::memory {

class condition {
 public:
  virtual ~condition() = default;
  // REQUIRES, for all: the store's guard is held.
  virtual bool met(steady_time now) = 0;
  virtual steady_time look_again_at() const = 0;
  virtual const topic& about() const = 0;
};

// The ticket is granted, or is no ticket any more.
class ticket_moved final : public condition {
 public:
  ticket_moved(store& in, const ticket& place);
  bool met(steady_time now) override;
  steady_time look_again_at() const override;
  const topic& about() const override { return about_; }
  progress outcome{};

 private:
  store& store_;
  ticket place_;
  topic about_;
};

// The version is no longer the one that was seen.
class version_changed final : public condition {
 public:
  version_changed(store& in, watch_kind kind, std::string_view name, std::uint64_t seen);
  bool met(steady_time now) override;
  steady_time look_again_at() const override;
  const topic& about() const override { return about_; }

 private:
  store& store_;
  watch_kind kind_;
  std::uint64_t seen_;
  topic about_;
};

// A fake clock wakes no thread when it is moved, so those that sleep by it look at it every now and then.
inline constexpr nanoseconds fake_clock_look = std::chrono::milliseconds{10};
// When to wake, on the real steady clock, for something due at `due` on `time`.
steady_time real_wake_up(const class clock& time, steady_time due);

// Returns when the condition is met, at the deadline, or on stop.
void block_until(condition& what, store& in, const class clock& time, const call& limits);

}  // namespace holdfast::engines::memory
