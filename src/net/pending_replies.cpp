#include "net/pending_replies.hpp"

#include <utility>

namespace holdfast::net {

std::uint64_t pending_replies::add(pending_reply what, std::string_view request) {
  what.begin = taken_ + out_.size();
  what.length = request.size();
  if (what.urgent) ++urgent_;
  replies_.push_back(std::move(what));
  out_.append(request);
  return first_ + replies_.size() - 1;
}

void pending_replies::pop_front() {
  const auto& gone = replies_.front();
  if (gone.is_abandoned() && !gone.withdrawn) --abandoned_;
  if (gone.urgent) --urgent_;
  replies_.pop_front();
  ++first_;
}

pending_reply* pending_replies::find(std::uint64_t number) noexcept {
  if (number < first_ || number - first_ >= replies_.size()) return nullptr;
  return &replies_[number - first_];
}

bool pending_replies::abandon(pending_reply& which) {
  which.caller = nullptr;
  which.handler = nullptr;
  which.frames.clear();
  if (std::exchange(which.urgent, false)) --urgent_;
  if (which.begin < taken_) {
    ++abandoned_;
    return false;
  }

  // No writer has a byte of it, so it is taken out, and what comes behind it moves up.
  out_.erase(which.begin - taken_, which.length);
  for (auto& later : replies_)
    if (later.begin > which.begin) later.begin -= which.length;
  which.missing = 0;
  which.length = 0;
  which.withdrawn = true;
  return true;
}

void pending_replies::take_output(std::string& chunk) {
  chunk.clear();
  chunk.swap(out_);
  taken_ += chunk.size();
  maybe_sent_ = taken_;
}

void pending_replies::clear() {
  replies_.clear();
  out_.clear();
  abandoned_ = urgent_ = 0;
}

}  // namespace holdfast::net
