#include "net/caller.hpp"

namespace holdfast::net {

void waiting_callers::add(caller& who) noexcept {
  who.waiting = true;
  who.older = newest_;
  who.newer = nullptr;
  if (newest_ != nullptr) newest_->newer = &who;
  newest_ = &who;
}

void waiting_callers::remove(caller& who) noexcept {
  if (!who.waiting) return;
  who.waiting = false;
  if (who.older != nullptr) who.older->newer = who.newer;
  (who.newer != nullptr ? who.newer->older : newest_) = who.older;
}

caller* waiting_callers::take_newest() noexcept {
  auto* const who = newest_;
  if (who != nullptr) remove(*who);
  return who;
}

}  // namespace holdfast::net
