// Asking for a lock.
#include "engines/common/sentences.hpp"
#include "engines/zk/paths.hpp"
#include "engines/zk/zk_engine.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace holdfast::engines::zk {

namespace {

using jute::code;
using jute::create_mode;

constexpr int rounds = 4;  // against a folder that is taken away while we come
// Against others that barge in at the same time: one of them succeeds each time.
constexpr int most_marks = 64;
using no_grants = std::vector<grant>;

wish wish_of(const request& ask) noexcept {
  return ask.mode == lock_mode::shared ? wish::shared : wish::exclusive;
}

bool may_barge(const request& ask) noexcept {
  return ask.order == queue_order::barging && ask.mode == lock_mode::shared;
}

}  // namespace

// ---- requests

std::string zk_engine::folder_of(std::string_view name) const { return path_of(how_.root, name); }

jute::creation zk_engine::creation(std::string_view path, std::string_view data,
                                   create_mode mode) const {
  jute::creation out;
  out.path = path;
  out.data = data;
  out.rights = how_.is_open_to_all ? jute::open_to_all() : jute::creator_only();
  out.mode = mode;
  return out;
}

// The folder and all above it, below the chroot. Those that are there are refused, which does no harm.
void zk_engine::add_folders(batch& to, std::string_view folder) const {
  const auto kind = layout_.has_lasting_folders ? create_mode::persistent : create_mode::container;
  for (auto at = folder.find('/', how_.root.size() + 1);; at = folder.find('/', at + 1)) {
    to.create(creation(folder.substr(0, at), {}, kind));
    if (at == std::string_view::npos) return;
  }
}

// Which of the lock's nodes were made by the first `count` requests: those are ours to remove.
void zk_engine::note_made(std::string_view folder, const answers& got, std::size_t count) {
  if (layout_.has_lasting_folders) return;
  for (std::size_t i = 0; i < count; ++i) {
    if (!got.ok(i)) continue;
    const auto made = jute::read_created(got[i].rest);
    if (made && made->path.starts_with(folder))
      janitor_->note_made(std::string{made->path}, made->stat.czxid);
  }
}

void zk_engine::add_creation(batch& to, const own_node& own, const request& ask,
                             std::string_view folder, std::string_view base) const {
  const auto path = fmt::format("{}/{}{}{}", folder, prefix_of(layout_, own.owner),
                                ask.label_is_value ? address_of(pid_, host_) : std::string{}, base);
  to.create(creation(path, data_of(own, ask.label_is_value), create_mode::ephemeral_sequential));
}

// False: it was made in a session that is over by now. Nothing: what it says cannot be read, so there may be a node.
std::optional<bool> zk_engine::take_created(own_node& own, const jute::reply& said) {
  const auto made = jute::read_created(said.rest);
  if (!made) return std::nullopt;
  const auto session = ensemble_->number_of(made->stat.ephemeral_owner);
  const auto lock = entries_.lock();
  own.session = session;
  own.in_doubt = own.is_watched = false;
  own.path = made->path;
  own.created = made->stat.czxid;
  own.token = {static_cast<std::uint64_t>(made->stat.czxid)};
  return session != 0;
}

// `after_all_writes`: of ours, over whatever connection, also those that were not answered; and of others, those that
// were. One server's list may be behind: what it does not show any more is gone, but what it shows may be gone as well.
operation<zk_engine::sight> zk_engine::look(std::string_view name, bool after_all_writes,
                                            invocation how) {
  batch ask;
  if (after_all_writes) ask.agree(ensemble_->root());
  ask.children(folder_of(name));
  auto got = co_await ensemble_->ask(ask, how);
  if (!got) co_return as_reading(about(std::move(got).error(), name));
  if (after_all_writes)
    if (const auto why = why_not_agreed((*got)[0]); why != code::ok)
      co_return refusal(why, name, how_.url);
  const auto& said = (*got)[ask.size() - 1];
  sight none;
  none.sent = got->sent;
  if (said.err == code::no_node) co_return none;
  if (said.err != code::ok) co_return refusal(said.err, name, how_.url);
  const auto children = jute::read_children(said.rest);
  if (!children) co_return unexpected_answer(name, how_.url);
  co_return sight_of(*children, got->sent);
}

