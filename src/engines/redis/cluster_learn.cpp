// How a cluster learns which shard has which slot.
#include "engines/redis/cluster.hpp"
#include "engines/redis/engine.hpp"
#include "support/parker.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

namespace holdfast::engines::redis {

namespace {

using namespace std::chrono_literals;

// Less than the time for a connect: it is part of that.
constexpr nanoseconds node_patience = 500ms;
constexpr nanoseconds longest_opening = 5s;
constexpr std::size_t most_nodes_asked = 16;

}  // namespace

// ---- addresses

net::address cluster::address_of(const node_address& node) const {
  auto out = how_.where;
  out.host = node.host;
  out.port = node.port;
  if (out.use_tls && out.tls.server_name.empty()) out.tls.server_name = node.host;
  return out;
}

settings cluster::to_node(const node_address& node) const {
  settings out;
  out.where = address_of(node);
  out.url = fmt::format("the node {}:{}", node.host, node.port);
  out.user = how_.user;
  out.password = how_.password;
  return out;
}

// ---- asking

void cluster::on_redirected() {
  redirections_.fetch_add(1);
  if (refresh_is_posted_.exchange(true)) return;
  reactor_->post([this, open = is_open_] {
    if (!*open) return;
    refresh_is_posted_ = false;
    refresh([](const result<void>&) {});
  });
}

// The first question needs a connection, which may take longer than nodes are given for an answer. It is made all the
// same, and the next question finds it. When all have refused there is nothing to wait for.
result<void> cluster::learn_first() {
  const auto until = std::chrono::steady_clock::now() + longest_opening;
  for (;;) {
    const auto asked = std::chrono::steady_clock::now();
    std::optional<result<void>> learnt;
    support::parker done;
    reactor_->post([&] {
      refresh([&](const result<void>& outcome) {
        learnt.emplace(outcome);
        done.set(1);
      });
    });
    done.wait(steady_time::max());
    const auto now = std::chrono::steady_clock::now();
    if (*learnt || now - asked < node_patience || now >= until) return std::move(*learnt);
  }
}

void cluster::refresh(std::function<void(const result<void>&)> done) {
  if (!*is_open_) return done(not_done{errc::unavailable, "The client is being closed."});
  awaiting_map_.push_back(std::move(done));
  if (awaiting_map_.size() > 1) return;  // it is being asked for
  // By the time they answer the peers may be others.
  std::vector<std::string> hosts;
  for (std::size_t i = 0; i < peers_->size(); ++i) hosts.push_back(peers_->how(i).where.host);
  peers_->ask(
      command({"CLUSTER", "NODES"}), node_patience,
      [](const peers::answers& got) { return 2 * answered(got) > got.size(); },
      [this, hosts = std::move(hosts)](const peers::answers& got) { learn(got, hosts); });
}

void cluster::learn(const peers::answers& got, const std::vector<std::string>& hosts) {
  result<void> outcome;
  if (!*is_open_ || answered(got) == 0) {
    outcome = nobody_answers(got);
  } else {
    std::vector<std::vector<node_view>> views;
    for (std::size_t i = 0; i < got.size(); ++i)
      if (got[i] && *got[i]) views.push_back(read_nodes((*got[i])->values.front().text, hosts[i]));
    // By name, where the certificates are for names.
    if (how_.where.use_tls)
      for (auto& view : views)
        for (auto& node : view)
          if (!node.host_name.empty()) node.where.host = node.host_name;
    const cluster_map map{views};
    if (epochs_.refuses(map, std::chrono::steady_clock::now())) {
      outcome = not_done{errc::unavailable,
                         fmt::format("{}: the nodes that answer know less than was known before; "
                                     "they may be cut off from the others.",
                                     how_.url)};
    } else {
      apply(map);
    }
  }
  for (auto& tell : std::exchange(awaiting_map_, {})) tell(outcome);
}

error cluster::nobody_answers(const peers::answers& got) const {
  std::optional<error> why;
  for (const auto& said : got)
    if (said && !*said && (!why || why->code() == errc::unavailable)) why = said->error();
  const auto code = why && why->code() != errc::outcome_unknown ? why->code() : errc::unavailable;
  return not_done{code, fmt::format("{}: no node says how the cluster is made up{}{}", how_.url,
                                    why ? ". One of them: " : ".",
                                    why ? std::string_view{why->message()} : std::string_view{})};
}

// ---- a new map

void cluster::apply(const cluster_map& map) {
  share_out(map, match(map));
  meet(map);
}

// The shard of each master: the one that was there; or the one most of whose slots it has taken over, with what is
// still to be said about them; or one that had no slots; or a new one.
std::vector<std::size_t> cluster::match(const cluster_map& map) {
  constexpr auto none = static_cast<std::size_t>(-1);
  const auto& masters = map.masters();
  std::vector<std::size_t> out(masters.size(), none);
  std::vector<bool> is_taken(shards_.size(), false);
  const auto match_addresses = [&](bool used) {
    for (std::size_t m = 0; m < masters.size(); ++m)
      for (std::size_t s = 0; s < shards_.size() && out[m] == none; ++s)
        if (shards_[s]->where == masters[m].where && has_slots(s) == used && !is_taken[s]) {
          out[m] = s;
          is_taken[s] = true;
        }
  };
  match_addresses(true);
  for (std::size_t m = 0; m < masters.size(); ++m) {
    if (out[m] != none) continue;
    std::map<std::uint16_t, unsigned> shared;
    for (unsigned slot = 0; slot < slot_count; ++slot)
      if (const auto before = shard_of_slot_[slot];
          before != no_shard && !is_taken[before] && map.master_of(slot) == m)
        ++shared[before];
    const auto most =
        std::ranges::max_element(shared, {}, [](const auto& of) { return of.second; });
    if (most == shared.end()) continue;
    out[m] = most->first;
    is_taken[most->first] = true;
  }
  match_addresses(false);
  for (std::size_t m = 0; m < masters.size(); ++m)
    if (out[m] == none) out[m] = add_shard(masters[m].where, map.tags_of(m));
  return out;
}

bool cluster::has_slots(std::size_t number) const {
  const std::lock_guard lock{guard_};
  return is_used_[number];
}

std::size_t cluster::add_shard(const node_address& where, std::vector<unsigned> tags) {
  const auto number = shards_.size();
  auto place = std::make_shared<cluster_place>();
  place->reactor = reactor_.get();
  place->find_address = [this, number](net::address_found done) {
    if (!has_slots(number))
      return done(error{errc::unavailable, "This shard of the cluster has no slots any more."});
    refresh([this, number, done = std::move(done)](const result<void>&) {
      if (*is_open_) return done(address_of(shards_[number]->where));
      done(error{errc::unavailable, "The client is being closed."});
    });
  };
  place->on_redirected = [this] { on_redirected(); };
  place->tags = std::move(tags);
  auto how = how_;
  how.seeds.clear();
  how.where = address_of(where);
  how.in_cluster = std::move(place);
  auto made = std::make_unique<shard>();
  made->where = where;
  auto opened = open_layout(how, config_);
  if (!opened) {
    opening_failure_ = std::move(opened).error();
    return number;
  }
  made->verbs = std::move(*opened);
  const std::lock_guard lock{guard_};
  shards_.push_back(std::move(made));
  is_used_.push_back(true);
  return number;
}

void cluster::share_out(const cluster_map& map, const std::vector<std::size_t>& shard_of_master) {
  std::vector<std::vector<unsigned>> tags(shards_.size());
  std::vector<cluster_part*> moved;
  {
    const std::lock_guard lock{guard_};
    for (unsigned slot = 0; slot < slot_count; ++slot) {
      const auto master = map.master_of(slot);
      const auto which = master ? shard_of_master[*master] : no_shard;
      shard_of_slot_[slot] = which < shards_.size() ? static_cast<std::uint16_t>(which) : no_shard;
    }
    for (std::size_t m = 0; m < shard_of_master.size(); ++m) {
      if (shard_of_master[m] >= shards_.size()) continue;
      tags[shard_of_master[m]] = map.tags_of(m);
      auto& of = *shards_[shard_of_master[m]];
      if (of.where == map.masters()[m].where) continue;
      of.where = map.masters()[m].where;
      moved.push_back(of.verbs.get());
    }
    is_used_.assign(shards_.size(), false);
    for (const auto which : shard_of_master)
      if (which < shards_.size()) is_used_[which] = true;
    slots_missing_ = map.slots_without_master();
    masters_failed_ = static_cast<std::size_t>(std::ranges::count_if(
        map.masters(), [](const node_view& node) { return node.has_failed; }));
  }
  for (std::size_t i = 0; i < shards_.size(); ++i) shards_[i]->verbs->serve(std::move(tags[i]));
  for (auto* part : moved) part->leave_server("another server has its slots");
}

// ---- whom to ask next time

// The nodes that there are, and those of the address.
void cluster::meet(const cluster_map& map) {
  for (const auto& node : map.nodes()) {
    bool is_known = false;
    for (std::size_t i = 0; i < peers_->size(); ++i) {
      const auto& at = peers_->how(i).where;
      is_known = is_known || (at.host == node.host && at.port == node.port);
    }
    if (!is_known && peers_->size() < most_nodes_asked) peers_->add(to_node(node));
  }
  // Later: one of those that go may have called us.
  reactor_->post([this, open = is_open_, known = map.nodes()] {
    if (*open) forget_nodes_but(known);
  });
}

void cluster::forget_nodes_but(const std::vector<node_address>& known) {
  peers_->keep([&](const settings& peer) {
    const node_address at{peer.where.host, peer.where.port};
    const auto is_seed = [&](const settings& seed) {
      return seed.where.host == at.host && seed.where.port == at.port;
    };
    return std::ranges::binary_search(known, at) || std::ranges::any_of(how_.seeds, is_seed);
  });
}

}  // namespace holdfast::engines::redis
