// What an owner has, or waits for; giving it back; and asking what became of an unanswered request.
#include "engines/common/sentences.hpp"
#include "engines/zk/paths.hpp"
#include "engines/zk/zk_engine.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <chrono>

namespace holdfast::engines::zk {

namespace {

using namespace std::chrono_literals;
using jute::code;

// A waiter looks again after that, although it heard nothing.
constexpr auto recheck_after = 30s;
// A release whose fate is not known: core asks about it; if it does not, it ends after this.
constexpr auto left_to_core = 2s;

}  // namespace

// ---- answers

// For people: the name of the node says the rest.
std::string zk_engine::data_of(const own_node& own, bool is_candidate) const {
  if (is_candidate) return own.label;
  const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  return fmt::format("holdfast pid={} since={} session={} weight={} token={:x} host={} label={}",
                     pid_, now, ensemble_->current().length / 1ms, own.weight, own.token.value,
                     host_, own.label);
}

grant zk_engine::as_grant(std::string_view name, own_node& of, steady_time sent) const {
  grant out;
  out.name = name;
  out.owner = of.owner;
  out.mode = of.mode;
  out.weight = of.weight;
  out.token = of.token;
  out.ttl = of.ttl;
  out.valid_from = sent;
  const auto now = ensemble_->current();
  // Of an earlier session: worth nothing any more.
  out.session = now.number != 0 && now.number == of.session ? now.proof(caps_.longest_validity)
                                                            : session_proof{};
  of.until = out.valid_from + out.ttl;
  return out;
}

// The place in the queue is there, and nobody is before it. That was read from one server; that the session lives, and
// the node with it, must have been agreed to not long ago.
operation<entered> zk_engine::granted(const request& ask, mine own, steady_time sent,
                                      invocation how) {
  const auto known = ensemble_->current();
  if (clock_.now() - known.proven > believed_time(known.length) / 2) {
    batch agree;
    agree.agree(ensemble_->root());
    auto agreed = co_await ensemble_->ask(agree, how);
    if (!agreed) co_return failed(own, about(std::move(agreed).error(), ask.name));
    if (const auto why = why_not_agreed((*agreed)[0]); why != code::ok)
      co_return failed(own, refusal(why, ask.name, how_.url));
  }
  entered out;
  out.what = entered::kind::granted;
  {
    const auto lock = entries_.lock();
    if (!own->has_nodes() || own->session != ensemble_->current().number) co_return ask_again(ask);
    if (own->is != own_entry::state::holding) own->since = clock_.now();
    own->is = own_entry::state::holding;
    own->mode = ask.mode;
    own->weight = ask.weight;
    own->blocker.clear();
    out.granted = as_grant(ask.name, *own, sent);
  }
  waits_->forget(ask.owner.sequence);
  note_new_grant(own);
  co_return out;
}

// REQUIRES: entries_.lock() is held.
entered zk_engine::waiting(const request& ask, own_node& own, std::string blocker, watches::on kind,
                           bool is_next) {
  if (own.is != own_entry::state::waiting) own.since = clock_.now();
  own.is = own_entry::state::waiting;
  own.blocker = std::move(blocker);
  own.blocker_is = kind;
  own.is_next = is_next;
  entered out;
  out.what = entered::kind::waiting;
  out.waiting = ticket{ask.name, ask.owner, 0, clock_.now() + recheck_after};
  return out;
}

entered zk_engine::ask_again(const request& ask) const {
  entered out;
  out.what = entered::kind::waiting;
  out.waiting = ticket{ask.name, ask.owner, 0, clock_.now()};
  return out;
}

// A request failed. The entry goes only if nothing of it is, or may yet come, into the store; otherwise core, which
// would take a certain failure for just that, is told to ask.
error zk_engine::failed(const mine& own, error why) {
  {
    const auto lock = entries_.lock();
    if (!why.is_not_done()) own->in_doubt = true;
    if (own->in_doubt || own->has_nodes()) return {errc::outcome_unknown, why.message()};
  }
  forget(own);
  return why;
}

// A doubt: core asks what is there, and in which session it was made.
error zk_engine::session_changed(std::string_view name) const {
  return {errc::outcome_unknown,
          fmt::format("Lock {} on {}: the session changed while it was asked for.",
                      support::quoted(name), how_.url)};
}

error zk_engine::gone(std::string_view name, const owner_id& owner) const {
  return lock_not_held(name, how_.url, owner);
}

void zk_engine::forget(const mine& own) {
  waits_->forget(own->owner.sequence);
  std::string folder = folder_of(own->name);
  std::vector<std::string> folders;
  {
    const auto lock = entries_.lock();
    own->is = own_entry::state::releasing;  // a verb that still knows it leaves it alone
    entries_.drop(*own);
    if (own->mode == lock_mode::permits) {
      folders.push_back(fmt::format("{}/{}", folder, permits_segment));
      folders.push_back(fmt::format("{}/{}", folder, queue_segment));
    }
  }
  if (layout_.is_plain || layout_.has_lasting_folders) return;
  folders.push_back(std::move(folder));
  janitor_->note_used(std::move(folders));
}

// ---- giving back

// Whatever it has in the store goes; not_held: it had nothing there, and it was not we that took it away.
operation<void> zk_engine::remove(mine own, invocation how) {
  if (layout_.is_plain) co_return co_await remove_plainly(own, how);
  batch out;
  out.at_once = true;
  bool was_erased = false;
  lone_.give_back(folder_of(own->name), own->owner.sequence);
  {
    const auto lock = entries_.lock();
    for (const auto& path : own->all_nodes()) out.erase(path);
    was_erased = std::exchange(own->is_erased, true);
  }
  if (out.size() == 0) co_return gone(own->name, own->owner);
  auto got = co_await ensemble_->ask(out, how);
  if (!got) {
    if (got.error().is_not_done()) {
      const auto lock = entries_.lock();
      own->is_erased = was_erased;
    }
    co_return about(std::move(got).error(), own->name);
  }
  bool any = false;
  for (unsigned i = 0; i < out.size(); ++i) {
    if (!got->ok(i) && got->err(i) != code::no_node)
      co_return refusal(got->err(i), own->name, how_.url);
    any = any || got->ok(i);
  }
  {
    const auto lock = entries_.lock();
    own->path.clear();
    own->moving_to.clear();
    own->permits.clear();
  }
  if (!any && !was_erased) co_return gone(own->name, own->owner);
  co_return result<void>{};
}

// The same for what is not wanted: nothing is lost if it was gone already.
operation<void> zk_engine::take_back(mine own, invocation how) {
  auto away = co_await remove(own, how);
  if (!away && away.error().code() == errc::not_held) co_return result<void>{};
  co_return away;
}

operation<void> zk_engine::do_release(const grant& held, invocation how) {
  const auto own = entries_.find(held.owner);
  if (!own || !entries_.begin_release(*own))
    co_return co_await release_unlisted(held.name, held.owner, how);
  auto away = co_await remove(own, how);
  if (!away && away.error().code() != errc::not_held) {
    const auto lock = entries_.lock();
    entries_.end_release(*own, clock_.now() + left_to_core);
    co_return std::move(away).error();
  }
  forget(own);
  co_return away;
}

// Not in our entries: it was lost, or this is said again. Whatever the store has of this owner goes.
operation<void> zk_engine::release_unlisted(std::string_view name, owner_id owner, invocation how) {
  if (layout_.is_plain) {
    auto was_there = co_await erase_found_plainly(name, owner, how);
    if (!was_there) co_return std::move(was_there).error();
    if (!*was_there) co_return gone(name, owner);
    co_return result<void>{};
  }
  auto found = co_await find_nodes(name, owner, how);
  if (!found) co_return std::move(found).error();
  if (!found->any()) co_return gone(name, owner);
  batch out;
  if (!found->place.empty()) out.erase(found->place);
  for (const auto& path : found->permits) out.erase(path);
  auto got = co_await ensemble_->ask(out, how);
  if (!got) co_return about(std::move(got).error(), name);
  for (unsigned i = 0; i < out.size(); ++i)
    if (!got->ok(i) && got->err(i) != code::no_node) co_return refusal(got->err(i), name, how_.url);
  co_return result<void>{};
}

operation<void> zk_engine::do_leave(const ticket& place, invocation how) {
  const auto own = entries_.find(place.owner);
  bool certain = false;
  if (own) {
    const auto lock = entries_.lock();
    certain = !own->in_doubt && own->has_nodes();
  }
  if (!own || !certain) {
    auto away = co_await release_unlisted(place.name, place.owner, how);
    if (!away && away.error().code() != errc::not_held) co_return std::move(away).error();
  } else if (auto away = co_await take_back(own, how); !away) {
    co_return std::move(away).error();
  }
  if (own) forget(own);
  co_return result<void>{};
}

// ---- settling

// Asked after a change that a majority has agreed to, in this session: so whatever was sent before is carried out, or
// never will be (ensemble.hpp).
operation<zk_engine::found_nodes> zk_engine::find_nodes(std::string_view name, owner_id owner,
                                                        invocation how) {
  found_nodes out;
  if (layout_.is_plain) {
    auto place = co_await find_plainly(name, owner, how);
    if (!place) co_return std::move(place).error();
    out.place = std::move(place->path);
    co_return out;
  }
  const auto folder = folder_of(name);
  auto seen = co_await look(name, true, how);
  if (!seen) co_return std::move(seen).error();
  out.queue = std::move(seen->queue);
  out.overtaken = seen->overtaken;
  if (const auto* there = out.queue.find(owner)) out.place = folder + "/" + there->name;
  if (!layout_.has_permits) co_return out;
  auto semaphore = co_await look_at_semaphore(name, false, how);
  if (!semaphore) co_return std::move(semaphore).error();
  out.semaphore = std::move(*semaphore);
  if (const auto* there = out.semaphore.queue.find(owner))
    out.place = fmt::format("{}/{}/{}", folder, queue_segment, there->name);
  for (const auto& permit : out.semaphore.permits)
    if (permit.owner == owner)
      out.permits.push_back(fmt::format("{}/{}/{}", folder, permits_segment, permit.name));
  co_return out;
}

// Under the entries' lock: what we know of our own entry from now on is what the store has.
void zk_engine::take_found(own_node& own, const found_nodes& found, const struct jute::stat& node,
                           bool is_permit, const contender* there) const {
  own.path = found.place;
  own.permits = found.permits;
  own.in_doubt = false;
  own.session = ensemble_->number_of(node.ephemeral_owner);
  own.created = std::max(own.created, node.czxid);
  if (own.token.value == 0) own.token = {static_cast<std::uint64_t>(node.czxid)};
  if (own.ttl == nanoseconds::zero()) own.ttl = how_.session;  // core clears up: any will do
  own.mode = is_permit                                          ? lock_mode::permits
             : there != nullptr && there->wants == wish::shared ? lock_mode::shared
                                                                : lock_mode::exclusive;
  own.weight = is_permit                       ? std::max<std::uint64_t>(found.permits.size(), 1)
               : own.mode == lock_mode::shared ? 1
                                               : rw_capacity;
}

operation<entered> zk_engine::do_settle(const request& ask, invocation how) {
  const auto sent = clock_.now();
  auto found = co_await find_nodes(ask.name, ask.owner, how);
  if (!found) co_return as_reading(std::move(found).error());
  auto own = entries_.find(ask.owner);
  if (!found->any()) {
    if (own) forget(own);
    co_return entered{};
  }
  if (!own) own = entries_.find_or_make(ask);
  batch details;
  details.get(found->permits.empty() ? found->place : found->permits.front());
  auto got = co_await ensemble_->ask(details, how);
  if (!got) co_return as_reading(about(std::move(got).error(), ask.name));
  if (got->err(0) == code::no_node) co_return ask_again(ask);
  const auto node = jute::read_node((*got)[0].rest);
  if (!got->ok(0) || !node) co_return unexpected_answer(ask.name, how_.url);
  const auto* there = found->queue.find(ask.owner);
  const bool is_permit = there == nullptr && !layout_.is_plain;
  const bool is_first =
      layout_.is_plain || (is_permit ? found->place.empty() && found->semaphore.are_first(ask)
                                     : found->queue.holds(*there));
  entered out;
  {
    const auto lock = entries_.lock();
    take_found(*own, *found, node->stat, is_permit, there);
    // One that was overtaken while it waited needs a new token, one without a number of its own may not stay, and what
    // is a semaphore with another number is none of it: entering sees to all of that.
    const bool is_in_no_order =
        there != nullptr ? there->is_in_no_order() : found->semaphore.is_in_no_order(ask.owner);
    const bool is_overtaken = found->overtaken > own->created;
    const bool is_to_clear_up = ask.capacity == rw_capacity;  // then core does not know the number
    const bool is_other_use =
        is_permit && !is_to_clear_up && found->semaphore.capacity != ask.capacity;
    const bool is_new = own->is != own_entry::state::holding;
    if (!is_first || (is_new && (is_overtaken || is_in_no_order || is_other_use))) {
      out = waiting(ask, *own, {}, watches::on::node, false);
      out.waiting.recheck_at = clock_.now();
      co_return out;
    }
    own->is = own_entry::state::holding;
    out.what = entered::kind::granted;
    out.granted = as_grant(ask.name, *own, sent);
  }
  note_new_grant(own);
  co_return out;
}

// ---- a lesser mode

// Those that wait behind a plain mutex do not look for readers in its place.
error zk_engine::no_readers_expected(const grant& held) const {
  return not_done{errc::misconfigured,
                  fmt::format("Lock {} on {} was taken as a plain mutex, and its waiters expect no "
                              "readers: take what is to be downgraded by a shared_mutex.",
                              support::quoted(held.name), how_.url)};
}

// It holds by the node that it had. What happened to that meanwhile was not listened to, so it is looked at.
void zk_engine::stay(const mine& own) {
  {
    const auto lock = entries_.lock();
    own->moving_to.clear();
    own->is_watched = false;
  }
  watch_own(own);
}

// Curator's way: a reader's node with the writer's place in the order, made as the writer's goes.
operation<grant> zk_engine::do_downgrade(const grant& held, lock_mode to, invocation how) {
  const auto own = entries_.find(held.owner);
  if (!own) co_return gone(held.name, held.owner);
  std::string old;
  lock_mode is{};
  {
    const auto lock = entries_.lock();
    old = own->path;
    is = own->mode;
  }
  if (is == to) {
    const auto lock = entries_.lock();
    co_return as_grant(held.name, *own, clock_.now());
  }
  if (is != lock_mode::exclusive || to != lock_mode::shared || layout_.reader.empty())
    co_return cannot_downgrade(held, is, to, how_.url);
  const auto sent = clock_.now();
  const auto before = read_contender(layout_, last_of(old));
  if (!before) co_return gone(held.name, held.owner);
  if (!before->may_become_reader) co_return no_readers_expected(held);
  auto next = fmt::format("{}/{}{}{:010}", parent_of(old), prefix_of(layout_, own->owner),
                          layout_.reader, before->sequence);
  bool was_moving = false;
  {
    const auto lock = entries_.lock();
    was_moving = !own->moving_to.empty();  // an earlier try of this is in doubt
    own->moving_to = next;                 // until the outcome is certain
  }
  batch out;
  out.multi([&](jute::multi& both) {
    both.create(creation(next, data_of(*own, false), jute::create_mode::ephemeral));
    both.erase(old);
  });
  auto got = co_await ensemble_->ask(out, how);
  if (!got) {
    if (got.error().is_not_done() && !was_moving) stay(own);
    co_return about(std::move(got).error(), held.name);
  }
  const auto why = jute::failure_of((*got)[0]);
  const bool may_be_done = why == code::no_node || why == code::node_exists;
  if (why != code::ok && !may_be_done && !was_moving) {
    stay(own);
    co_return refusal(why, held.name, how_.url);
  }
  if (why != code::ok) {
    // An earlier try of this was it, or there is none that was; or the lock is gone.
    auto found = co_await find_nodes(held.name, held.owner, how);
    if (!found) co_return error{errc::outcome_unknown, found.error().message()};
    const auto* there = found->queue.find(held.owner);
    if (there != nullptr && there->name == last_of(old)) {
      stay(own);
      co_return refusal(why, held.name, how_.url);
    }
    if (there == nullptr || there->wants != wish::shared) {
      forget(own);
      co_return gone(held.name, held.owner);
    }
  }
  grant changed;
  {
    const auto lock = entries_.lock();
    own->path = std::move(next);
    own->mode = lock_mode::shared;
    own->weight = 1;
    own->moving_to.clear();
    own->is_watched = false;
    changed = as_grant(held.name, *own, sent);
  }
  watch_own(own);
  co_return changed;
}

}  // namespace holdfast::engines::zk