zk_engine::sight zk_engine::sight_of(const jute::children& folder, steady_time sent) const {
  return {.queue = lock_queue{layout_, folder.names},
          .sent = sent,
          .overtaken = overtaken_at(folder.stat),
          .folder = folder.stat.czxid,
          .version = folder.stat.version,
          .takes_marks = folder.stat.data_length == 0};
}

// ---- the way in

operation<entered> zk_engine::do_enter(const request& ask, invocation how) {
  if (ask.replaces != nullptr || ask.mode == lock_mode::upgradeable)
    co_return not_done{errc::unsupported, fmt::format("{} has no upgradeable reads.", how_.url)};
  auto own = entries_.find_or_make(ask);
  auto inside = layout_.is_plain                 ? enter_plainly(ask, own, how)
                : ask.mode == lock_mode::permits ? enter_semaphore(ask, own, how)
                                                 : enter_queue(ask, own, how);
  co_return co_await inside;
}

// Where do we stand; or, for one that comes anew: is it worth a try? Nothing: it has to make its node.
operation<std::optional<entered>> zk_engine::look_before_entering(const request& ask, mine own,
                                                                  bool doubted, invocation how) {
  using maybe = std::optional<entered>;
  auto seen = co_await look(ask.name, doubted, how);
  if (!seen) co_return failed(own, std::move(seen).error());
  if (const auto* there = seen->queue.find(ask.owner); there != nullptr) {
    bool is_of_known_session = false;
    {
      const auto lock = entries_.lock();
      is_of_known_session = own->path == folder_of(ask.name) + "/" + there->name;
    }
    // Found by its name alone: core asks about it, and is told whose session it is.
    if (!is_of_known_session) co_return failed(own, session_changed(ask.name));
    auto inside = co_await stand(ask, own, std::move(*seen), how);
    if (!inside) co_return std::move(inside).error();
    co_return maybe{*inside};
  }
  {
    const auto lock = entries_.lock();
    own->path.clear();
    own->in_doubt = false;
  }
  const bool takes_us = seen->queue.takes(wish_of(ask));
  if (may_barge(ask) && !takes_us) {
    auto inside = co_await barge_in(ask, own, std::move(*seen), how);
    if (!inside || *inside) co_return std::move(inside);
  }
  if (ask.wait || takes_us) co_return maybe{};
  // Busy, by the list of one server: it counts only if that server has heard of all releases that were answered.
  if (!doubted) co_return co_await look_before_entering(ask, own, true, how);
  forget(own);
  co_return maybe{entered{}};
}

operation<entered> zk_engine::enter_queue(const request& ask, mine own, invocation how) {
  bool known = false, doubted = false;
  {
    const auto lock = entries_.lock();
    known = !own->path.empty();
    doubted = own->in_doubt;
  }
  const bool lone = !known && !doubted && lone_.expects_none(folder_of(ask.name));
  if (!lone && (known || doubted || !ask.wait || may_barge(ask))) {
    auto inside = co_await look_before_entering(ask, own, doubted, how);
    if (!inside) co_return std::move(inside).error();
    if (*inside) co_return **inside;
  }
  co_return co_await make_place(ask, own, lone, how);
}

