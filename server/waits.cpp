#include "waits.hpp"

#include "json_text.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace holdfast::server {

namespace {

constexpr std::size_t most_edges = 20'000;

bool goes_with(lock_mode a, lock_mode b) noexcept {
  const auto reads = [](lock_mode mode) {
    return mode == lock_mode::shared || mode == lock_mode::upgradeable;
  };
  return reads(a) && reads(b) && (a == lock_mode::shared || b == lock_mode::shared);
}

class graph_builder {
 public:
  explicit graph_builder(const std::array<std::uint64_t, 2>& own) : own_(own) {}

  void add(const lock_info& lock) {
    std::vector<std::size_t> queue;
    for (std::size_t i = 0; i < lock.waiters.size(); ++i) {
      const auto& waiter = lock.waiters[i];
      const auto from = place_of(waiter);
      bool blocked = false;
      for (const auto& holder : lock.holders)
        if (!goes_with(waiter.mode, holder.mode)) {
          blocked = true;
          connect(from, place_of(holder), lock.name);
        }
      for (std::size_t before = 0; !blocked && before < i; ++before)
        if (!goes_with(waiter.mode, lock.waiters[before].mode))
          connect(from, queue[before], lock.name);
      queue.push_back(from);
    }
  }
  wait_graph take() { return std::move(out_); }

 private:
  using identity = std::tuple<std::string, std::int64_t, std::string, std::string>;

  std::size_t place_of(const holder_info& of) {
    const bool is_ours = of.owner.client == own_ || of.owner == owner_id{};
    std::string owner;
    if (of.label.empty() && is_ours)
      owner =
          of.owner == owner_id{} ? "waiting " + std::to_string(++nameless_) : to_string(of.owner);
    if (of.host.empty() && of.pid == 0)
      owner = of.owner_text.empty() ? to_string(of.owner) : of.owner_text;
    const auto [it, is_new] =
        places_.try_emplace({of.host, of.pid, of.label, owner}, out_.actors.size());
    if (is_new) out_.actors.push_back({of.host, of.pid, of.label, owner});
    return it->second;
  }
  void connect(std::size_t from, std::size_t to, const std::string& name) {
    if (out_.waits.size() < most_edges)
      out_.waits.push_back({from, to, name});
    else
      out_.is_cut = true;
  }

  const std::array<std::uint64_t, 2>& own_;
  wait_graph out_;
  std::map<identity, std::size_t> places_;
  std::size_t nameless_ = 0;
};

// Tarjan's strongly connected components, without recursion: a chain of waiters may be long.
class circle_finder {
 public:
  explicit circle_finder(const wait_graph& in) : next_(in.actors.size()), state_(in.actors.size()) {
    for (const auto& each : in.waits)
      if (each.from != each.to) next_[each.from].push_back(each.to);
  }
  std::vector<std::vector<std::size_t>> find() {
    for (std::size_t node = 0; node < next_.size(); ++node)
      if (state_[node].number == 0) walk(node);
    std::ranges::sort(circles_);
    return std::move(circles_);
  }

 private:
  struct node_state {
    std::size_t number = 0, lowest = 0, edge = 0;
    bool on_stack = false;
  };

  void enter(std::size_t node) {
    state_[node].number = state_[node].lowest = ++counter_;
    state_[node].on_stack = true;
    stack_.push_back(node);
    path_.push_back(node);
  }
  void walk(std::size_t root) {
    enter(root);
    while (!path_.empty()) {
      const auto node = path_.back();
      auto& at = state_[node];
      if (at.edge < next_[node].size()) {
        const auto to = next_[node][at.edge++];
        if (state_[to].number == 0)
          enter(to);
        else if (state_[to].on_stack)
          at.lowest = std::min(at.lowest, state_[to].number);
        continue;
      }
      path_.pop_back();
      if (!path_.empty()) {
        auto& before = state_[path_.back()];
        before.lowest = std::min(before.lowest, at.lowest);
      }
      if (at.lowest == at.number) close(node);
    }
  }
  void close(std::size_t node) {
    std::vector<std::size_t> circle;
    std::size_t last = 0;
    do {
      last = stack_.back();
      stack_.pop_back();
      state_[last].on_stack = false;
      circle.push_back(last);
    } while (last != node);
    if (circle.size() < 2) return;
    std::ranges::sort(circle);
    circles_.push_back(std::move(circle));
  }

  std::vector<std::vector<std::size_t>> next_;
  std::vector<node_state> state_;
  std::vector<std::size_t> stack_, path_;
  std::vector<std::vector<std::size_t>> circles_;
  std::size_t counter_ = 0;
};

}  // namespace

wait_graph waits_of(std::span<const lock_info> locks, const std::array<std::uint64_t, 2>& own) {
  graph_builder builder{own};
  for (const auto& lock : locks) builder.add(lock);
  auto out = builder.take();
  out.cycles = circle_finder{out}.find();
  return out;
}

std::string json_of(const wait_graph& graph) {
  json_array actors, waits, cycles;
  for (std::size_t i = 0; i < graph.actors.size(); ++i) {
    const auto& each = graph.actors[i];
    actors.add_json(json_object{}
                        .add("id", i)
                        .add("host", each.host)
                        .add("pid", each.pid)
                        .add("label", each.label)
                        .add("owner", each.owner)
                        .text());
  }
  for (const auto& each : graph.waits)
    waits.add_json(
        json_object{}.add("from", each.from).add("to", each.to).add("name", each.name).text());
  for (const auto& circle : graph.cycles) {
    json_array places;
    for (const auto place : circle) places.add_json(std::to_string(place));
    cycles.add_json(places.text());
  }
  return json_object{}
      .add_json("actors", actors.text())
      .add_json("waits", waits.text())
      .add_json("cycles", cycles.text())
      .add("cut", graph.is_cut)
      .text();
}

}  // namespace holdfast::server
