// Listens for the loss of one lease.
#pragma once

#include <holdfast/lease.hpp>

#include <atomic>
#include <chrono>
#include <stop_token>

namespace holdfast::testing {

// When a loss was announced, by the steady clock.
class loss_recorder {
 public:
  explicit loss_recorder(const lease& of) : callback_(of.lost(), note{this}) {}
  bool fired() const { return fired_.load(); }
  steady_time when() const { return when_; }  // REQUIRES: fired()

 private:
  struct note {
    loss_recorder* self;
    void operator()() const noexcept {
      self->when_ = std::chrono::steady_clock::now();
      self->fired_ = true;
    }
  };
  steady_time when_{};
  std::atomic<bool> fired_{false};
  std::stop_callback<note> callback_;
};

}  // namespace holdfast::testing
