// Counters: one key each, whose value is the number, and until when it is kept. The version is the index of the last
// change; so that every write is one, a stamp is written along.
#include "engines/common/counter_rule.hpp"
#include "engines/consul/consul_engine.hpp"

#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>

namespace holdfast::engines::consul {

// Not in the unnamed namespace: coroutines keep it in their frames.
struct stored_count {
  std::int64_t value = 0;
  std::int64_t keep_ms = 0;   // 0: for ever
  std::int64_t until_ms = 0;  // by the wall clock of the client that wrote it: it is about hours
};

namespace {

std::int64_t wall_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

// "NUMBER KEEP UNTIL STAMP".
std::optional<stored_count> read_count(std::string_view text) {
  stored_count out;
  for (auto* part : {&out.value, &out.keep_ms, &out.until_ms}) {
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), *part);
    if (code != std::errc{}) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (!text.starts_with(' ')) return std::nullopt;
    text.remove_prefix(1);
  }
  // Others may have written it.
  constexpr std::int64_t longest =
      std::chrono::duration_cast<std::chrono::milliseconds>(counter_request::longest_keep).count();
  out.keep_ms = std::clamp<std::int64_t>(out.keep_ms, 0, longest);
  return out;
}

// Not more than it is kept for: a clock may have been wrong.
nanoseconds time_left(const stored_count& what) {
  if (what.keep_ms == 0) return no_expiry;
  const auto now = wall_ms();
  if (what.until_ms <= now) return nanoseconds::zero();
  return std::chrono::milliseconds{std::min(what.until_ms - now, what.keep_ms)};
}

std::string count_text(const stored_count& what, std::string_view stamp) {
  return fmt::format("{} {} {} {}", what.value, what.keep_ms, what.until_ms, stamp);
}

}  // namespace

nanoseconds consul_engine::counter_lasts(const kv_pair& of) const {
  const auto in = read_count(of.value);
  return in ? time_left(*in) : no_expiry;
}

// Reads, and writes if no client has written meanwhile; else reads again. Asked twice, an addition would count twice: a
// write that is not answered is not repeated.
operation<counter> consul_engine::do_count(const counter_request& ask, invocation how) {
  const auto key = counter_key(how_.root, ask.name);
  const auto keep = std::chrono::duration_cast<std::chrono::milliseconds>(ask.keep).count();
  for (;;) {
    auto tree = co_await read_tree(key, ask.name, how);
    if (!tree) co_return std::move(tree).error();
    const auto at = std::ranges::find(tree->pairs, key, &kv_pair::key);
    const bool is_there = at != tree->pairs.end();
    auto before = is_there ? read_count(at->value) : std::nullopt;
    if (is_there && !before)
      co_return not_done{errc::misconfigured,
                         fmt::format("{}: {} is there, and no counter of Holdfast.", how_.url,
                                     support::quoted(key))};
    const auto version = is_there ? at->modified : 0;
    if (before && time_left(*before) <= nanoseconds::zero()) before.reset();  // forgotten
    const auto change = change_of(ask, before ? std::optional{before->value} : std::nullopt);
    if (change.what == counter_change::kind::none)
      co_return as_counter(before.has_value(), change.applied, before ? before->value : 0,
                           static_cast<std::int64_t>(version));
    transaction out;
    out.check_as_seen(key, version);
    if (change.what == counter_change::kind::erase) {
      out.erase(key);
    } else {
      stored_count now{change.value, before ? before->keep_ms : 0};
      if (keep > 0) now.keep_ms = keep;
      if (now.keep_ms != 0) now.until_ms = wall_ms() + now.keep_ms;
      out.set(key, count_text(now, stamp()));
    }
    const question write{question::verb::put, "/v1/txn", out.body(), false};
    auto said = co_await agent_->ask(write, how);
    auto got = read_txn_reply(std::move(said), out, ask.name, how_.url);
    if (!got) co_return std::move(got).error();
    if (!got->done() && got->repeated)
      co_return error{errc::outcome_unknown,
                      fmt::format("Counter {} on {}: the request was sent twice, because a "
                                  "connection had been closed, and one of the two was refused.",
                                  support::quoted(ask.name), how_.url)};
    if (!got->done()) continue;
    if (change.what == counter_change::kind::erase) co_return as_counter(false, true, 0, 0);
    co_return as_counter(true, true, change.value, static_cast<std::int64_t>(got->index_of(key)));
  }
}

operation<std::vector<counter_info>> consul_engine::do_list_counters(std::string_view prefix,
                                                                     std::size_t limit,
                                                                     invocation how) {
  const auto asked = listed_prefix(prefix);
  if (!asked) co_return std::vector<counter_info>{};
  auto tree = co_await read_tree(how_.root + *asked, {}, how);
  if (!tree) co_return std::move(tree).error();
  std::vector<counter_info> out;
  for (const auto& pair : tree->pairs) {
    const auto parts = split_key(how_.root, pair.key);
    if (!parts || parts->leaf != counter_leaf || !check_name(parts->name) ||
        !parts->name.starts_with(prefix))
      continue;
    const auto in = read_count(pair.value);
    if (!in || time_left(*in) <= nanoseconds::zero()) continue;
    out.push_back({parts->name, in->value, time_left(*in)});
  }
  std::ranges::sort(out, {}, &counter_info::name);
  if (out.size() > limit) out.resize(limit);
  co_return out;
}

}  // namespace holdfast::engines::consul
