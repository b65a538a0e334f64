// Permits, as Curator's InterProcessSemaphoreV2 has them: one node for each below "leases", and below "locks" a queue
// whose first waits until there is room.
//
// A permit counts when no more permits than there are come before it and with it, in the order of creation; Curator's
// own clients count all that are there, which is stricter. So a client that finds the queue empty may take permits
// without queueing: what it makes beyond the number it takes away again, and queues. Curator's first in the queue sees
// them meanwhile as taken, and waits.
//
// The number of permits is in no node of Curator's. We write it into the node "leases" when we make it, or find it
// without one, and compare. While a number is written it never changes: those who came in by it do not look again. An
// unused node with another number is deleted, which the server refuses while it has permits, and made anew.
#include "engines/common/sentences.hpp"
#include "engines/zk/zk_engine.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace holdfast::engines::zk {

namespace {

using jute::code;
using jute::create_mode;

constexpr int semaphore_rounds = 4;  // against folders that are taken away while we come
constexpr std::uint64_t most_permits =
    1000;  // of one acquire: each is a node, and all are made in one request
constexpr std::uint64_t surely_fit = 64;       // permits, however long their names are
constexpr std::size_t most_bytes = 1'000'000;  // with room for what the server adds to each node
// Of a place that a holder no longer needs: when it is asked again to go.
constexpr nanoseconds place_goes_within = std::chrono::seconds{30};
constexpr nanoseconds after_a_doubt = std::chrono::milliseconds{200};
constexpr nanoseconds after_a_refusal = std::chrono::seconds{2};

std::string permits_folder(std::string_view folder) {
  return fmt::format("{}/{}", folder, permits_segment);
}
std::string queue_folder(std::string_view folder) {
  return fmt::format("{}/{}", folder, queue_segment);
}

std::optional<std::uint64_t> read_capacity(std::string_view data) {
  if (!data.starts_with(capacity_mark)) return std::nullopt;
  data.remove_prefix(capacity_mark.size());
  std::uint64_t out = 0;
  const auto [at, failure] = std::from_chars(data.data(), data.data() + data.size(), out);
  if (failure != std::errc{} || at != data.data() + data.size()) return std::nullopt;
  return out;
}

}  // namespace

// ---- what is seen

std::uint64_t zk_engine::permits_sight::taken_by_others(const owner_id& than) const noexcept {
  return static_cast<std::uint64_t>(
      std::ranges::count_if(permits, [&](const contender& one) { return one.owner != than; }));
}

bool zk_engine::permits_sight::are_first(const request& ask) const noexcept {
  const auto last = std::find_if(permits.rbegin(), permits.rend(),
                                 [&](const contender& one) { return one.owner == ask.owner; });
  if (last == permits.rend()) return false;
  return static_cast<std::uint64_t>(permits.rend() - last) <= capacity.value_or(ask.capacity);
}

bool zk_engine::permits_sight::is_in_no_order(const owner_id& owner) const noexcept {
  const auto is_such = [&](const contender& one) {
    return one.owner == owner && one.is_in_no_order();
  };
  return std::ranges::any_of(permits, is_such) || std::ranges::any_of(queue.all(), is_such);
}

bool zk_engine::permits_sight::is_used_by_others(const owner_id& than) const noexcept {
  const auto is_other = [&](const contender& one) { return one.owner != than; };
  return std::ranges::any_of(permits, is_other) || std::ranges::any_of(queue.all(), is_other);
}

void zk_engine::add_semaphore_look(batch& to, std::string_view name) const {
  const auto folder = folder_of(name);
  to.children(queue_folder(folder)).children(permits_folder(folder));
  to.get(permits_folder(folder)).children(folder);
}

