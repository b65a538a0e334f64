// What comes in: cut into frames, and given to the calls in their order.
#include "net/ordered_protocol.hpp"

#include <fmt/format.h>

#include <utility>

namespace holdfast::net {

using urgency = protocol_events::urgency;

// Without the mutex: only the reader is here, and parsing takes its time.
void ordered_protocol::parse(std::string_view bytes) {
  frames_.clear();
  framed_bytes_ = 0;
  broken_.reset();
  while (framed_bytes_ < bytes.size()) {
    const auto next = framing_->next(bytes.substr(framed_bytes_));
    if (!next) {
      broken_ = next.error();
      return;
    }
    if (next->length == 0) break;
    frames_.push_back({bytes.substr(framed_bytes_, next->length), next->push});
    framed_bytes_ += next->length;
  }
}

std::size_t ordered_protocol::receive(std::string_view bytes, protocol_events& out) {
  static_cast<void>(bytes);  // parse() has seen them
  if (!is_greeted_) {
    receive_greeting(out);
    return framed_bytes_;
  }
  ++received_;
  out.failure = receive_frames(out);
  if (!out.failure && broken_)
    out.failure = error{errc::protocol, fmt::format("{} sent what is not its protocol ({})",
                                                    server(), broken_->message())};
  return framed_bytes_;
}

// ---- Greeting --------------------------------------------------------------------------------------------------

void ordered_protocol::receive_greeting(protocol_events& out) {
  for (const auto& [bytes, push] : frames_) {
    if (push) {
      callbacks_.push(bytes);
    } else {
      greeting_answer_.append(bytes);
      ++greeting_frames_;
    }
  }
  out.failure = judge_greeting(out);
}

std::optional<error> ordered_protocol::judge_greeting(protocol_events& out) {
  if (broken_)
    return unreachable(server(), errc::protocol,
                       fmt::format("it sent what is not its protocol ({})", broken_->message()));
  const bool is_refused = greeting_frames_ > 0 && options_->greeting_is_refused &&
                          options_->greeting_is_refused(greeting_answer_);
  if (greeting_frames_ < options_->greeting_replies && !is_refused) return std::nullopt;
  // First what they say: a refusal may come as an answer where an accepted request has none (SUBSCRIBE).
  if (options_->greeted) {
    if (const auto verdict = options_->greeted(greeting_answer_); !verdict) return verdict.error();
  }
  if (greeting_frames_ > options_->greeting_replies)
    return unreachable(server(), errc::protocol,
                       "it sent more answers to the greeting than it was asked for");
  out.greeted = is_greeted_ = true;
  return std::nullopt;
}

// ---- Replies ---------------------------------------------------------------------------------------------------

std::optional<error> ordered_protocol::receive_frames(protocol_events& out) {
  for (const auto& [bytes, push] : frames_) {
    if (push) {
      callbacks_.push(bytes);
      out.callbacks(urgency::now);
      continue;
    }
    finish_front(out);
    if (pending_.empty() || !pending_.maybe_sent(pending_.front()))
      return error{errc::protocol,
                   fmt::format("{} sent an answer that was not asked for", server())};
    auto& first = pending_.front();
    if (--first.missing == 0) {
      finish(first, bytes, out);
      pending_.pop_front();
    } else if (first.caller != nullptr) {
      first.caller->into.append(bytes);
    } else if (first.handler != nullptr) {
      first.frames.append(bytes);
    }
  }
  finish_front(out);
  return std::nullopt;
}

void ordered_protocol::finish(pending_reply& which, std::string_view last, protocol_events& out) {
  if (which.caller != nullptr) {
    which.caller->into.append(last);
    out.done(*which.caller);
  } else if (which.handler != nullptr) {
    if (which.frames.empty()) {
      callbacks_.reply(*which.handler, last);
    } else {
      callbacks_.reply(*which.handler, which.frames.append(last));
    }
    out.callbacks(which.urgent ? urgency::now : urgency::soon);
  }
}

void ordered_protocol::finish_front(protocol_events& out) {
  while (!pending_.empty() && pending_.front().missing == 0) {
    auto& first = pending_.front();
    if (!first.withdrawn && !pending_.is_taken(first)) return;
    finish(first, {}, out);
    pending_.pop_front();
  }
}

}  // namespace holdfast::net
