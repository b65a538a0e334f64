// Servers that are asked where others are: the sentinels of a master, the nodes of a cluster. All are asked at the same
// time, each over a connection of its own that stays open.
//
// Everything here is of the reactor's thread, but for the destructor.
#pragma once

#include "engines/redis/command.hpp"
#include "engines/redis/settings.hpp"
#include "net/channel.hpp"
#include "net/reactor.hpp"

#include <holdfast/result.hpp>
#include <holdfast/types.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::engines::redis {

class peers {
 public:
  // What a peer tells unasked, and that a connection to it is up.
  class listener {
   public:
    virtual void on_told(std::string_view message) { static_cast<void>(message); }
    virtual void on_peer_up() {}

   protected:
    ~listener() = default;
  };
  explicit peers(net::reactor& on, listener* hears = nullptr);
  ~peers();  // waits until nothing calls back any more
  peers(const peers&) = delete;
  peers& operator=(const peers&) = delete;

  // `topic`: the channel to whose messages the listener listens; empty: none, and then the connection is made when it
  // is needed first.
  void add(const settings& how, std::string_view topic = {});
  std::size_t size() const noexcept { return all_.size(); }
  const settings& how(std::size_t which) const;
  // The others are asked no more. Not while one of them calls us.
  void keep(const std::function<bool(const settings&)>& wanted);

  // By peer. Nothing: not answered yet.
  using answers = std::vector<std::optional<result<answer>>>;
  using judge = std::function<bool(const answers&)>;
  // `done` is called once: when all have answered or were given up, or is_enough says that the others do not matter.
  void ask(const command& what, nanoseconds patience, judge is_enough,
           std::function<void(const answers&)> done);

 private:
  class peer;
  class round;
  class asked;

  net::reactor& reactor_;
  listener* const listener_;
  std::vector<std::unique_ptr<peer>> all_;
};

// How many have answered, and not with an error.
std::size_t answered(const peers::answers& got);

}  // namespace holdfast::engines::redis
