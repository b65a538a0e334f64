// Who waits for whom, from what the store shows at one moment: a pure function.
//
// An actor is one client of the store (host and pid) with one label. What this service holds for a client without a
// label is an actor of its own: its process is ours, and says nothing.
#pragma once

#include <holdfast/engine.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace holdfast::server {

struct wait_graph {
  struct actor {
    std::string host;
    std::int64_t pid = 0;
    std::string label;
    std::string owner;  // of one that is known by its owner only
  };
  struct edge {
    std::size_t from = 0, to = 0;  // places in `actors`
    std::string name;
  };
  std::vector<actor> actors;
  std::vector<edge> waits;
  // Actors that wait for each other in a circle, each once; nobody in it goes on unless one gives up.
  std::vector<std::vector<std::size_t>> cycles;
  bool is_cut = false;  // there are more edges than are shown
};

// A waiter waits for the holders that it does not go with, or, if there is none, for those before it in the queue that
// it does not go with. An actor that waits for itself may be two threads of one program: no cycle.
wait_graph waits_of(std::span<const lock_info> locks, const std::array<std::uint64_t, 2>& own);

std::string json_of(const wait_graph& graph);

}  // namespace holdfast::server
