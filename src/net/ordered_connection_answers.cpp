// What comes in: cut into frames, and handed to whom it belongs.
#include "net/ordered_connection.hpp"

#include <fmt/format.h>

#include <utility>

namespace holdfast::net {

// ---- Greeting --------------------------------------------------------------------------------------------------

result<bool> ordered_connection::greeted() {
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

void ordered_connection::take_greeting() {
  for (const auto& [bytes, push] : pieces_) {
    if (push) {
      lock locked{guard_};
      callbacks_.push(bytes);
    } else {
      greeting_answer_.append(bytes);
      ++greeting_frames_;
    }
  }
  read_buffer_.consume(cut_bytes_);
}

// ---- Handing out -----------------------------------------------------------------------------------------------

// Without the mutex: only the reader touches the buffer, and parsing takes its time.
void ordered_connection::digest() { cut(); }

void ordered_connection::cut() {
  pieces_.clear();
  cut_bytes_ = 0;
  broken_.reset();
  const auto bytes = read_buffer_.view();
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

std::optional<error> ordered_connection::distribute(wake_list& woken) {
  auto wrong = distribute_pieces(woken);
  read_buffer_.consume(cut_bytes_);
  if (!wrong && broken_)
    wrong = error{errc::protocol, fmt::format("{} sent what is not its protocol ({})",
                                              description(), broken_->message())};
  return wrong;
}

std::optional<error> ordered_connection::distribute_pieces(wake_list& woken) {
  for (const auto& [bytes, push] : pieces_) {
    if (push) {
      callbacks_.push(bytes);
      if (reader_ == reader::caller) post_delivery();
      continue;
    }
    finish_front(woken);
    if (pending_.empty() || !pending_.maybe_sent(pending_.front()))
      return error{errc::protocol,
                   fmt::format("{} sent an answer that was not asked for", description())};
    auto& first = pending_.front();
    if (--first.missing == 0) {
      finish(first, bytes, woken);
      pending_.pop_front();
    } else if (first.caller != nullptr) {
      first.caller->into.append(bytes);
    } else if (first.handler != nullptr) {
      first.frames.append(bytes);
    }
  }
  finish_front(woken);
  return std::nullopt;
}

void ordered_connection::finish(pending_reply& which, std::string_view last, wake_list& woken) {
  if (which.caller != nullptr) {
    which.caller->into.append(last);
    complete(*which.caller, woken);
  } else if (which.handler != nullptr) {
    if (which.frames.empty()) {
      callbacks_.reply(*which.handler, last);
    } else {
      callbacks_.reply(*which.handler, which.frames.append(last));
    }
    // A handler's continuation never runs on another caller's thread.
    if (reader_ == reader::reactor) return;
    if (which.urgent) {
      post_delivery();
    } else {
      plan_tick();
    }
  }
}

void ordered_connection::finish_front(wake_list& woken) {
  while (!pending_.empty() && pending_.front().missing == 0) {
    auto& first = pending_.front();
    if (!first.withdrawn && !pending_.is_taken(first)) return;
    finish(first, {}, woken);
    pending_.pop_front();
  }
}

// Calls that expect no answer are done when they have left and everything before them is answered.
void ordered_connection::written(lock& locked) {
  if (pending_.empty() || pending_.front().missing > 0) return;
  wake_list woken;
  finish_front(woken);
  if (woken.empty()) return;
  locked.unlock();
  wake(woken);
  locked.lock();
}

}  // namespace holdfast::net
