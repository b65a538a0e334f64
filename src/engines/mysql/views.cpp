// What operators see and do.
#include "engines/mysql/mysql_engine.hpp"

#include <algorithm>

namespace holdfast::engines::mysql {

namespace {

constexpr std::size_t first_entry_column = 1 + lock_column::count;
constexpr std::size_t host_of_row = first_entry_column + entry_column::count,
                      pid_of_row = host_of_row + 1, host_of_entry = host_of_row + 2,
                      pid_of_entry = host_of_row + 3;

nanoseconds between(std::uint64_t later, std::uint64_t earlier) {
  return std::chrono::microseconds{static_cast<std::int64_t>(later) -
                                   static_cast<std::int64_t>(earlier)};
}

std::array<std::uint64_t, 2> client_of(const std::string& bytes) {
  std::array<std::uint64_t, 2> out{};
  for (std::size_t i = 0; i < bytes.size() && i < 16; ++i)
    out[i / 8] = out[i / 8] << 8U | static_cast<unsigned char>(bytes[i]);
  return out;
}

// The columns that both tables have, at their places.
holder_info describe(const row& from, std::size_t base, std::size_t client, std::size_t seq,
                     std::size_t mode, std::size_t weight, std::size_t token, std::size_t since,
                     std::size_t expires, std::size_t label, std::uint64_t now) {
  holder_info out;
  out.owner = {client_of(from.bytes(base + client)), from.number(base + seq)};
  out.mode = static_cast<lock_mode>(from.number(base + mode));
  out.weight = from.number(base + weight);
  out.token.value = from.number(base + token);
  out.age = std::max(between(now, from.number(base + since)), nanoseconds::zero());
  out.expires_in = between(from.number(base + expires), now);
  out.label = from.bytes(base + label);
  return out;
}

holder_info describe_row(const row& from, std::uint64_t now) {
  namespace c = lock_column;
  auto out = describe(from, 1, c::client, c::seq, c::mode, c::weight, c::token, c::since,
                      c::expires, c::label, now);
  out.host = from.bytes(host_of_row);
  out.pid = from.integer(pid_of_row);
  return out;
}

holder_info describe_entry(const row& from, std::uint64_t now) {
  namespace c = entry_column;
  auto out = describe(from, first_entry_column, c::client, c::seq, c::mode, c::weight, c::token,
                      c::since, c::expires, c::label, now);
  out.priority = static_cast<int>(from.integer(first_entry_column + c::priority));
  out.host = from.bytes(host_of_entry);
  out.pid = from.integer(pid_of_entry);
  return out;
}

void add_entry(const row& from, lock_info& to, std::uint64_t now) {
  namespace c = entry_column;
  constexpr auto at = first_entry_column;
  if (from.is_null(at + c::client)) return;
  const bool over = from.number(at + c::expires) <= now;
  switch (static_cast<entry_state>(from.number(at + c::state))) {
    case entry_state::holder:
    case entry_state::arrived:
      if (!over) to.holders.push_back(describe_entry(from, now));
      return;
    case entry_state::waiter: {
      const bool is_dead = from.number(at + c::push) != 0 && (from.number(at + c::listener) == 0 ||
                                                              from.number(at + c::is_present) == 0);
      if (over || is_dead) return;
      auto waiting = describe_entry(from, now);
      waiting.expires_in = {};
      to.waiters.push_back(std::move(waiting));
      return;
    }
    case entry_state::observer:
    case entry_state::lost:
      return;
  }
}

// Rows of the same name follow each other.
std::vector<lock_info> read_infos(const rows& from) {
  std::vector<lock_info> out;
  for (const auto& found_row : from) {
    const auto now = found_row.number(1 + lock_column::now);
    if (out.empty() || out.back().name != found_row.bytes(0)) {
      auto& fresh = out.emplace_back();
      fresh.name = found_row.bytes(0);
      fresh.capacity = found_row.number(1 + lock_column::capacity);
      fresh.version = found_row.number(1 + lock_column::fence);
      if (found_row.number(1 + lock_column::expires) > now)
        fresh.holders.push_back(describe_row(found_row, now));
    }
    add_entry(found_row, out.back(), now);
  }
  for (auto& info : out)
    if (info.holders.empty()) info.version = 0;
  return out;
}

}  // namespace

result<lock_info> mysql_engine::inspect(std::string_view name, const call& limits) {
  after_releases(name, limits);
  auto on = plain_.take(limits, name);
  if (!on) return std::move(on).error();
  auto found = (*on)->ask(sql().inspect, {name});
  if (!found) return std::move(found).error();
  auto infos = read_infos(*found);
  if (!infos.empty() && (!infos.front().holders.empty() || !infos.front().waiters.empty()))
    return std::move(infos.front());
  lock_info free;
  free.name = name;
  free.capacity = rw_capacity;
  return free;
}

result<std::vector<lock_info>> mysql_engine::list(std::string_view prefix, std::size_t limit,
                                                  const call& limits) {
  auto on = plain_.take(limits, prefix);
  if (!on) return std::move(on).error();
  auto found =
      (*on)->ask(sql().list, {prefix, std::uint64_t{prefix.size()}, prefix, std::uint64_t{limit}});
  if (!found) return std::move(found).error();
  auto out = read_infos(*found);
  std::erase_if(out,
                [](const lock_info& info) { return info.holders.empty() && info.waiters.empty(); });
  return out;
}

result<std::vector<counter_info>> mysql_engine::list_counters(std::string_view prefix,
                                                              std::size_t limit,
                                                              const call& limits) {
  auto on = plain_.take(limits, prefix);
  if (!on) return std::move(on).error();
  auto found = (*on)->ask(sql().list_counters,
                          {prefix, std::uint64_t{prefix.size()}, prefix, std::uint64_t{limit}});
  if (!found) return std::move(found).error();
  std::vector<counter_info> out;
  for (const auto& row : *found) {
    const auto keep = row.number(3);
    const auto left = keep == 0 ? no_expiry : between(row.number(2) + keep, row.number(4));
    out.push_back({row.bytes(0), row.integer(1), left});
  }
  return out;
}

result<std::size_t> mysql_engine::revoke(std::string_view name, const call& limits) {
  std::size_t count = 0;
  auto done = with_lock_rows(name, owner_id{client_, UINT64_MAX}, 0, limits,
                             [&](lock_rows& at) -> result<void> {
                               if (auto ok = at.expire(); !ok) return ok;
                               auto ended = at.revoke();
                               if (!ended) return std::move(ended).error();
                               count = *ended;
                               return {};
                             });
  if (!done) return std::move(done).error();
  return count;
}

}  // namespace holdfast::engines::mysql
