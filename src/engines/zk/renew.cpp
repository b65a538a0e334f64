// Renewals, heartbeats, the nodes that this client holds, and the end of a session.
#include "engines/zk/zk_engine.hpp"

#include <algorithm>

namespace holdfast::engines::zk {

namespace {

using namespace std::chrono_literals;
using jute::code;

// A lock that is held for longer than that has its node watched: it may be taken away from us.
constexpr nanoseconds watched_after = 150ms;
constexpr nanoseconds ends_within = 30s;

}  // namespace

// ---- renewals

// Held is what we know to hold, in the session that was last proven: the watches tell us of a node of ours that goes.
void zk_engine::conclude_renewal(std::span<renewal> batch, const session_view& now) {
  const auto time = clock_.now();
  for (auto& renewed : batch) {
    const auto own = entries_.find(renewed.held->owner);
    renewed.answer = renewal::verdict::lost;
    if (!own) continue;
    const auto lock = entries_.lock();
    if (own->is != own_entry::state::holding || own->session != now.number) continue;
    renewed.answer = renewal::verdict::held;
    renewed.valid_from = time;
    renewed.session = now.proof(caps_.longest_validity);
    own->until = time + renewed.held->ttl;
  }
}

// Proof: a majority agrees that each very node is there. Without leases a ping will do: a lock that is taken meanwhile
// is asked for later than that, and brings its own proof.
operation<session_proof> zk_engine::do_renew(std::span<renewal> leases, invocation how) {
  bool has_any = false;
  std::vector<std::pair<renewal*, std::vector<std::string>>> asked;
  std::vector<renewal*> unsure;
  batch out;
  {
    const auto lock = entries_.lock();
    has_any = !entries_.all().empty();
  }
  for (auto& renewed : leases) {
    const auto own = entries_.find(renewed.held->owner);
    if (!own) continue;
    const auto lock = entries_.lock();
    auto nodes = own->holds_by();
    if (nodes.empty() || own->is != own_entry::state::holding) continue;
    if (!own->moving_to.empty()) {
      unsure.push_back(&renewed);  // by which node it holds
      continue;
    }
    out.multi([&](jute::multi& all) {
      for (const auto& path : nodes) all.check(path);
    });
    asked.emplace_back(&renewed, std::move(nodes));
  }
  if (asked.empty()) {
    if (has_any) {
      out.agree(ensemble_->root());
    } else {
      out.ping();
    }
  }
  if (layout_.is_plain)  // a node at that path may be another owner's
    for (const auto& [renewed, nodes] : asked) out.get(nodes.front());
  auto got = co_await ensemble_->ask(out, how);
  if (!got) co_return as_reading(std::move(got).error());
  auto now = ensemble_->current();
  if (now.number == 0 || got->session != now.number)
    co_return error{errc::unavailable, how_.url + ": the session ended meanwhile."};
  {
    // Looked at again: a lock that was taken meanwhile must not count on what one server says by itself.
    const auto lock = entries_.lock();
    has_any = has_any || !entries_.all().empty();
  }
  if (!has_any) now.proven = std::max(now.proven, got->sent);
  conclude_renewal(leases, now);
  for (auto* renewed : unsure) renewed->answer = renewal::verdict::unknown;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    auto why = jute::failure_of((*got)[i]);
    if (why == code::ok && layout_.is_plain &&
        !is_plain_node_of(asked[i].first->held->owner, (*got)[asked.size() + i]))
      why = code::no_node;
    if (why == code::ok) continue;
    auto& [renewed, nodes] = asked[i];
    renewed->answer = why == code::no_node ? renewal::verdict::lost : renewal::verdict::unknown;
    if (why != code::no_node) continue;
    if (const auto own = entries_.find(renewed->held->owner))
      ensemble_->driver().post(
          [this, own, gone = nodes.front()] { on_own_node(own, gone, watches::news::gone); });
  }
  co_return now.proof(caps_.longest_validity);
}