// Our node, and the list that shows its place in the queue; a `lone` client sees the place by the node's number.
operation<entered> zk_engine::make_place(const request& ask, mine own, bool lone, invocation how) {
  const auto folder = folder_of(ask.name);
  const auto base = base_for(layout_, ask.mode, ask.label_is_value, ask.has_readers);
  if (base.empty()) {
    forget(own);
    co_return not_done{errc::unsupported,
                       fmt::format("{}: this layout has no shared locks.", how_.url)};
  }
  for (int round = 0; round < rounds; ++round) {
    batch out;
    if (round > 0) add_folders(out, folder);
    add_creation(out, *own, ask, folder, base);
    const auto at = out.size() - 1;
    if (!lone || round > 0) out.children(folder);
    auto got = co_await ensemble_->ask(out, how);
    if (!got) co_return failed(own, about(std::move(got).error(), ask.name));
    note_made(folder, *got, at);
    const auto& made = (*got)[at];
    if (made.err == code::no_node) {
      const auto why = why_no_folder(*got, at);
      if (why != code::no_node) co_return failed(own, refusal(why, ask.name, how_.url));
      continue;
    }
    if (made.err != code::ok) co_return failed(own, refusal(made.err, ask.name, how_.url));
    const auto taken = take_created(*own, made);
    if (!taken) co_return failed(own, unexpected_answer(ask.name, how_.url));
    if (!*taken) {
      const auto lock = entries_.lock();
      own->path.clear();
      co_return ask_again(ask);
    }
    if (lone && round == 0) {
      if (is_alone(folder, *own)) co_return co_await granted(ask, own, got->sent, how);
      auto now = co_await look(ask.name, false, how);
      if (!now) co_return failed(own, std::move(now).error());
      co_return co_await stand(ask, own, std::move(*now), how);
    }
    const auto children = jute::read_children((*got)[at + 1].rest);
    if (!got->ok(at + 1) || !children) co_return ask_again(ask);  // gone again, or not understood
    co_return co_await stand(ask, own, sight_of(*children, got->sent), how);
  }
  co_return failed(own, refusal(code::no_node, ask.name, how_.url));
}

// Our node is in the store, or was a moment ago.
operation<entered> zk_engine::stand(const request& ask, mine own, sight seen, invocation how) {
  const contender* there = nullptr;
  {
    const auto lock = entries_.lock();
    there = seen.queue.find(last_of(own->path));
    if (there == nullptr) own->path.clear();
  }
  if (there == nullptr) co_return ask_again(ask);  // taken away at this very moment
  if (there->is_in_no_order()) co_return co_await begin_anew(ask, own, how);
  if (seen.queue.has_permits()) {
    auto refused = co_await refuse_if_semaphore(ask, how);
    if (!refused) {
      if (auto away = co_await take_back(own, how); !away)
        co_return failed(own, std::move(away).error());
      forget(own);
      co_return std::move(refused).error();
    }
  }
  const auto* blocker = seen.queue.blocker_of(*there);
  if (blocker == nullptr && seen.overtaken > own->created) {
    auto raised = co_await raise_token(ask, own, seen.version, how);
    if (!raised) co_return failed(own, std::move(raised).error());
    if (!*raised) co_return ask_again(ask);
  }
  if (blocker == nullptr) {
    if (seen.queue.all().size() == 1 && !seen.queue.has_permits())
      note_alone(seen.folder, *own, *there);
    co_return co_await granted(ask, own, seen.sent, how);
  }
  if (!ask.wait) co_return co_await give_up(own, how);
  const auto lock = entries_.lock();
  co_return waiting(ask, *own, folder_of(ask.name) + "/" + blocker->name, watches::on::node,
                    seen.queue.is_next(*there) && seen.overtaken == 0);
}

// ---- alone

void zk_engine::note_alone(std::int64_t czxid, const own_node& own, const contender& there) {
  auto folder = folder_of(own.name);
  const bool is_used_again = lone_.note_alone(folder, {czxid, ensemble_->connection()},
                                              there.sequence, own.owner.sequence);
  if (!is_used_again || watches_->watched(folder) != 0) return;
  watches_->watch(watches::on::node, folder, lone_watch,
                  [this, folder](watches::news) { lone_.forget(folder); });
}

// No contender but the one that was just made?
bool zk_engine::is_alone(const std::string& folder, const own_node& own) {
  const auto made = [&] {
    const auto lock = entries_.lock();
    return read_contender(layout_, last_of(own.path));
  }();
  const lone_folders::place where{watches_->watched(folder), ensemble_->connection()};
  if (!made || made->is_in_no_order() || ensemble_->has_untold_events()) return false;
  return lone_.take(folder, where, made->sequence, own.owner.sequence);
}

// ---- ahead of those that wait

// The zxid of the last time that a waiter of this lock was overtaken; 0: never. It is that of the folder's content,
// which stays empty: what is written is nothing, as often as a waiter was overtaken. A content that is not empty is
// another program's, which writes it when it likes.
std::int64_t zk_engine::overtaken_at(const jute::stat& folder) noexcept {
  return folder.version == 0 || folder.data_length != 0 ? 0 : folder.mzxid;
}

