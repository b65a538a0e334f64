// Counters, as Curator's SharedCount has them: one node each, whose content is the number, in four bytes; here also in
// eight, where four are not enough. The version is the zxid of the last change. For how long an unchanged counter is
// kept is in a node of its own: Java compares the whole content when it changes it.
#include "engines/common/counter_rule.hpp"
#include "engines/zk/paths.hpp"
#include "engines/zk/zk_engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <limits>
#include <utility>

namespace holdfast::engines::zk {

struct stored_number {
  std::int64_t value = 0;
  std::chrono::milliseconds keep{};  // 0: for ever
};

namespace {

using namespace std::chrono_literals;
using jute::code;

constexpr std::size_t most_counters_at_once = 200;
constexpr nanoseconds swept_within = 10s;

std::string written(std::int64_t value) {
  std::string out;
  jute::writer to{out};
  if (value >= std::numeric_limits<std::int32_t>::min() &&
      value <= std::numeric_limits<std::int32_t>::max()) {
    to.integer(static_cast<std::int32_t>(value));
  } else {
    to.big(value);
  }
  return out;
}

std::optional<std::int64_t> read_number(std::string_view data) {
  jute::reader in{data};
  if (data.size() == 4) return in.integer();
  if (data.size() == 8) return in.big();
  return std::nullopt;
}

// Of the answers to add_look(). Nothing: the node is no counter.
std::optional<stored_number> read_stored(const answers& got, std::size_t at) {
  const auto node = jute::read_node(got[at].rest), kept = jute::read_node(got[at + 1].rest);
  const auto value = got.ok(at) && node ? read_number(node->data) : std::nullopt;
  if (!value) return std::nullopt;
  std::int64_t ms = 0;
  if (got.ok(at + 1) && kept)
    std::from_chars(kept->data.data(), kept->data.data() + kept->data.size(), ms);
  constexpr auto longest =
      std::chrono::duration_cast<std::chrono::milliseconds>(counter_request::longest_keep).count();
  return stored_number{*value, std::chrono::milliseconds{std::clamp<std::int64_t>(ms, 0, longest)}};
}

// By our wall clock against the leader's: it is about hours.
nanoseconds left_of(const stored_number& what, const jute::stat& stat) {
  using namespace std::chrono;
  if (what.keep.count() == 0) return no_expiry;
  const auto now = duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
  return milliseconds{stat.mtime} + what.keep - milliseconds{now};
}

bool has_been_overtaken(code why) {
  return why == code::bad_version || why == code::node_exists || why == code::no_node;
}

}  // namespace

// Reads, and writes if no client has written meanwhile; else reads again. Asked twice, an addition would count twice: a
// write that is not answered is not repeated. What one server tells may be old: a write of ours would be refused then,
// but an answer without a write is read behind a change that a majority agreed to.
operation<counter> zk_engine::do_count(const counter_request& ask, invocation how) {
  if (how_.latch_is_barrier) co_return co_await set_barrier(ask, how);
  const auto path = counter_path(how_.root, ask.name), kept_at = kept_path(how_.root, ask.name);
  const auto keep = std::chrono::duration_cast<std::chrono::milliseconds>(ask.keep);
  bool folder_missing = false, is_newest = ask.op == counter_op::read;
  for (;;) {
    batch look;
    if (is_newest) look.agree(ensemble_->root());
    const auto at = look.size();
    look.get(path).get(kept_at);
    auto got = co_await ensemble_->ask(look, how);
    if (!got) co_return as_reading(about(std::move(got).error(), ask.name));
    if (is_newest)
      if (const auto why = why_not_agreed((*got)[0]); why != code::ok)
        co_return refusal(why, ask.name, how_.url);
    for (const auto one : {at, at + 1})
      if (!got->ok(one) && got->err(one) != code::no_node)
        co_return refusal(got->err(one), ask.name, how_.url);
    const bool is_there = got->ok(at);
    auto before = read_stored(*got, at);
    if (is_there && !before) co_return no_counter(path);
    const auto stat = is_there ? jute::read_node((*got)[at].rest)->stat : jute::stat{};
    if (before && left_of(*before, stat) <= nanoseconds::zero()) before.reset();  // forgotten
    const auto change = change_of(ask, before ? std::optional{before->value} : std::nullopt);
    const bool is_unchanged = change.what == counter_change::kind::none;
    if (is_unchanged && !std::exchange(is_newest, true)) continue;
    if (is_unchanged)
      co_return as_counter(before.has_value(), change.applied, before ? before->value : 0,
                           stat.mzxid);

    batch write;
    if (folder_missing) {
      add_folders(write, counters_root(how_.root));
      add_folders(write, kept_root(how_.root));
    }
    const bool erases = change.what == counter_change::kind::erase;
    const bool is_kept = got->ok(at + 1);
    const bool keeps_anew =
        !erases && keep.count() != 0 && (!is_kept || !before || before->keep != keep);
    const auto kept_for = std::to_string(keep.count());
    write.multi([&](jute::multi& all) {
      if (erases) {
        all.erase(path, stat.version);
        if (is_kept) all.erase(kept_at);
      } else if (is_there) {
        all.set(path, written(change.value), stat.version);
      } else {
        all.create(creation(path, written(change.value), jute::create_mode::persistent));
      }
      if (keeps_anew && is_kept) all.set(kept_at, kept_for);
      if (keeps_anew && !is_kept)
        all.create(creation(kept_at, kept_for, jute::create_mode::persistent));
    });
    auto said = co_await ensemble_->ask(write, how);
    if (!said) co_return about(std::move(said).error(), ask.name);
    const auto& last = (*said)[write.size() - 1];
    const auto why = jute::failure_of(last);
    if (why == code::no_node && folder_missing && !is_there && !is_kept)
      co_return refusal(why, ask.name, how_.url);
    folder_missing = why == code::no_node;
    if (has_been_overtaken(why)) continue;
    if (why != code::ok) co_return refusal(why, ask.name, how_.url);
    if (erases) co_return as_counter(false, true, 0, 0);
    co_return as_counter(true, true, change.value, last.zxid);
  }
}

// Of the answers to a look at a counter and at how long it is kept.
nanoseconds zk_engine::counter_lasts(const answers& got) const {
  const auto stored = how_.latch_is_barrier ? std::nullopt : read_stored(got, 0);
  const auto node = jute::read_node(got[0].rest);
  return stored && node ? left_of(*stored, node->stat) : no_expiry;
}

not_done zk_engine::no_counter(std::string_view path) const {
  return {
      errc::misconfigured,
      fmt::format("{}: the node {} is no counter; another program has made it.", how_.url, path)};
}

// Curator's DistributedBarrier: a node that is there while it is closed, which is a count of 1; without it, 0.
operation<counter> zk_engine::set_barrier(const counter_request& ask, invocation how) {
  const auto path = counter_path(how_.root, ask.name);
  const bool is_count = ask.op == counter_op::compare_exchange ||
                        (ask.op != counter_op::add && ask.operand != 0 && ask.operand != 1) ||
                        (ask.op == counter_op::add && ask.operand > 0);
  if (is_count)
    co_return not_done{errc::unsupported,
                       fmt::format("{}: with latch=barrier a latch counts from 1 to 0, and there "
                                   "are no other barriers.",
                                   how_.url)};
  const bool closes =
      (ask.op == counter_op::create || ask.op == counter_op::store) && ask.operand == 1;
  const bool opens = ask.op == counter_op::erase ||
                     (ask.op == counter_op::add && ask.operand < 0) ||
                     (ask.op == counter_op::store && ask.operand == 0);
  batch out;
  if (closes) {
    add_folders(out, counters_root(how_.root));
    out.create(creation(path, {}, jute::create_mode::persistent));
  }
  if (opens) out.erase(path);
  if (!closes && !opens) out.agree(ensemble_->root());
  const auto at = out.size();
  out.exists(path);
  auto got = co_await ensemble_->ask(out, how);
  if (!got)
    co_return closes || opens ? about(std::move(got).error(), ask.name)
                              : as_reading(about(std::move(got).error(), ask.name));
  const auto done = closes || opens ? got->err(at - 1) : why_not_agreed((*got)[at - 1]);
  if (done != code::ok && done != (closes ? code::node_exists : code::no_node))
    co_return refusal(done, ask.name, how_.url);
  if (!got->ok(at) && got->err(at) != code::no_node)
    co_return refusal(got->err(at), ask.name, how_.url);
  const auto stat = jute::read_stat((*got)[at].rest);
  const bool is_there = got->ok(at) && stat;
  const bool applied = done == code::ok || ask.op == counter_op::store || ask.op == counter_op::add;
  co_return as_counter(ask.op != counter_op::erase, applied, is_there ? 1 : 0,
                       is_there ? stat->mzxid : 0);
}

operation<std::vector<counter_info>> zk_engine::do_list_counters(std::string_view prefix,
                                                                 std::size_t limit,
                                                                 invocation how) {
  if (!caps_.listing) co_return no_listing();
  const auto root = counters_root(how_.root);
  batch ask;
  ask.agree(ensemble_->root()).children(root);
  auto got = co_await ensemble_->ask(ask, how);
  if (!got) co_return as_reading(std::move(got).error());
  if (const auto why = why_not_agreed((*got)[0]); why != code::ok)
    co_return refusal(why, {}, how_.url);
  std::vector<counter_info> out;
  if (got->err(1) == code::no_node) co_return out;
  const auto children = jute::read_children((*got)[1].rest);
  if (!got->ok(1) || !children) co_return refusal(got->err(1), {}, how_.url);
  std::vector<std::string> names;
  for (const auto child : children->names)
    if (auto name = decoded(child); name && name->starts_with(prefix) && check_name(*name))
      names.push_back(std::move(*name));
  std::ranges::sort(names);
  batch forgotten;
  for (std::size_t from = 0; from < names.size() && out.size() < limit;
       from += most_counters_at_once) {
    const auto count = std::min(most_counters_at_once, names.size() - from);
    batch details;
    for (std::size_t i = 0; i < count; ++i)
      details.get(counter_path(how_.root, names[from + i]))
          .get(kept_path(how_.root, names[from + i]));
    auto said = co_await ensemble_->ask(details, how);
    if (!said) co_return as_reading(std::move(said).error());
    for (std::size_t i = 0; i < count && out.size() < limit; ++i) {
      const auto node = jute::read_node((*said)[2 * i].rest);
      auto value = read_stored(*said, 2 * i);
      if (how_.latch_is_barrier && said->ok(2 * i)) value = stored_number{1};
      if (!value || !node) continue;
      const auto left = left_of(*value, node->stat);
      if (left > nanoseconds::zero()) {
        out.push_back({names[from + i], value->value, left});
      } else if (forgotten.size() < most_counters_at_once) {
        forgotten.multi([&](jute::multi& both) {
          both.erase(counter_path(how_.root, names[from + i]), node->stat.version);
          both.erase(kept_path(how_.root, names[from + i]));
        });
      }
    }
  }
  // Nobody else takes them away. One that was changed since is refused, and stays.
  if (forgotten.size() > 0)
    ensemble_->ask_in_background(std::move(forgotten), swept_within, [](const result<answers>&) {});
  co_return out;
}

}  // namespace holdfast::engines::zk
