// Callbacks that are due: replies and failures for handlers, news for the listener. Collected by the reading thread,
// run by the reactor's thread, in the order in which they were collected.
#pragma once

#include "net/channel.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::net {

class callback_queue {
 public:
  bool empty() const noexcept { return items_.empty(); }
  void clear() noexcept {
    items_.clear();
    bytes_.clear();
  }

  // A copy: the reader's buffer will not be there any more.
  void reply(reply_handler& to, std::string_view frames) { add(kind::reply, frames).to = &to; }
  void failure(reply_handler& to, error why) {
    auto& made = add(kind::failure, {});
    made.to = &to;
    made.why = std::make_unique<error>(std::move(why));
  }
  void push(std::string_view frame) { add(kind::push, frame); }
  void up(std::uint64_t generation) { add(kind::up, {}).generation = generation; }
  void down(error why) { add(kind::down, {}).why = std::make_unique<error>(std::move(why)); }

  // `listener()` is asked anew for every item: a handler may close the channel.
  template <class Listener>
  void run(Listener&& listener) const noexcept {
    for (const auto& due : items_) {
      const auto bytes = std::string_view{bytes_}.substr(due.at, due.length);
      if (due.what == kind::reply) {
        due.to->on_reply(bytes);
      } else if (due.what == kind::failure) {
        due.to->on_reply(*due.why);
      } else if (channel_listener* const to = listener()) {
        if (due.what == kind::push) to->on_push(bytes);
        if (due.what == kind::up) to->on_up(due.generation);
        if (due.what == kind::down) to->on_down(*due.why);
      }
    }
  }

 private:
  enum class kind : std::uint8_t { reply, failure, push, up, down };
  struct item {
    kind what;
    std::size_t at;
    std::size_t length;
    std::uint64_t generation = 0;
    reply_handler* to = nullptr;
    std::unique_ptr<error> why{};
  };

  item& add(kind what, std::string_view bytes) {
    items_.push_back({what, bytes_.size(), bytes.size()});
    bytes_.append(bytes);
    return items_.back();
  }

  std::vector<item> items_;
  std::string bytes_;
};

}  // namespace holdfast::net