// A reader comes in beside one that holds, at the same place of the order: so those that wait find it before them. They
// find out as well that a newer token than theirs was given out. Nothing: it could not be.
operation<std::optional<entered>> zk_engine::barge_in(const request& ask, mine own, sight seen,
                                                      invocation how) {
  using outcome = std::optional<entered>;
  const auto folder = folder_of(ask.name);
  for (int round = 0; round < most_marks; ++round) {
    const auto* beside = seen.queue.to_barge_in_beside();
    if (beside == nullptr || !seen.takes_marks) co_return outcome{};
    auto path = fmt::format("{}/{}{}{:010}", folder, prefix_of(layout_, ask.owner), layout_.reader,
                            beside->sequence);
    batch out;
    out.multi([&](jute::multi& all) {
      all.check(folder + "/" + beside->name);
      all.create(creation(path, data_of(*own, false), create_mode::ephemeral));
      all.set(folder, {}, seen.version);
    });
    auto got = co_await ensemble_->ask(out, how);
    if (!got) co_return failed(own, about(std::move(got).error(), ask.name));
    const auto why = jute::failure_of((*got)[0]);
    if (why == code::no_node) co_return outcome{};  // that one has just gone
    if (why == code::bad_version) {                 // another one came in, or wrote there
      auto now = co_await look(ask.name, false, how);
      if (!now) co_return failed(own, std::move(now).error());
      seen = std::move(*now);
      continue;
    }
    if (why != code::ok) co_return failed(own, refusal(why, ask.name, how_.url));
    if (got->session == 0) co_return failed(own, session_changed(ask.name));
    {
      const auto lock = entries_.lock();
      own->path = std::move(path);
      own->session = got->session;
      own->created = (*got)[0].zxid;
      own->token = {static_cast<std::uint64_t>(own->created)};
    }
    auto in = co_await granted(ask, own, got->sent, how);
    if (!in) co_return std::move(in).error();
    co_return outcome{*in};
  }
  co_return outcome{};
}

// A waiter that was overtaken takes a new token when its turn has come, and those behind it will do the same. False: it
// has to look again; others did so just now, or another program has written there.
operation<bool> zk_engine::raise_token(const request& ask, mine own, std::int32_t version,
                                       invocation how) {
  batch out;
  out.set(folder_of(ask.name), {}, version);
  auto got = co_await ensemble_->ask(out, how);
  if (!got) co_return as_reading(about(std::move(got).error(), ask.name));
  if (got->err(0) == code::bad_version) co_return false;
  if (!got->ok(0)) co_return refusal(got->err(0), ask.name, how_.url);
  const auto lock = entries_.lock();
  own->created = (*got)[0].zxid;
  own->token = {static_cast<std::uint64_t>(own->created)};
  co_return true;
}

// Other clients use the name as a semaphore: their nodes lie elsewhere, so the order says nothing about them.
operation<void> zk_engine::refuse_if_semaphore(const request& ask, invocation how) {
  auto seen = co_await look_at_semaphore(ask.name, false, how);
  if (!seen) co_return std::move(seen).error();
  if (seen->permits.empty() && seen->queue.empty()) co_return result<void>{};
  co_return other_capacity(ask, seen->capacity.value_or(0), how_.url);
}

// Without waiting: what was made goes again.
operation<entered> zk_engine::give_up(mine own, invocation how) {
  if (auto away = co_await take_back(own, how); !away)
    co_return failed(own, std::move(away).error());
  forget(own);
  co_return entered{};
}

// ---- at the end of the numbers

// The server has no more numbers for nodes in this folder: ours goes, and the folder as soon as it is empty, unless it
// has a content of another program. Then they begin anew.
operation<entered> zk_engine::begin_anew(const request& ask, mine own, invocation how) {
  if (auto away = co_await take_back(own, how); !away)
    co_return failed(own, std::move(away).error());
  const auto folder = folder_of(ask.name);
  std::vector<used_folder> folders;
  folders.push_back({fmt::format("{}/{}", folder, permits_segment)});
  folders.push_back({fmt::format("{}/{}", folder, queue_segment)});
  folders.push_back({folder});
  const auto look = look_at_folders(folders);
  if (const auto seen = co_await ensemble_->ask(look, how)) {
    auto out = removal_of(folders, *seen);
    if (out.size() > 0) static_cast<void>(co_await ensemble_->ask(out, how));
  }
  forget(own);
  co_return not_done{
      errc::unavailable,
      fmt::format("Lock {} on {}: ZooKeeper has numbered 2^31 nodes of it and has no "
                  "more numbers. They begin anew as soon as it is free.",
                  support::quoted(ask.name), how_.url)};
}