result<zk_engine::permits_sight> zk_engine::read_semaphore(std::string_view name,
                                                           const answers& got,
                                                           std::size_t from) const {
  permits_sight out;
  out.sent = got.sent;
  for (std::size_t i = from; i < from + 4; ++i)
    if (!got.ok(i) && got.err(i) != code::no_node) return refusal(got.err(i), name, how_.url);
  const auto queue = jute::read_children(got[from].rest),
             permits = jute::read_children(got[from + 1].rest);
  const auto use = jute::read_node(got[from + 2].rest);
  const auto mutex = jute::read_children(got[from + 3].rest);
  if ((got.ok(from) && !queue) || (got.ok(from + 1) && !permits) || (got.ok(from + 3) && !mutex))
    return unexpected_answer(name, how_.url);
  if (queue) out.queue = lock_queue{layout_, queue->names};
  if (permits) {
    std::vector<contender> found;
    for (const auto child : permits->names)
      if (auto one = read_permit(child)) found.push_back(std::move(*one));
    out.permits = lock_queue{std::move(found)}.all();
    out.changed = permits->stat.pzxid;
  }
  if (use) {
    out.capacity = read_capacity(use->data);
    out.version = use->stat.version;
    out.is_blank = use->data.empty();
  }
  out.is_mutex = mutex && !lock_queue{layout_, mutex->names}.empty();
  return out;
}

operation<zk_engine::permits_sight> zk_engine::look_at_semaphore(std::string_view name,
                                                                 bool after_all_writes,
                                                                 invocation how) {
  batch ask;
  if (after_all_writes) ask.agree(ensemble_->root());
  const auto from = ask.size();
  add_semaphore_look(ask, name);
  auto got = co_await ensemble_->ask(ask, how);
  if (!got) co_return as_reading(about(std::move(got).error(), name));
  if (after_all_writes)
    if (const auto why = why_not_agreed((*got)[0]); why != code::ok)
      co_return refusal(why, name, how_.url);
  co_return read_semaphore(name, *got, from);
}

// As what it is in use by others, if not as what is asked for.
std::optional<std::uint64_t> zk_engine::other_use(const request& ask,
                                                  const permits_sight& seen) const {
  if (seen.is_mutex) return rw_capacity;
  if (seen.capacity && *seen.capacity != ask.capacity && seen.is_used_by_others(ask.owner))
    return *seen.capacity;
  return std::nullopt;
}

// ---- requests

// The folder of the queue only for one that queues: the server never removes a container that had no children.
void zk_engine::add_semaphore_folders(batch& to, const request& ask, bool queues) const {
  const auto folder = folder_of(ask.name);
  add_folders(to, queues ? queue_folder(folder) : folder);
  to.create(creation(permits_folder(folder), fmt::format("{}{}", capacity_mark, ask.capacity),
                     create_mode::container));
}

void zk_engine::add_permits(batch& to, const own_node& own, const request& ask) const {
  const auto path = fmt::format("{}/{}{}", permits_folder(folder_of(ask.name)),
                                prefix_of(layout_, own.owner), permit_base);
  const auto data = data_of(own, false);
  to.multi([&](jute::multi& all) {
    for (std::uint64_t i = 0; i < ask.weight; ++i)
      all.create(creation(path, data, create_mode::ephemeral_sequential));
  });
}

// A server closes the connection of a client that sends it more (jute.maxbuffer, 1 MB unless an operator says
// otherwise).
bool zk_engine::fit_one_request(const request& ask, const own_node& own) const {
  if (ask.weight <= surely_fit) return true;
  batch out;
  add_permits(out, own, ask);
  return out.bytes().size() <= most_bytes;
}

// Of the answer to add_permits().
result<void> zk_engine::take_permits(own_node& own, const request& ask, const answers& got,
                                     std::size_t at) {
  const auto& said = got[at];
  if (const auto why = jute::failure_of(said); why != code::ok)
    return refusal(why, ask.name, how_.url);
  const auto parts = jute::read_parts(said.rest);
  if (!parts || parts->empty()) return unexpected_answer(ask.name, how_.url);
  if (got.session == 0) return session_changed(ask.name);
  const auto lock = entries_.lock();
  own.permits.clear();
  for (const auto& one : *parts) own.permits.emplace_back(one.path);
  own.session = got.session;
  own.token = {static_cast<std::uint64_t>(said.zxid)};  // all of them have it as their czxid
  own.in_doubt = false;
  return {};
}

