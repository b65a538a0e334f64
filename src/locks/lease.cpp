#include <holdfast/lease.hpp>

#include "core/async_lease.hpp"
#include "core/blocking.hpp"
#include "core/client_core.hpp"

#include <utility>

namespace holdfast {

namespace {

const std::string no_name;

}  // namespace

lease::lease(lease&& other) noexcept
    : hold_(std::move(other.hold_)),
      generation_(std::exchange(other.generation_, 0)),
      token_(other.token_) {}

lease& lease::operator=(lease&& other) noexcept {
  if (this == &other) return *this;
  lease old{std::move(*this)};
  hold_ = std::move(other.hold_);
  generation_ = std::exchange(other.generation_, 0);
  token_ = other.token_;
  return *this;
}

lease::~lease() {
  if (generation_ == 0) return;
  const auto held = hold_;
  if (!held->is_current(generation_)) return;  // lost: announced already
  if (auto done =
          held->release(std::exchange(generation_, 0), core::hold::confirmation::not_awaited);
      !done)
    held->core->tell_release_failed(held->name, done.error());
}

bool lease::valid() const noexcept { return valid_for(nanoseconds::zero()); }

bool lease::valid_for(nanoseconds work) const noexcept {
  if (generation_ == 0 || !hold_->core->usable_here()) return false;
  const auto now = hold_->core->clock().now();
  if (work > steady_time::max() - now) return false;
  return hold_->valid_at(generation_, now + work);
}

steady_time lease::valid_until() const noexcept {
  if (generation_ == 0 || !hold_->is_current(generation_)) return steady_time::min();
  return core::from_ns(hold_->valid_until.load(std::memory_order_relaxed));
}

const std::string& lease::name() const noexcept { return hold_ ? hold_->name : no_name; }

owner_id lease::owner() const noexcept {
  if (generation_ == 0) return {};
  const auto current = hold_->current_grant(generation_);
  return current ? current->owner : owner_id{};
}

lock_mode lease::mode() const noexcept {
  if (generation_ == 0) return {};
  const auto current = hold_->current_grant(generation_);
  return current ? current->mode : lock_mode{};
}

std::stop_token lease::lost() const {
  if (generation_ == 0) return {};
  return hold_->loss_token(generation_);
}

result<void> lease::release() {
  if (generation_ == 0) return core::nothing_held();
  const auto held = std::exchange(hold_, nullptr);
  return held->release(std::exchange(generation_, 0));
}

result<void> lease::renew() {
  if (generation_ == 0) return core::nothing_held();
  if (!hold_->core->usable_here()) return hold_->core->forked_error();
  return hold_->core->renew_now(*hold_, generation_);
}

result<owner_id> lease::leave_behind() { return core::leave_behind(*this); }

async<void> lease::async_release() { return core::async_release(*this); }

async<void> lease::async_renew() { return core::async_renew(*this); }

}  // namespace holdfast
