// What happens to locks, for those who read it live, and for the history of a name.
//
// Own grants, releases and losses are told by the service itself; what other clients of the store do is seen by looking
// at the store twice a second while anybody reads.
#pragma once

#include "http.hpp"
#include "limits.hpp"

#include <holdfast/client.hpp>
#include <holdfast/engine.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::server {

enum class event_kind : std::uint8_t { granted, queued, released, lost, broken };
std::string_view to_string(event_kind kind) noexcept;

struct event {
  event_kind what = event_kind::granted;
  std::string name;
  std::uint64_t token = 0;  // 0: it has none
  std::string label;
  std::string host;
  std::int64_t pid = 0;
  std::string why{};
  std::int64_t at_ms = 0;  // of the wall clock; set by publish
};

class event_hub {
 public:
  event_hub(loop& on, client store, std::string host);
  event_hub(const event_hub&) = delete;
  event_hub& operator=(const event_hub&) = delete;
  ~event_hub();

  void publish(event one);
  // Answers the exchange with a stream of what concerns names that begin with both prefixes.
  void watch(const std::shared_ptr<exchange>& to, std::string key_prefix, std::string prefix,
             limits::place place);
  // JSON, an array: the last of this name, the oldest first.
  std::string history(std::string_view name) const;
  std::size_t readers() const noexcept { return readers_.size(); }
  void stop();
  // What the service tells by itself is not told again when it is seen in the store: what these owners hold, and, where
  // the service knows at once that it must wait, what they wait for.
  std::function<std::array<std::uint64_t, 2>()> own_client;

 private:
  struct reader {
    std::shared_ptr<event_stream> to;
    std::string key_prefix, prefix;
    limits::place place;
    bool is_greeted = false;
    std::optional<std::stop_callback<std::function<void()>>> on_gone;
  };
  using locks_or_nothing = std::optional<std::vector<lock_info>>;
  void greet(reader& who);
  void tell_soon(event one);
  void tell_all();
  void look_soon();
  void look();
  void looked(locks_or_nothing found);
  void compare(std::vector<lock_info> now);
  void remember(const event& one);

  loop& loop_;
  client store_;
  std::string host_;
  std::map<std::uint64_t, reader> readers_;  // by a running number
  std::uint64_t next_reader_ = 0;
  std::map<std::string, std::deque<event>, std::less<>> history_;
  std::deque<std::string> oldest_;  // names, in the order in which their history began
  std::optional<std::map<std::string, lock_info, std::less<>>>
      seen_;  // at the last look, of others
  bool is_looking_ = false;
  std::vector<event> untold_;
  std::size_t untold_bytes_ = 0;  // about
  std::unique_ptr<timer> next_telling_;
  std::chrono::nanoseconds telling_took_{0};  // the last time
  std::unique_ptr<timer> next_look_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace holdfast::server
