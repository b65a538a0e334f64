// What comes in: cut into frames, and handed to whom it belongs.
#include "net/connection.hpp"

#include <fmt/format.h>

#include <utility>

namespace holdfast::net {

// ---- Greeting --------------------------------------------------------------------------------------------------

result<bool> connection::greeted() {
  cut();
  take_greeting();
  if (broken_)
    return unreachable(errc::protocol,
                       fmt::format("it sent what is not its protocol ({})", broken_->message()));
  if (greeting_frames_ < options_->greeting_replies) return false;
  // First what they say: a refusal may come as an answer where an accepted request has none (SUBSCRIBE).
  if (options_->greeted) {
    if (const auto verdict = options_->greeted(greeting_answer_); !verdict) return verdict.error();
  }
  if (greeting_frames_ > options_->greeting_replies)
    return unreachable(errc::protocol,
                       "it sent more answers to the greeting than it was asked for");
  return true;
}

void connection::take_greeting() {
  for (const auto& [bytes, push] : pieces_) {
    if (push) {
      lock locked{guard_};
      outbox_.push(bytes);
    } else {
      greeting_answer_.append(bytes);
      ++greeting_frames_;
    }
  }
  inbox_.consume(cut_bytes_);
}

// ---- Handing out -----------------------------------------------------------------------------------------------

// Without the mutex: only the reader touches the inbox, and parsing takes its time.
void connection::digest() { cut(); }

void connection::cut() {
  pieces_.clear();
  cut_bytes_ = 0;
  broken_.reset();
  const auto bytes = inbox_.view();
  while (cut_bytes_ < bytes.size()) {
    const auto next = framing_->next(bytes.substr(cut_bytes_));
    if (!next) {
      broken_ = next.error();
      return;
    }
    if (next->length == 0) break;
    pieces_.push_back({bytes.substr(cut_bytes_, next->length), next->push});
    cut_bytes_ += next->length;
  }
}

std::optional<error> connection::distribute(callers& woken) {
  auto wrong = distribute_pieces(woken);
  inbox_.consume(cut_bytes_);
  if (!wrong && broken_)
    wrong = error{errc::protocol, fmt::format("{} sent what is not its protocol ({})",
                                              description(), broken_->message())};
  return wrong;
}

std::optional<error> connection::distribute_pieces(callers& woken) {
  for (const auto& [bytes, push] : pieces_) {
    if (push) {
      outbox_.push(bytes);
      if (reader_ == reader::caller) post_delivery();
      continue;
    }
    finish_front(woken);
    if (order_.empty() || !order_.touched(order_.front()))
      return error{errc::protocol,
                   fmt::format("{} sent an answer that nobody asked for", description())};
    auto& first = order_.front();
    if (--first.missing == 0) {
      finish(first, bytes, woken);
      order_.pop_front();
    } else if (first.caller != nullptr) {
      first.caller->into.append(bytes);
    } else if (first.handler != nullptr) {
      first.frames.append(bytes);
    }
  }
  finish_front(woken);
  return std::nullopt;
}

void connection::finish(place& which, std::string_view last, callers& woken) {
  if (which.caller != nullptr) {
    which.caller->into.append(last);
    complete(*which.caller, woken);
  } else if (which.handler != nullptr) {
    if (which.frames.empty()) {
      outbox_.reply(*which.handler, last);
    } else {
      outbox_.reply(*which.handler, which.frames.append(last));
    }
    // A stranger's continuation never runs on a caller's thread.
    if (reader_ == reader::reactor) return;
    if (which.urgent) {
      post_delivery();
    } else {
      plan_tick();
    }
  }
}

void connection::finish_front(callers& woken) {
  while (!order_.empty() && order_.front().missing == 0) {
    auto& first = order_.front();
    if (!first.withdrawn && !order_.picked_up(first)) return;
    finish(first, {}, woken);
    order_.pop_front();
  }
}

// Calls that expect no answer are done when they have left and everything before them is answered.
void connection::written(lock& locked) {
  if (order_.empty() || order_.front().missing > 0) return;
  callers woken;
  finish_front(woken);
  if (woken.empty()) return;
  locked.unlock();
  wake(woken);
  locked.lock();
}

}  // namespace holdfast::net
