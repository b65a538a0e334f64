// Redis Sentinel: which server is the master now.
//
// A majority of the sentinels must have answered before any is believed, and of what they say the highest epoch counts:
// a sentinel that was cut off with an old master goes on naming it. They are asked before every connect, and tell of a
// change (+switch-master), upon which every connection is given up.
//
// That a server is named does not make it the master: it is asked for its ROLE, too, as part of the greeting.
#pragma once

#include "engines/redis/peers.hpp"
#include "engines/redis/sighting.hpp"
#include "net/address_provider.hpp"

#include <holdfast/engine.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::engines::redis {

class sentinels final : private peers::listener {
 public:
  // `on_switch`: the master is another one. On the reactor's thread.
  sentinels(const settings& how, net::reactor& on, std::function<void()> on_switch);

  // On the reactor's thread: from then on nothing is answered.
  void close() noexcept { *is_open_ = false; }
  // As an address_provider.
  void find(net::address_found done);
  // Not on the reactor's thread.
  std::vector<finding> diagnose();

 private:
  net::address address_of(const sighting& seen) const;
  std::optional<sighting> best_of(const peers::answers& got) const;  // of the highest epoch
  result<sighting> choose(const peers::answers& got);
  error too_few(const peers::answers& got) const;
  bool is_left(const sighting& seen) const;
  bool is_outdated(const sighting& seen);
  std::size_t majority() const noexcept { return how_.sentinels.size() / 2 + 1; }
  void look_again();
  command question() const;
  void ask(std::function<void(const peers::answers&)> done);
  std::vector<finding> judge(const peers::answers& got);
  void on_told(std::string_view message) override;
  void on_peer_up() override { look_again(); }

  const settings how_;
  net::reactor& reactor_;
  const std::function<void()> on_switch_;
  // Of the reactor's thread. What was asked may be answered after it is closed.
  const std::shared_ptr<bool> is_open_ = std::make_shared<bool>(true);
  std::uint64_t highest_epoch_ = 0;
  std::optional<steady_time> lower_since_;  // a majority has named a lower one
  std::optional<net::address> current_;     // what was found last
  // What a sentinel has told us to be over: the others learn of it a little later.
  std::optional<net::address> left_;
  steady_time left_until_{};
  peers peers_;  // goes first
};

}  // namespace holdfast::engines::redis