// Upkeep, unless proof is asked for: we hear of it when a node of ours is removed, and the store does not know the ttl.
// So what is known of the session says enough about a lease; a heartbeat asks for a new proof.
void zk_engine::start_renew(std::span<renewal> leases, const call& limits,
                            completion<session_proof>& done) noexcept {
  const auto known = ensemble_->current();
  if (leases.empty() || known.number == 0 || std::ranges::any_of(leases, &renewal::must_ask))
    return remote_engine::start_renew(leases, limits, done);
  conclude_renewal(leases, known);
  done.complete(known.proof(caps_.longest_validity));
}

// ---- the own nodes

void zk_engine::plan_tick() {
  {
    const std::lock_guard lock{grants_guard_};
    if (ending_ || std::exchange(tick_planned_, true)) return;
  }
  ensemble_->driver().at(std::chrono::steady_clock::now() + watched_after, [this] { tick(); });
}

// Its node is watched as soon as it was held for a while. Whoever says that a lock is granted says this, too.
void zk_engine::note_new_grant(const mine& own) {
  {
    const std::lock_guard lock{grants_guard_};
    new_grants_.emplace_back(std::chrono::steady_clock::now(), own);
  }
  plan_tick();
}

// Most locks are given back before that.
void zk_engine::tick() {
  if (ending_) return;
  std::vector<mine> due;
  bool more = false;
  {
    const std::lock_guard lock{grants_guard_};
    tick_planned_ = false;
    const auto before = std::chrono::steady_clock::now() - watched_after;
    while (!new_grants_.empty() && new_grants_.front().first <= before) {
      if (auto own = new_grants_.front().second.lock()) due.push_back(std::move(own));
      new_grants_.pop_front();
    }
    more = !new_grants_.empty();
  }
  for (const auto& own : due) watch_own(own);
  end_forgotten();
  {
    const auto lock = entries_.lock();
    more = more || !entries_.all().empty();
  }
  if (more) plan_tick();
}

// What core does not renew any more goes, although the session lives: its ttl is over.
void zk_engine::end_forgotten() {
  const auto now = clock_.now();
  if (now < look_for_forgotten_at_) return;
  look_for_forgotten_at_ = now + 500ms;
  std::vector<mine> over;
  {
    const auto lock = entries_.lock();
    for (const auto& [number, own] : entries_.all())
      if (own->is == own_entry::state::holding && own->until != steady_time{} && own->until < now)
        over.push_back(own);
  }
  const auto session = ensemble_->current().number;
  for (const auto& own : over) {
    if (!entries_.begin_release(*own)) continue;  // another verb takes it away
    batch out;
    {
      const auto lock = entries_.lock();
      if (layout_.is_plain && session != 0 && own->session != session)
        own->path.clear();  // gone with its session
      if (layout_.is_plain && own->has_nodes()) {
        out.only_over = ensemble_->connection_in(own->session);
        if (out.only_over == 0) {
          entries_.end_release(*own, now + 1s);
          continue;
        }
      }
      for (const auto& path : own->all_nodes()) out.erase(path);
      own->is_erased = true;
    }
    if (out.size() == 0) {
      forget(own);
      continue;
    }
    listener_.on_lost(own->owner, "its time is over, and it was not renewed");
    ensemble_->ask_in_background(std::move(out), 5s, [this, own](const result<answers>& said) {
      const auto is_gone = [](const jute::reply& one) {
        return one.err == code::ok || one.err == code::no_node;
      };
      if (said && std::ranges::all_of(said->all, is_gone)) return forget(own);
      const auto lock = entries_.lock();
      entries_.end_release(*own, clock_.now() + 1s);  // again, then
    });
  }
}

