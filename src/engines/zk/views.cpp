// The operators' view.
#include "engines/zk/paths.hpp"
#include "engines/zk/zk_engine.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <deque>
#include <tuple>

namespace holdfast::engines::zk {

namespace {

using jute::code;

constexpr std::size_t most_asked_at_once = 200;  // requests in one batch

nanoseconds age_since(std::int64_t ms) {
  using namespace std::chrono;
  const auto now = duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
  return milliseconds{std::max<std::int64_t>(now - ms, 0)};  // clocks differ
}

std::string printable(std::string_view text) {
  const bool is_text = support::is_utf8(text) && !support::has_control(text);
  return is_text ? std::string{text} : support::quoted(text);
}

// The word after " KEY=", up to the next space; of the last one, all that follows.
std::string_view field(std::string_view data, std::string_view key) {
  const auto at = data.find(key);
  if (at == std::string_view::npos) return {};
  data.remove_prefix(at + key.size());
  return key == " label=" ? data : data.substr(0, data.find(' '));
}

template <class Number>
Number number(std::string_view text, int base = 10) {
  Number out{};
  std::from_chars(text.data(), text.data() + text.size(), out, base);
  return out;
}

// What a node says about its owner: in our own words, or in those of another program.
void describe(const jute::node& node, holder_info& out, bool holds) {
  out.age = age_since(node.stat.ctime);
  if (holds) out.token = {static_cast<std::uint64_t>(node.stat.czxid)};
  if (!node.data.starts_with("holdfast pid=")) {
    if (support::is_utf8(node.data) && !support::has_control(node.data)) out.label = node.data;
    return;
  }
  out.pid = number<std::int64_t>(field(node.data, " pid="));
  out.host = printable(field(node.data, " host="));
  if (const auto owner = field(node.data, " owner="); !owner.empty())
    out.owner = read_owner_text(owner).value_or(owner_id{});
  out.label = printable(field(node.data, " label="));
  if (out.mode == lock_mode::permits && !holds)
    out.weight = number<std::uint64_t>(field(node.data, " weight="));
  const auto session = number<std::int64_t>(field(node.data, " session="));
  // After its client was last heard of; how long ago that is, no server tells.
  if (holds && session > 0) out.expires_in = std::chrono::milliseconds{session};
  const auto token = number<std::uint64_t>(field(node.data, " token="), 16);
  if (holds && token != 0) out.token = {token};  // of a writer that has become a reader
}

holder_info info_of(const contender& one) {
  holder_info out;
  out.mode = one.wants == wish::shared ? lock_mode::shared : lock_mode::exclusive;
  out.weight = one.wants == wish::shared ? 1 : rw_capacity;
  out.pid = one.pid;
  out.host = one.host;
  if (one.owner) {
    out.owner = *one.owner;
  } else {
    out.owner_text = printable(one.name);
  }
  return out;
}

std::string joined(std::string_view folder, std::string_view child) {
  return std::string{folder}.append("/").append(child);
}

}  // namespace

// ---- reading

void zk_engine::add_view_look(batch& to, std::string_view name) const {
  if (layout_.is_plain) {
    to.get(flat_path_of(how_.root, name));
  } else if (layout_.has_permits) {
    add_semaphore_look(to, name);
  } else {
    to.children(folder_of(name));
  }
}

zk_engine::view zk_engine::view_of(std::string_view name, std::string_view folder,
                                   const lock_queue& queue) {
  view out;
  out.info.name = name;
  out.info.capacity = rw_capacity;
  for (const auto& one : queue.all()) {
    const bool holds = queue.holds(one);
    (holds ? out.info.holders : out.info.waiters).push_back(info_of(one));
    (holds ? out.holders : out.waiters).push_back(joined(folder, one.name));
  }
  out.info.version = queue.version();
  return out;
}

// Whom the store shows, without what only their nodes say.
result<zk_engine::view> zk_engine::read_view(std::string_view name, const answers& got,
                                             std::size_t from) const {
  view out;
  out.info.name = name;
  out.info.capacity = rw_capacity;
  const auto last = layout_.has_permits ? from + 3 : from;
  if (!got.ok(last) && got.err(last) != code::no_node)
    return refusal(got.err(last), name, how_.url);
  if (layout_.is_plain) {
    const auto node = jute::read_node(got[last].rest);
    if (!got.ok(last) || !node || node->stat.ephemeral_owner == 0) return out;
    out.info.version = static_cast<std::uint64_t>(node->stat.czxid);
    out.info.holders.emplace_back().weight = rw_capacity;
    out.holders.push_back(flat_path_of(how_.root, name));
    return out;
  }
  const auto folder = folder_of(name);
  const auto children = jute::read_children(got[last].rest);
  if (got.ok(last) && !children) return unexpected_answer(name, how_.url);
  if (children) out = view_of(name, folder, lock_queue{layout_, children->names});
  if (!layout_.has_permits) return out;
  auto semaphore = read_semaphore(name, got, from);
  if (!semaphore) return std::move(semaphore).error();
  add_permits_to(out, folder, *semaphore);
  return out;
}

void zk_engine::add_permits_to(view& to, std::string_view folder, const permits_sight& seen) const {
  if (seen.permits.empty() && seen.queue.empty()) return;
  to.info.capacity = seen.capacity.value_or(0);
  const auto count = seen.capacity ? std::min<std::size_t>(*seen.capacity, seen.permits.size())
                                   : seen.permits.size();
  auto sum = hash_begin;
  for (std::size_t i = 0; i < count; ++i) {
    const auto& one = seen.permits[i];
    sum = hash_on(sum, one.name);
    const auto same = std::ranges::find_if(to.info.holders, [&](const holder_info& known) {
      return one.owner && known.mode == lock_mode::permits && known.owner == *one.owner;
    });
    if (same != to.info.holders.end()) {
      ++same->weight;
      continue;
    }
    auto& info = to.info.holders.emplace_back(info_of(one));
    info.mode = lock_mode::permits;
    info.weight = 1;
    to.holders.push_back(joined(joined(folder, permits_segment), one.name));
  }
  if (count > 0) to.info.version = std::max<std::uint64_t>(sum, 1);
  for (const auto& one : seen.queue.all()) {
    // An owner that has its permits and is about to leave the queue.
    const bool has_entered = std::ranges::any_of(to.info.holders, [&](const holder_info& known) {
      return one.owner && known.owner == *one.owner;
    });
    if (has_entered) continue;
    auto& info = to.info.waiters.emplace_back(info_of(one));
    info.mode = lock_mode::permits;
    info.weight = 1;
    to.waiters.push_back(joined(joined(folder, queue_segment), one.name));
  }
}

result<std::uint64_t> zk_engine::version_in(watch_kind kind, std::string_view name,
                                            const answers& got) const {
  if (kind == watch_kind::lock && !layout_.is_plain) {
    const auto seen = read_view(name, got, 0);
    if (!seen) return seen.error();
    return seen->info.version;
  }
  if (got.err(0) == code::no_node) return std::uint64_t{0};
  const auto node = jute::read_node(got[0].rest);
  if (!got.ok(0) || !node) return refusal(got.err(0), name, how_.url);
  if (kind == watch_kind::lock) return static_cast<std::uint64_t>(node->stat.czxid);
  const bool is_forgotten = counter_lasts(got) <= nanoseconds::zero();
  return is_forgotten ? 0 : static_cast<std::uint64_t>(node->stat.mzxid);
}

// Behind a change that a majority agreed to: what one server shows without may be old.
operation<zk_engine::view> zk_engine::look_at(std::string_view name, invocation how) {
  batch ask;
  ask.agree(ensemble_->root());
  add_view_look(ask, name);
  auto got = co_await ensemble_->ask(ask, how);
  if (!got) co_return as_reading(about(std::move(got).error(), name));
  if (const auto why = why_not_agreed((*got)[0]); why != code::ok)
    co_return refusal(why, name, how_.url);
  co_return read_view(name, *got, 1);
}

// The same for many; those that are not in use (any more) are left out.
operation<std::vector<zk_engine::view>> zk_engine::look_at_all(std::span<const std::string> names,
                                                               invocation how) {
  std::vector<view> out;
  while (!names.empty()) {
    batch ask;
    std::vector<std::size_t> begins;
    for (const auto& name : names) {
      if (ask.size() >= most_asked_at_once) break;
      begins.push_back(ask.size());
      add_view_look(ask, name);
    }
    auto got = co_await ensemble_->ask(ask, how);
    if (!got) co_return as_reading(std::move(got).error());
    for (std::size_t i = 0; i < begins.size(); ++i) {
      auto seen = read_view(names[i], *got, begins[i]);
      if (!seen) co_return std::move(seen).error();
      const bool is_used = !seen->info.holders.empty() || !seen->info.waiters.empty();
      if (is_used) out.push_back(std::move(*seen));
    }
    names = names.subspan(begins.size());
  }
  co_return out;
}

// What the nodes themselves say. One that has gone meanwhile keeps what its name says.
operation<void> zk_engine::fill_in(std::span<view> what, invocation how) {
  std::vector<std::tuple<const std::string*, holder_info*, bool>> all;  // the last: it holds
  for (auto& one : what) {
    for (std::size_t i = 0; i < one.holders.size(); ++i)
      all.emplace_back(&one.holders[i], &one.info.holders[i], true);
    for (std::size_t i = 0; i < one.waiters.size(); ++i)
      all.emplace_back(&one.waiters[i], &one.info.waiters[i], false);
  }
  for (std::size_t from = 0; from < all.size(); from += most_asked_at_once) {
    const auto count = std::min(most_asked_at_once, all.size() - from);
    batch ask;
    for (std::size_t i = 0; i < count; ++i) ask.get(*std::get<0>(all[from + i]));
    auto got = co_await ensemble_->ask(ask, how);
    if (!got) co_return as_reading(std::move(got).error());
    for (std::size_t i = 0; i < count; ++i) {
      if (!got->ok(i)) continue;
      const auto& [path, info, holds] = all[from + i];
      if (const auto node = jute::read_node((*got)[i].rest)) describe(*node, *info, holds);
    }
  }
  co_return result<void>{};
}

operation<lock_info> zk_engine::do_inspect(std::string_view name, invocation how) {
  auto seen = co_await look_at(name, how);
  if (!seen) co_return std::move(seen).error();
  auto filled = co_await fill_in({&*seen, 1}, how);
  if (!filled) co_return std::move(filled).error();
  co_return std::move(seen->info);
}

// ---- all of them

error zk_engine::no_listing() const {
  return {errc::unsupported,
          fmt::format("{}: with layout=exclusive waiters are in no node, so nothing can be listed; "
                      "the other layouts can.",
                      how_.url)};
}

// The tree is walked, as far as it can have such names. Nodes that we may not look at are other programs'. The chroot
// is not, and a wrong password shows there. Read behind a change that a majority agreed to, as by look_at().
operation<zk_engine::all_views> zk_engine::find_all(std::string_view prefix, invocation how) {
  all_views out;
  std::deque<std::string> todo{how_.root};
  while (!todo.empty()) {
    std::vector<std::string> some;
    batch ask;
    if (todo.front() == how_.root) ask.agree(ensemble_->root());
    const auto from = ask.size();
    while (!todo.empty() && some.size() < most_asked_at_once) {
      ask.children(todo.front().empty() ? "/" : todo.front());
      some.push_back(std::move(todo.front()));
      todo.pop_front();
    }
    auto got = co_await ensemble_->ask(ask, how);
    if (!got) co_return as_reading(std::move(got).error());
    if (from > 0)
      if (const auto why = why_not_agreed((*got)[0]); why != code::ok)
        co_return refusal(why, {}, how_.url);
    for (std::size_t i = 0; i < some.size(); ++i) {
      const auto why = got->err(from + i);
      const bool is_closed = why == code::no_auth && some[i] != how_.root;
      if (why == code::no_node || is_closed) continue;
      const auto children = jute::read_children((*got)[from + i].rest);
      if (why != code::ok || !children) co_return refusal(why, {}, how_.url);
      walk(some[i], children->names, prefix, out, todo);
    }
  }
  co_return out;
}

// The name of the lock that has this folder; nothing: none has.
std::optional<std::string> zk_engine::name_at(std::string_view folder) const {
  if (folder.size() <= how_.root.size() + 1) return std::nullopt;
  auto name = decoded(folder.substr(how_.root.size() + 1));
  if (!name || !check_name(*name)) return std::nullopt;
  return folder_of(*name) == folder ? name : std::nullopt;
}

void zk_engine::walk(const std::string& folder, const std::vector<std::string_view>& children,
                     std::string_view prefix, all_views& found,
                     std::deque<std::string>& todo) const {
  const auto name = name_at(folder);
  const lock_queue queue{layout_, children};
  if (name && name->starts_with(prefix)) {
    if (queue.has_permits()) {
      found.semaphores.push_back(*name);
    } else if (!queue.empty()) {
      found.locks.emplace(*name, view_of(*name, folder, queue));
    }
  }
  for (const auto child : children) {
    if (read_contender(layout_, child)) continue;
    auto path = joined(folder, child);
    const auto below = name_at(path);  // none for the parts of a semaphore
    if (below && (below->starts_with(prefix) || prefix.starts_with(*below)))
      todo.push_back(std::move(path));
  }
}

operation<std::vector<lock_info>> zk_engine::do_list(std::string_view prefix, std::size_t limit,
                                                     invocation how) {
  if (!caps_.listing) co_return no_listing();
  auto found = co_await find_all(prefix, how);
  if (!found) co_return std::move(found).error();
  auto semaphores = co_await look_at_all(found->semaphores, how);
  if (!semaphores) co_return std::move(semaphores).error();
  for (auto& one : *semaphores) {
    auto name = one.info.name;
    found->locks.insert_or_assign(std::move(name), std::move(one));
  }
  std::vector<view> some;
  for (auto& [name, one] : found->locks)
    if (some.size() < limit) some.push_back(std::move(one));
  if (auto filled = co_await fill_in(some, how); !filled) co_return std::move(filled).error();
  std::vector<lock_info> out;
  for (auto& one : some) out.push_back(std::move(one.info));
  co_return out;
}

// ---- taking away

// Waiters are served by that, as by any release. What is created from now on has a larger token.
operation<std::size_t> zk_engine::do_revoke(std::string_view name, invocation how) {
  auto seen = co_await look_at(name, how);
  if (!seen) co_return std::move(seen).error();
  auto paths = seen->holders;
  if (seen->info.capacity != rw_capacity && layout_.has_permits) {
    auto semaphore = co_await look_at_semaphore(name, false, how);
    if (!semaphore) co_return std::move(semaphore).error();
    paths.clear();
    const auto folder = joined(folder_of(name), permits_segment);
    for (const auto& one : semaphore->permits) paths.push_back(joined(folder, one.name));
  }
  for (std::size_t from = 0; from < paths.size(); from += most_asked_at_once) {
    batch out;
    for (std::size_t i = from; i < std::min(paths.size(), from + most_asked_at_once); ++i)
      out.erase(paths[i]);
    auto got = co_await ensemble_->ask(out, how);
    if (!got) co_return about(std::move(got).error(), name);
    for (unsigned i = 0; i < out.size(); ++i)
      if (!got->ok(i) && got->err(i) != code::no_node)
        co_return refusal(got->err(i), name, how_.url);
  }
  co_return seen->info.holders.size();
}

}  // namespace holdfast::engines::zk
