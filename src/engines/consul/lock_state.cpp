#include "engines/consul/lock_state.hpp"

#include "engines/common/modes.hpp"
#include "support/text.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>

namespace holdfast::engines::consul {

namespace {

using nlohmann::json;

constexpr std::string_view owner_leaf = ".owner-";

struct character_range {
  char32_t first, last;
};
// Letters, signs and ideographs that are as old as Unicode; what is not here is only longer in a key.
constexpr std::array<character_range, 12> printable_ranges{{
    {0x20, 0x7e},
    {0xa1, 0xac},
    {0xae, 0x17f},
    {0x391, 0x3a1},
    {0x3a3, 0x3c9},
    {0x410, 0x44f},
    {0x3001, 0x3003},
    {0x3041, 0x3094},
    {0x30a1, 0x30fa},
    {0x4e00, 0x9fa5},
    {0xac00, 0xd7a3},
    {0xff01, 0xff5e},
}};
bool is_printable_everywhere(char32_t c) {
  return std::ranges::any_of(
      printable_ranges, [c](const character_range& of) { return of.first <= c && c <= of.last; });
}

template <class N>
std::optional<N> hex_number(std::string_view text) {
  N out{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), out, 16);
  if (code != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return out;
}

// ".owner-<32 digits of the client>-<sequence>", as to_string(owner) writes it.
std::optional<owner_id> owner_in(std::string_view leaf) {
  constexpr std::size_t client_digits = 32;
  leaf.remove_prefix(owner_leaf.size());
  if (leaf.size() <= client_digits + 1 || leaf[client_digits] != '-') return std::nullopt;
  const auto high = hex_number<std::uint64_t>(leaf.substr(0, 16));
  const auto low = hex_number<std::uint64_t>(leaf.substr(16, 16));
  const auto sequence = hex_number<std::uint64_t>(leaf.substr(client_digits + 1));
  if (!high || !low || !sequence) return std::nullopt;
  return owner_id{{*high, *low}, *sequence};
}

template <class N>
N number_in(const json& from, const char* key, N fallback) {
  const auto at = from.find(key);
  return at != from.end() && at->is_number_integer() ? at->get<N>() : fallback;
}
std::string safe_text_in(const json& from, const char* key) {
  const auto at = from.find(key);
  if (at == from.end() || !at->is_string()) return {};
  auto out = at->get<std::string>();
  return support::is_utf8(out) && !support::has_control(out) ? out : std::string{};
}

// What is damaged counts as a writer that waits: it keeps its place, and the session that wrote it removes it.
queue_entry entry_in(const kv_pair& pair, const owner_id& owner) {
  queue_entry out;
  out.key = pair.key;
  out.session = pair.session;
  out.owner = owner;
  out.created = static_cast<std::int64_t>(pair.created);
  out.modified = pair.modified;
  out.token = {pair.modified};
  const auto in = json::parse(pair.value, nullptr, false);
  if (!in.is_object()) return out;
  out.mode = mode_of(safe_text_in(in, "mode")).value_or(lock_mode::exclusive);
  out.weight = weight_of(out.mode);
  if (out.mode == lock_mode::permits) {
    const auto count = [&in](const char* key, std::int64_t fallback) {
      constexpr auto most = static_cast<std::int64_t>(rw_capacity);
      return static_cast<std::uint64_t>(
          std::clamp<std::int64_t>(number_in<std::int64_t>(in, key, fallback), 1, most));
    };
    out.weight = count("permits", 1);
    out.capacity = count("of", static_cast<std::int64_t>(out.weight));
  }
  out.entered = number_in<int>(in, "holds", 0) == 1;
  out.replaces = number_in<std::int64_t>(in, "replaces", 0);
  out.token = {number_in<std::uint64_t>(in, "token", pair.modified)};
  out.since_ms = number_in<std::int64_t>(in, "since", 0);
  out.pid = number_in<std::int64_t>(in, "pid", 0);
  out.host = safe_text_in(in, "host");
  out.label = safe_text_in(in, "label");
  constexpr std::int64_t longest_session = 24 * 3'600'000;
  out.session_lasts = std::chrono::milliseconds{
      std::clamp<std::int64_t>(number_in<std::int64_t>(in, "session", 0), 0, longest_session)};
  const auto sessions = in.find("sessions");
  if (sessions != in.end() && sessions->is_array())
    for (const auto& one : *sessions)
      if (one.is_string()) out.permit_sessions.push_back(one.get<std::string>());
  return out;
}

bool is_one_of(const std::vector<std::string>& all, std::string_view one) {
  return std::ranges::find(all, one) != all.end();
}

}  // namespace

// ---- keys

std::string encoded_name(std::string_view name) {
  std::string out;
  while (!name.empty()) {
    const auto c = support::next_code_point(name).value_or(support::code_point{0, 1});
    const auto bytes = name.substr(0, c.bytes);
    if (c.value != U'%' && is_printable_everywhere(c.value)) {
      out += bytes;
    } else {
      for (const char byte : bytes) out += fmt::format("%{:02X}", static_cast<unsigned char>(byte));
    }
    name.remove_prefix(c.bytes);
  }
  return out;
}
std::optional<std::string> listed_prefix(std::string_view prefix) {
  for (std::size_t at = 0;;) {
    const auto end = prefix.find('/', at);
    const auto segment = prefix.substr(at, end - at);
    const bool is_rewritten = segment.empty() || segment == "." || segment == "..";
    if (end == std::string_view::npos)
      return encoded_name(is_rewritten ? prefix.substr(0, at) : prefix);
    if (is_rewritten) return std::nullopt;
    at = end + 1;
  }
}
bool is_printable(std::string_view text) {
  while (!text.empty()) {
    const auto c = support::next_code_point(text);
    if (!c || !is_printable_everywhere(c->value)) return false;
    text.remove_prefix(c->bytes);
  }
  return true;
}

lock_keys keys_of(std::string_view root, std::string_view name) {
  lock_keys out;
  out.folder = fmt::format("{}{}/", root, encoded_name(name));
  out.lock = out.folder + ".lock";
  out.queue = out.folder + ".queue";
  out.readers = out.folder + ".readers";
  return out;
}
std::string counter_key(std::string_view root, std::string_view name) {
  return fmt::format("{}{}/{}", root, encoded_name(name), counter_leaf);
}
std::string epoch_key(std::string_view root, std::string_view session) {
  return fmt::format("{}.epoch-{}", root, session);
}
std::string owner_key(const lock_keys& of, const owner_id& owner) {
  return fmt::format("{}{}{}", of.folder, owner_leaf, to_string(owner));
}
std::string permit_key(std::string_view owner_key, std::size_t number) {
  return fmt::format("{}.{}", owner_key, number);
}

std::optional<key_parts> split_key(std::string_view root, std::string_view key) {
  if (!key.starts_with(root)) return std::nullopt;
  key.remove_prefix(root.size());
  const auto slash = key.rfind('/');
  if (slash == std::string_view::npos || slash == 0) return std::nullopt;
  auto name = support::percent_decode(key.substr(0, slash));
  if (!name || encoded_name(*name) != key.substr(0, slash)) return std::nullopt;
  return key_parts{std::move(*name), key.substr(slash + 1)};
}
bool is_lock_leaf(std::string_view leaf) { return leaf == ".lock" || leaf.starts_with(owner_leaf); }

std::string entry_value(const queue_entry& what) {
  json out{{"mode", std::string(1, letter_of(what.mode))}, {"since", what.since_ms}};
  if (what.mode == lock_mode::permits) {
    out["permits"] = what.weight;
    out["of"] = what.capacity;
  }
  if (what.entered) out["holds"] = 1;
  if (what.replaces != 0) out["replaces"] = what.replaces;
  if (what.token.value != 0) out["token"] = what.token.value;
  if (!what.permit_sessions.empty()) out["sessions"] = what.permit_sessions;
  out["session"] = what.session_lasts.count();
  out["pid"] = what.pid;
  out["host"] = what.host;
  if (!what.label.empty()) out["label"] = what.label;
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

// ---- state

lock_state::lock_state(const std::vector<kv_pair>& pairs, const lock_keys& keys,
                       std::uint64_t index)
    : newest_(index), size_(pairs.size()) {
  std::vector<queue_entry> entries;
  std::vector<std::string> alive;
  for (const auto& pair : pairs) {
    if (!pair.key.starts_with(keys.folder)) continue;
    const std::string_view leaf = std::string_view{pair.key}.substr(keys.folder.size());
    if (leaf.find('/') != std::string_view::npos) continue;
    newest_ = std::max(newest_, pair.modified);
    if (pair.key == keys.lock) {
      lock_ = pair;
      continue;
    }
    if (pair.key == keys.queue) queue_index_ = pair.modified;
    if (pair.key == keys.readers) readers_index_ = pair.modified;
    if (!pair.session.empty()) alive.push_back(pair.session);
    if (!leaf.starts_with(owner_leaf)) continue;
    if (pair.session.empty()) {
      dead_.push_back(pair);
    } else if (const auto owner = owner_in(leaf)) {
      entries.push_back(entry_in(pair, *owner));
    }
  }
  // Not of api.Lock, whatever it says: then it is not in use as a semaphore.
  if (lock_ && lock_->flags == semaphore_flags && lock_->session.empty())
    semaphore_ = read_semaphore(lock_->value);
  if (semaphore_)
    std::erase_if(semaphore_->holders, [&](const auto& one) { return !is_one_of(alive, one); });
  add_foreign_holders(entries);
  queue_ = ordered_queue<queue_entry>{std::move(entries)};
}

// They stand for what other programs hold, before all that came later.
void lock_state::add_foreign_holders(std::vector<queue_entry>& to) const {
  queue_entry other;
  other.foreign = other.entered = true;
  other.key = lock_ ? lock_->key : std::string{};
  other.modified = lock_ ? lock_->modified : 0;
  if (lock_ && !lock_->session.empty()) {
    const bool is_ours = std::ranges::any_of(to, [&](const queue_entry& entry) {
      return entry.entered && entry.session == lock_->session;
    });
    if (is_ours) return;
    other.session = lock_->session;
    other.created = static_cast<std::int64_t>(lock_->created);
    other.token = {lock_->modified};
    to.push_back(std::move(other));
    return;
  }
  if (!semaphore_) return;
  other.mode = lock_mode::permits;
  other.weight = 1;
  other.capacity = semaphore_->limit;
  std::int64_t place = 0;  // before every key; no two are alike
  for (const auto& session : semaphore_->holders) {
    const bool is_ours = std::ranges::any_of(to, [&](const queue_entry& entry) {
      return entry.entered && !entry.foreign && is_one_of(entry.permit_sessions, session);
    });
    if (is_ours) continue;
    other.session = session;
    other.created = --place;
    to.push_back(other);
  }
}

bool lock_state::is_true(const queue_entry& holder) const noexcept {
  if (holder.mode == lock_mode::exclusive) return lock_session() == holder.session;
  if (holder.mode == lock_mode::permits) return counts_all(holder.permit_sessions);
  return !is_held_by_others();
}
bool lock_state::counts_all(const std::vector<std::string>& permit_sessions) const noexcept {
  return semaphore_ && std::ranges::all_of(permit_sessions, [this](const std::string& session) {
           return is_one_of(semaphore_->holders, session);
         });
}
bool lock_state::is_lock_ours() const noexcept {
  return lock_ && !lock_->session.empty() &&
         std::ranges::any_of(queue_.all(), [&](const queue_entry& entry) {
           return entry.entered && !entry.foreign && entry.session == lock_->session;
         });
}
bool lock_state::anybody_holds() const noexcept {
  return std::ranges::any_of(queue_.all(), &queue_entry::entered);
}
bool lock_state::holds_beside(const queue_entry& except) const noexcept {
  return std::ranges::any_of(queue_.all(), [&](const queue_entry& entry) {
    return entry.entered && entry.key != except.key;
  });
}
bool lock_state::anybody_waits(const owner_id& except) const noexcept {
  return std::ranges::any_of(queue_.all(), [&](const queue_entry& entry) {
    return !entry.entered && entry.owner != except;
  });
}
const queue_entry* lock_state::waiter_before(const queue_entry& own) const noexcept {
  const queue_entry* out = nullptr;
  for (const auto& entry : queue_.all()) {
    if (entry.created >= own.created) break;
    if (!entry.entered) out = &entry;
  }
  return out;
}

std::uint64_t lock_state::version() const noexcept {
  std::uint64_t sum = 0xcbf29ce484222325U;
  bool any = false;
  for (const auto& entry : queue_.all()) {
    if (!entry.entered) continue;
    any = true;
    for (const auto part :
         {entry.token.value, static_cast<std::uint64_t>(entry.created), entry.weight})
      sum = (sum ^ part) * 0x100000001b3U;
  }
  return any ? std::max<std::uint64_t>(sum, 1) : 0;
}

}  // namespace holdfast::engines::consul
