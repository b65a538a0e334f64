#include "net/blocked_call.hpp"

namespace holdfast::net {

void follower_list::add(blocked_call& call) noexcept {
  call.is_follower = true;
  call.older = newest_;
  call.newer = nullptr;
  if (newest_ != nullptr) newest_->newer = &call;
  newest_ = &call;
}

void follower_list::remove(blocked_call& call) noexcept {
  if (!call.is_follower) return;
  call.is_follower = false;
  if (call.older != nullptr) call.older->newer = call.newer;
  (call.newer != nullptr ? call.newer->older : newest_) = call.older;
}

blocked_call* follower_list::take_newest() noexcept {
  auto* const call = newest_;
  if (call != nullptr) remove(*call);
  return call;
}

}  // namespace holdfast::net
