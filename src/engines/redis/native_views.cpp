// The native layout for operators, counters and watches.
#include "engines/common/watch_loop.hpp"
#include "engines/redis/diagnose.hpp"
#include "engines/redis/native.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace holdfast::engines::redis {

namespace {

constexpr std::size_t most_at_once = 128;  // names that are asked about in one round trip

std::string topic_of(watch_kind kind, std::string_view name) {
  return std::string{kind == watch_kind::counter ? "p" : "o"}.append(name);
}

}  // namespace

// ---- operators

command native::inspect_command(std::string_view name) const {
  command what{scripts::inspect(), 2, 0};
  what << key('l', name) << token_key(name);
  return what;
}

operation<lock_info> native::do_inspect(std::string_view name, invocation how) {
  auto what = inspect_command(name);
  const auto got = co_await connections_->ask(connections_->of(name), what, name, how);
  co_return read_inspected(got, name);
}

result<lock_info> native::read_inspected(const result<answer>& got, std::string_view name) const {
  if (!got) return got.error();
  if (auto info = read_info(got->values.front(), name)) return std::move(*info);
  lock_info free;
  free.name = name;
  free.capacity = rw_capacity;
  return free;
}

// In a cluster there is a tag between the prefix and the kind, and the names of one shard have several.
operation<std::vector<std::string>> native::names_of(char kind, std::string_view prefix,
                                                     invocation how) {
  if (!how_.in_cluster) {
    const auto head = key(kind, {});
    co_return co_await connections_->scan(head, prefix, how);
  }
  auto pattern = fmt::format("{}{{*}}{}:{}*", connections::as_pattern(how_.prefix), kind,
                             connections::as_pattern(prefix));
  auto keys = co_await connections_->keys_like(std::move(pattern), how);
  if (!keys) co_return std::move(keys).error();
  for (auto& found : *keys) found.erase(0, found.find('}', how_.prefix.size()) + 3);
  std::ranges::sort(*keys);
  co_return std::move(keys);
}

operation<std::vector<lock_info>> native::do_list(std::string_view prefix, std::size_t limit,
                                                  invocation how) {
  auto names = co_await names_of('l', prefix, how);
  if (!names) co_return std::move(names).error();
  std::vector<lock_info> out;
  std::size_t length = 1;  // the first alone: so the server knows the script
  for (auto left = std::span<const std::string>{*names}; !left.empty() && out.size() < limit;) {
    const auto some = left.first(std::min(length, left.size()));
    auto ok = co_await inspect_some(some, out, how);
    if (!ok) co_return std::move(ok).error();
    left = left.subspan(some.size());
    length = most_at_once;
  }
  if (out.size() > limit) out.resize(limit);
  co_return out;
}

// In one round trip. Names that are free by now are left out.
operation<void> native::inspect_some(std::span<const std::string> names,
                                     std::vector<lock_info>& out, invocation how) {
  auto what = inspect_command(names.front());
  for (const auto& name : names.subspan(1)) what.then(inspect_command(name));
  const auto got =
      co_await connections_->ask(connections_->of(names.front()), what, names.front(), how);
  if (!got) co_return got.error();
  for (std::size_t i = 0; i < names.size(); ++i)
    if (auto info = read_info(got->values[i], names[i])) out.push_back(std::move(*info));
  co_return result<void>{};
}

operation<std::vector<counter_info>> native::do_list_counters(std::string_view prefix,
                                                              std::size_t limit, invocation how) {
  auto names = co_await names_of('n', prefix, how);
  if (!names) co_return std::move(names).error();
  std::vector<counter_info> out;
  for (auto left = std::span<const std::string>{*names}; !left.empty() && out.size() < limit;) {
    const auto some = left.first(std::min(most_at_once, left.size()));
    auto ok = co_await read_counters(some, out, how);
    if (!ok) co_return std::move(ok).error();
    left = left.subspan(some.size());
  }
  if (out.size() > limit) out.resize(limit);
  co_return out;
}