// ---- the way in

operation<entered> zk_engine::enter_semaphore(const request& ask, mine own, invocation how) {
  if (ask.weight > most_permits) {
    forget(own);
    co_return not_done{errc::unsupported,
                       fmt::format("{}: at most {} permits can be taken at once, each is a node.",
                                   how_.url, most_permits)};
  }
  bool known = false, doubted = false;
  {
    const auto lock = entries_.lock();
    known = own->has_nodes();
    doubted = own->in_doubt;
  }
  if (!known && !doubted && !fit_one_request(ask, *own)) {
    forget(own);
    co_return not_done{errc::unsupported,
                       fmt::format("Lock {} on {}: the nodes of {} permits are more than ZooKeeper "
                                   "takes in one request; take fewer at once.",
                                   support::quoted(ask.name), how_.url, ask.weight)};
  }
  if (known || doubted) {
    auto seen = co_await look_at_semaphore(ask.name, doubted, how);
    if (!seen) co_return failed(own, std::move(seen).error());
    if (!adopt(*own, *seen)) co_return failed(own, session_changed(ask.name));
    co_return co_await stand_at_semaphore(ask, own, std::move(*seen), how);
  }
  if (!ask.wait) {
    // Is it worth a try? That it is full counts only behind all writes that were answered (look()).
    bool is_full = true;
    for (const bool after_all_writes : {false, true}) {
      if (!is_full) break;
      auto seen = co_await look_at_semaphore(ask.name, after_all_writes, how);
      if (!seen) co_return failed(own, std::move(seen).error());
      is_full =
          !other_use(ask, *seen) &&
          (!seen->queue.empty() || seen->taken_by_others(ask.owner) + ask.weight > ask.capacity);
    }
    if (is_full) {
      forget(own);
      co_return entered{};
    }
  }
  auto seen = co_await try_permits(ask, own, how);
  if (!seen) co_return failed(own, std::move(seen).error());
  co_return co_await stand_at_semaphore(ask, own, std::move(*seen), how);
}

// What the store has of this owner, as it was just seen. False: in which session that was made is not known.
bool zk_engine::adopt(own_node& own, const permits_sight& seen) {
  const auto folder = folder_of(own.name);
  const auto lock = entries_.lock();
  own.in_doubt = false;
  const auto* there = seen.queue.find(own.owner);
  own.path = there == nullptr ? std::string{} : queue_folder(folder) + "/" + there->name;
  own.permits.clear();
  for (const auto& one : seen.permits)
    if (one.owner == own.owner) own.permits.push_back(permits_folder(folder) + "/" + one.name);
  return !own.has_nodes() || own.session == ensemble_->current().number;
}

// Takes permits without queueing, and looks whether they count.
operation<zk_engine::permits_sight> zk_engine::try_permits(const request& ask, mine own,
                                                           invocation how) {
  for (int round = 0; round < semaphore_rounds; ++round) {
    batch out;
    if (round > 0) add_semaphore_folders(out, ask, false);
    const auto from = out.size();
    add_permits(out, *own, ask);
    add_semaphore_look(out, ask.name);
    auto got = co_await ensemble_->ask(out, how);
    if (!got) co_return about(std::move(got).error(), ask.name);
    note_made(folder_of(ask.name), *got, from);
    const bool is_missing = jute::failure_of((*got)[from]) == code::no_node;
    if (is_missing && round == 0) continue;
    if (is_missing) co_return refusal(why_no_folder(*got, from), ask.name, how_.url);
    if (auto taken = take_permits(*own, ask, *got, from); !taken)
      co_return std::move(taken).error();
    co_return read_semaphore(ask.name, *got, from + 1);
  }
  co_return refusal(code::no_node, ask.name, how_.url);
}