// Of a holder; and of a waiter that will hold without another question as soon as the one before it goes: by then it
// must have heard if its own node has gone. (The server tells of changes in their order.)
void zk_engine::watch_own(const mine& own) {
  if (ending_) return;  // it would be refused at once, and be asked for again, and so on
  std::vector<std::string> nodes;
  {
    const auto lock = entries_.lock();
    const bool will_hold = own->is == own_entry::state::waiting && own->is_next;
    if ((own->is != own_entry::state::holding && !will_hold) || own->is_watched ||
        !own->moving_to.empty())
      return;
    nodes = own->holds_by();
    own->is_watched = !nodes.empty();
  }
  const std::weak_ptr<own_node> weak{own};
  for (const auto& path : nodes)
    watches_->watch(watches::on::node, path, own->owner.sequence | own_watch,
                    [this, weak, path](watches::news what) {
                      const auto still = weak.lock();
                      if (!still) return;
                      if (layout_.is_plain) return on_plain_node(still, path);
                      on_own_node(still, path, what);
                    });
}

// A plain node may have been deleted by its owner before us, of the same client: the watch is of the path.
void zk_engine::on_plain_node(const mine& own, const std::string& path) {
  batch ask;
  ask.get(path);
  ensemble_->ask_in_background(std::move(ask), 5s, [this, own, path](const result<answers>& said) {
    const bool is_gone = said && !is_plain_node_of(own->owner, (*said)[0]);
    on_own_node(own, path, is_gone ? watches::news::gone : watches::news::changed);
  });
}

// On the reactor's thread.
void zk_engine::on_own_node(const mine& own, const std::string& path, watches::news what) {
  const bool is_gone = what == watches::news::gone;
  bool holds = false;
  batch rest;
  {
    const auto lock = entries_.lock();
    holds = own->is == own_entry::state::holding;
    if (!holds && own->is != own_entry::state::waiting) return;
    if (ending_ || !own->moving_to.empty() || std::ranges::count(own->holds_by(), path) == 0)
      return;
    own->is_watched = false;
    if (!holds) {
      own->is_next = false;
      if (is_gone) own->path.clear();
    } else if (is_gone) {
      own->is = own_entry::state::releasing;
      entries_.drop(*own);
      for (const auto& left : own->all_nodes())
        if (left != path) rest.erase(left);
    }
  }
  if (rest.size() > 0)  // the others of its permits, or its place
    ensemble_->ask_in_background(std::move(rest), ends_within, [](const result<answers>&) {});
  if (!holds) return waits_->look_again(own->owner.sequence);
  if (!is_gone) return watch_own(own);
  listener_.on_lost(own->owner, "its node in ZooKeeper was deleted");
}

// ---- connections and sessions

// The same session: what was watched is watched again, and every node that we hold is looked at. What has happened
// meanwhile is told in any order: so a waiter whose turn comes looks at the queue.
void zk_engine::on_connected(bool is_same_session, std::int64_t since) noexcept {
  if (!is_same_session) return;
  std::vector<mine> holders;
  {
    const auto lock = entries_.lock();
    for (const auto& [number, own] : entries_.all()) {
      if (own->is == own_entry::state::holding) holders.push_back(own);
      own->is_next = false;
    }
  }
  watches_->set_again(since);
  for (const auto& own : holders) watch_own(own);
}

void zk_engine::on_session_over(const session_view& gone, std::string_view why) noexcept {
  std::vector<std::uint64_t> waiting;
  {
    const auto lock = entries_.lock();
    std::vector<mine> holders;
    for (const auto& [number, own] : entries_.all()) {
      if (own->session > gone.number || own->is == own_entry::state::releasing) continue;
      if (own->is == own_entry::state::holding) {
        holders.push_back(own);
      } else {
        waiting.push_back(number);
        own->path.clear();  // it comes again, to the end of the queue
        own->permits.clear();
      }
    }
    for (const auto& own : holders) {
      own->is = own_entry::state::releasing;
      entries_.drop(*own);
    }
  }
  listener_.on_session_lost(gone.number, why);
  watches_->tell_all();
  for (const auto number : waiting) waits_->look_again(number);
}

}  // namespace holdfast::engines::zk