// In one round trip. What is gone by now, or is no counter of this layout, is left out.
operation<void> native::read_counters(std::span<const std::string> names,
                                      std::vector<counter_info>& out, invocation how) {
  command what({"HGET", key('n', names.front()), "v"});
  for (const auto& name : names) {
    if (&name != &names.front()) what.then({"HGET", key('n', name), "v"});
    what.then({"PTTL", key('n', name)});
  }
  what.keep_errors();
  const auto got =
      co_await connections_->ask(connections_->of(names.front()), what, names.front(), how);
  if (!got) co_return got.error();
  if (const auto* refused = refusal_in(*got))
    co_return reply_error(refused->text, names.front(), how_.url);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto value = count_in(got->values[2 * i]);
    const auto& left = got->values[2 * i + 1];
    if (value && is_there(left)) out.push_back({names[i], *value, time_left(left.integer)});
  }
  co_return result<void>{};
}

operation<std::size_t> native::do_revoke(std::string_view name, invocation how) {
  command what{scripts::revoke(), 2, 0};
  what << key('l', name) << token_key(name);
  const auto got = co_await connections_->ask(connections_->of(name), what, name, how);
  if (!got) co_return got.error();
  co_return static_cast<std::size_t>(got->values.front().integer);
}

result<std::vector<finding>> native::diagnose(const call& limits) {
  return redis::diagnose(*connections_, how_, limits);
}

// ---- counters and watching

operation<counter> native::do_count(const counter_request& ask, invocation how) {
  auto what = count_command(ask);
  const auto got = co_await connections_->ask(connections_->of(ask.name), what, ask.name, how);
  co_return read_count(got, ask.name);
}

// The store is asked to tell us, and for the version, in one script.
class native::watching final : public engines::watch_loop {
 public:
  watching(native& in, watch_kind kind, std::string_view name, std::uint64_t seen,
           const call& limits, completion<void>& done)
      : engines::watch_loop(in.clock_, limits, done),
        in_(in),
        kind_(kind),
        name_(name),
        seen_(seen) {}

 private:
  void listen(const call& until) override {
    in_.waits_->for_change(topic_of(kind_, name_), until,
                           [this](const std::optional<pushed_grant>&) { heard(); });
  }
  void look(const call& until) override {
    in_.connections_->post(in_.connections_->of(name_), in_.observe_command(kind_, name_), until,
                           name_, [this](const result<answer>& got) { saw(read(got)); });
  }
  bool is_ending() const override { return in_.ending_; }
  // Other watches of the same name look again, too.
  void wake() override { in_.waits_->changed(topic_of(kind_, name_)); }
  // The timer is not cancelled, and a reactor that is shared may run it after the engine is gone.
  void wake_at(steady_time when) override {
    in_.connections_->driver().at(when,
                                  [in = std::weak_ptr{in_.waits_}, topic = topic_of(kind_, name_)] {
                                    if (const auto waiting = in.lock()) waiting->changed(topic);
                                  });
  }
  result<sight> read(const result<answer>& got) const {
    if (!got) return got.error();
    sight out;
    const auto& items = got->values.front().items;
    if (items.size() != 2) return out;
    std::uint64_t version = 0;
    const auto text = items[0].text;
    std::from_chars(text.data(), text.data() + text.size(), version);
    out.changed = version != seen_;
    out.again = clock_.now() + std::chrono::milliseconds{items[1].integer};
    return out;
  }

  native& in_;
  const watch_kind kind_;
  const std::string_view name_;
  const std::uint64_t seen_;
};

void native::start_watch(watch_kind kind, std::string_view name, std::uint64_t seen,
                         const call& limits, completion<void>& done) noexcept {
  (new watching{*this, kind, name, seen, limits, done})->begin();
}

}  // namespace holdfast::engines::redis