operation<zk_engine::permits_sight> zk_engine::queue_for_permits(const request& ask, mine own,
                                                                 invocation how) {
  batch out;
  add_semaphore_folders(out, ask, true);
  const auto from = out.size();
  add_creation(out, *own, ask, queue_folder(folder_of(ask.name)), layout_.mutex);
  add_semaphore_look(out, ask.name);
  auto got = co_await ensemble_->ask(out, how);
  if (!got) co_return about(std::move(got).error(), ask.name);
  note_made(folder_of(ask.name), *got, from);
  if (!got->ok(from)) co_return refusal(got->err(from), ask.name, how_.url);
  if (!take_created(*own, (*got)[from])) co_return unexpected_answer(ask.name, how_.url);
  co_return read_semaphore(ask.name, *got, from + 1);
}

// ---- where we stand

operation<entered> zk_engine::stand_at_semaphore(const request& ask, mine own, permits_sight seen,
                                                 invocation how) {
  if (const auto other = other_use(ask, seen))
    co_return co_await refuse_other_use(ask, own, *other, how);
  if (seen.is_in_no_order(ask.owner)) co_return co_await begin_anew(ask, own, how);
  if (seen.capacity && seen.capacity != ask.capacity)
    co_return co_await enter_with_other_number(ask, own, seen.version, how);
  if (!seen.capacity && !seen.is_blank)
    seen.capacity = ask.capacity;  // another program's content: all must know the number, as below
  if (!seen.capacity) {
    batch note;
    note.set(permits_folder(folder_of(ask.name)), fmt::format("{}{}", capacity_mark, ask.capacity),
             seen.version);
    const auto noted = co_await ensemble_->ask(note, how);
    if (!noted) co_return failed(own, about(noted.error(), ask.name));
    if (noted->err(0) == code::bad_version) co_return ask_again(ask);  // others came meanwhile
    // Where we may not write, another program made it, and all must know the number, as with Curator.
    seen.capacity = ask.capacity;
  }
  const auto* place = seen.queue.find(ask.owner);
  const bool may_pass = place != nullptr                    ? seen.queue.holds(*place)
                        : ask.order == queue_order::barging ? true
                                                            : seen.queue.empty();
  if (may_pass && seen.are_first(ask)) co_return co_await hold_permits(ask, own, seen.sent, how);
  if (auto away = co_await drop_permits(own, how); !away)
    co_return failed(own, std::move(away).error());
  if (place == nullptr) {
    if (!ask.wait) co_return co_await give_up(own, how);
    auto queued = co_await queue_for_permits(ask, own, how);
    if (!queued) co_return failed(own, std::move(queued).error());
    place = queued->queue.find(ask.owner);
    if (place == nullptr) co_return ask_again(ask);
    co_return co_await wait_for_permits(ask, own, std::move(*queued), how);
  }
  co_return co_await wait_for_permits(ask, own, std::move(seen), how);
}

// It was seen unused; others may have come since, and have gone by the number that is there.
operation<entered> zk_engine::enter_with_other_number(const request& ask, mine own,
                                                      std::int32_t version, invocation how) {
  if (auto away = co_await drop_permits(own, how); !away)
    co_return failed(own, std::move(away).error());
  batch out;
  out.erase(permits_folder(folder_of(ask.name)), version);
  const auto got = co_await ensemble_->ask(out, how);
  if (!got) co_return failed(own, about(got.error(), ask.name));
  const auto why = got->err(0);
  if (why == code::bad_version) co_return ask_again(ask);
  if (why != code::ok && why != code::no_node && why != code::not_empty)
    co_return failed(own, refusal(why, ask.name, how_.url));
  auto seen = co_await try_permits(ask, own, how);
  if (!seen) co_return failed(own, std::move(seen).error());
  if (why == code::not_empty && seen->capacity && seen->capacity != ask.capacity)
    co_return co_await refuse_other_use(ask, own, *seen->capacity, how);
  co_return co_await stand_at_semaphore(ask, own, std::move(*seen), how);
}

