#include "net/order.hpp"

#include <utility>

namespace holdfast::net {

std::uint64_t order::add(place what, std::string_view request) {
  what.begin = picked_ + out_.size();
  what.length = request.size();
  if (what.urgent) ++urgent_;
  places_.push_back(std::move(what));
  out_.append(request);
  return first_ + places_.size() - 1;
}

void order::pop_front() {
  const auto& gone = places_.front();
  if (gone.is_hole() && !gone.withdrawn) --holes_;
  if (gone.urgent) --urgent_;
  places_.pop_front();
  ++first_;
}

place* order::find(std::uint64_t number) noexcept {
  if (number < first_ || number - first_ >= places_.size()) return nullptr;
  return &places_[number - first_];
}

bool order::give_up(place& which) {
  which.caller = nullptr;
  which.handler = nullptr;
  which.frames.clear();
  if (std::exchange(which.urgent, false)) --urgent_;
  if (which.begin < picked_) {
    ++holes_;
    return false;
  }

  // Nobody has seen a byte of it, so it is taken out, and what comes behind it moves up.
  out_.erase(which.begin - picked_, which.length);
  for (auto& later : places_)
    if (later.begin > which.begin) later.begin -= which.length;
  which.missing = 0;
  which.length = 0;
  which.withdrawn = true;
  return true;
}

void order::pick_up(std::string& chunk) {
  chunk.clear();
  chunk.swap(out_);
  picked_ += chunk.size();
  touched_ = picked_;
}

void order::clear() {
  places_.clear();
  out_.clear();
  holes_ = urgent_ = 0;
}

}  // namespace holdfast::net
