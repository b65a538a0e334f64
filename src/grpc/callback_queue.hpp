// Callbacks that are due to handlers and listeners. Collected by the reading thread, run by the reactor's thread, in
// the order in which they were collected.
#pragma once

#include "grpc/channel.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace holdfast::grpc {

class callback_queue {
 public:
  bool empty() const noexcept { return items_.empty(); }
  std::size_t bytes() const noexcept { return bytes_; }
  void clear() noexcept {
    items_.clear();
    bytes_ = 0;
  }

  void reply_to(reply_handler& to, result<reply> what) {
    items_.push_back({.handler = &to, .what = std::move(what)});
  }
  void message(stream_listener& to, std::string_view what) {
    auto& made = items_.emplace_back(item{.listener = &to});
    made.what->body = what;
    bytes_ += what.size();
  }
  void end(stream_listener& of, result<reply> why) {
    items_.push_back({.listener = &of, .is_end = true, .what = std::move(why)});
  }

  void run() {
    for (auto& due : items_) {
      if (due.handler != nullptr) {
        due.handler->on_reply(std::move(due.what));
      } else if (due.is_end) {
        due.listener->on_end(std::move(due.what));
      } else {
        due.listener->on_message(due.what->body);
      }
    }
  }

 private:
  struct item {
    reply_handler* handler = nullptr;
    stream_listener* listener = nullptr;
    bool is_end = false;
    result<reply> what = reply{};
  };
  std::vector<item> items_;
  std::size_t bytes_ = 0;
};

}  // namespace holdfast::grpc