// ---- several at once

// All of them, if nobody is before us at any; else none.
operation<std::vector<grant>> zk_engine::do_enter_all(std::span<const request> asks,
                                                      invocation how) {
  constexpr std::size_t most = 128;
  if (asks.size() > most || layout_.is_plain) co_return no_grants{};
  for (const auto& ask : asks)
    if (ask.mode != lock_mode::exclusive || ask.replaces != nullptr) co_return no_grants{};
  std::vector<mine> all;
  for (const auto& ask : asks) all.push_back(entries_.find_or_make(ask));
  for (int round = 0; round < rounds; ++round) {
    batch out;
    if (round > 0)
      for (const auto& ask : asks) add_folders(out, folder_of(ask.name));
    const auto before = out.size();
    out.multi([&](jute::multi& nodes) {
      for (std::size_t i = 0; i < asks.size(); ++i) {
        const auto path =
            fmt::format("{}/{}{}", folder_of(asks[i].name), prefix_of(layout_, asks[i].owner),
                        base_for(layout_, asks[i].mode, false, asks[i].has_readers));
        nodes.create(creation(path, data_of(*all[i], false), create_mode::ephemeral_sequential));
      }
    });
    for (const auto& ask : asks) out.children(folder_of(ask.name));
    auto got = co_await ensemble_->ask(out, how);
    if (!got) {
      for (const auto& own : all) static_cast<void>(failed(own, got.error()));
      co_return about(std::move(got).error(), asks.front().name);
    }
    if (round > 0)
      for (const auto& ask : asks) note_made(folder_of(ask.name), *got, before);
    auto why = jute::failure_of((*got)[before]);
    if (why == code::no_node && round == 0) continue;
    if (why == code::no_node) why = why_no_folder(*got, before);
    const auto parts = jute::read_parts((*got)[before].rest);
    if (why == code::no_node) break;  // one after the other, then
    if (why != code::ok || !parts || parts->size() != asks.size()) {
      const auto no = refusal(why, asks.front().name, how_.url);
      for (const auto& own : all) static_cast<void>(failed(own, no));
      co_return no;
    }
    co_return co_await read_all_entered(asks, all, *got, before, *parts, how);
  }
  for (const auto& own : all) forget(own);
  co_return no_grants{};
}

operation<std::vector<grant>> zk_engine::read_all_entered(std::span<const request> asks,
                                                          const std::vector<mine>& all,
                                                          const answers& got, std::size_t before,
                                                          const std::vector<jute::part>& parts,
                                                          invocation how) {
  bool is_free = true;
  for (std::size_t i = 0; i < asks.size(); ++i) {
    const auto children = jute::read_children(got[before + 1 + i].rest);
    const lock_queue queue = children ? lock_queue{layout_, children->names} : lock_queue{};
    const auto* there = queue.find(last_of(parts[i].path));
    is_free = is_free && got.session != 0 && there != nullptr && queue.holds(*there) &&
              !queue.has_permits() && !there->is_in_no_order();
    const auto lock = entries_.lock();
    all[i]->path = parts[i].path;
    all[i]->session = got.session;
    all[i]->created = got[before].zxid;
    all[i]->token = {static_cast<std::uint64_t>(got[before].zxid)};  // which all of them have
  }
  no_grants out;
  if (is_free) {
    for (std::size_t i = 0; i < asks.size(); ++i) {
      auto in = co_await granted(asks[i], all[i], got.sent, how);
      if (in && in->what == entered::kind::granted) out.push_back(in->granted);
    }
    if (out.size() == asks.size()) co_return out;
  }
  std::optional<error> left;
  for (const auto& own : all) {
    if (auto away = co_await take_back(own, how); !away) {
      left = failed(own, std::move(away).error());
    } else {
      forget(own);
    }
  }
  if (left) co_return *left;
  co_return no_grants{};
}

}  // namespace holdfast::engines::zk