operation<entered> zk_engine::refuse_other_use(const request& ask, mine own, std::uint64_t use,
                                               invocation how) {
  if (auto away = co_await take_back(own, how); !away)
    co_return failed(own, std::move(away).error());
  forget(own);
  co_return other_capacity(ask, use, how_.url);
}

// Our place is in the queue. The first takes what it wants as soon as there is room.
operation<entered> zk_engine::wait_for_permits(const request& ask, mine own, permits_sight seen,
                                               invocation how) {
  const auto folder = folder_of(ask.name);
  const auto* place = seen.queue.find(ask.owner);
  if (place == nullptr) co_return ask_again(ask);
  if (const auto* blocker = seen.queue.blocker_of(*place)) {
    const auto lock = entries_.lock();
    co_return waiting(ask, *own, queue_folder(folder) + "/" + blocker->name, watches::on::node,
                      false);
  }
  if (seen.taken_by_others(ask.owner) + ask.weight <= ask.capacity) {
    auto taken = co_await try_permits(ask, own, how);
    if (!taken) co_return failed(own, std::move(taken).error());
    if (taken->is_in_no_order(ask.owner)) co_return co_await begin_anew(ask, own, how);
    if (taken->capacity == ask.capacity && taken->are_first(ask))
      co_return co_await hold_permits(ask, own, taken->sent, how);
    if (auto away = co_await drop_permits(own, how); !away)
      co_return failed(own, std::move(away).error());
    // They were taken, and are perhaps being given back just now; or it has become one with another number.
    co_return ask_again(ask);
  }
  const auto lock = entries_.lock();
  own->blocker_seen = seen.changed;
  co_return waiting(ask, *own, permits_folder(folder), watches::on::children, false);
}

operation<entered> zk_engine::hold_permits(const request& ask, mine own, steady_time sent,
                                           invocation how) {
  auto in = co_await granted(ask, own, sent, how);
  if (in && in->what == entered::kind::granted) leave_queue(own);
  co_return in;
}

// The place in the queue of one that holds goes, and is asked to until a server has said that it is gone: as long as it
// is there those behind it wait, although there may be room.
void zk_engine::leave_queue(const mine& own) {
  batch out;
  {
    const auto lock = entries_.lock();
    if (ending_ || own->is != own_entry::state::holding || own->path.empty()) return;
    out.erase(own->path);
  }
  ensemble_->ask_in_background(std::move(out), place_goes_within,
                               [this, own](const result<answers>& got) {
                                 if (got && (got->ok(0) || got->err(0) == code::no_node)) {
                                   const auto lock = entries_.lock();
                                   return own->path.clear();
                                 }
                                 const auto pause = got ? after_a_refusal : after_a_doubt;
                                 ensemble_->driver().at(std::chrono::steady_clock::now() + pause,
                                                        [this, own] { leave_queue(own); });
                               });
}

operation<void> zk_engine::drop_permits(mine own, invocation how) {
  batch out;
  {
    const auto lock = entries_.lock();
    for (const auto& path : own->permits) out.erase(path);
  }
  if (out.size() == 0) co_return result<void>{};
  auto got = co_await ensemble_->ask(out, how);
  if (!got) co_return about(std::move(got).error(), own->name);
  for (unsigned i = 0; i < out.size(); ++i)
    if (!got->ok(i) && got->err(i) != code::no_node)
      co_return refusal(got->err(i), own->name, how_.url);
  const auto lock = entries_.lock();
  own->permits.clear();
  co_return result<void>{};
}

}  // namespace holdfast::engines::zk
