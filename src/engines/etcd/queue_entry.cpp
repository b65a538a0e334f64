#include "engines/etcd/queue_entry.hpp"

#include "support/text.hpp"

#include <etcd/rpc.pb.h>
#include <fmt/format.h>

#include <charconv>

namespace holdfast::engines::etcd {

namespace {

// No name has a segment ".".
constexpr std::string_view counters = "./counters/";
constexpr std::string_view epochs = "./fences/";

template <class N>
std::optional<N> number(std::string_view text, int base) {
  N out{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), out, base);
  if (code != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return out;
}

std::string_view next_part(std::string_view& text, char divider) {
  const auto end = std::min(text.find(divider), text.size());
  const auto out = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return out;
}

bool read_spec(std::string_view text, queue_entry& out) {
  const auto mode = mode_of(next_part(text, '.'));
  if (!mode) return false;
  out.mode = *mode;
  out.weight = weight_of(*mode);
  if (*mode == lock_mode::permits) {
    const auto weight = number<std::uint64_t>(next_part(text, '.'), 10);
    const auto capacity = number<std::uint64_t>(next_part(text, '.'), 10);
    if (!weight || !capacity || *weight == 0 || *weight > *capacity) return false;
    out.weight = *weight;
    out.capacity = *capacity;
  }
  if (text.starts_with('r')) {
    const auto replaces = number<std::int64_t>(text.substr(1), 16);
    if (!replaces) return false;
    out.replaces = *replaces;
  } else if (!text.empty()) {
    return false;
  }
  return true;
}

bool read_owner(std::string_view sequence, std::string_view client, owner_id& out) {
  if (client.size() != 32) return false;
  const auto high = number<std::uint64_t>(client.substr(0, 16), 16);
  const auto low = number<std::uint64_t>(client.substr(16), 16);
  const auto count = number<std::uint64_t>(sequence, 16);
  if (!high || !low || !count) return false;
  out = {{*high, *low}, *count};
  return true;
}

bool read_own_form(std::string_view suffix, queue_entry& out) {
  if (!number<std::uint64_t>(next_part(suffix, '-'), 16))
    return false;  // the lease, known from etcd
  const auto sequence = next_part(suffix, '-');
  const auto client = next_part(suffix, '-');
  if (!read_owner(sequence, client, out.owner)) return false;
  if (!read_spec(next_part(suffix, '-'), out)) return false;
  const auto since_part = next_part(suffix, '-');
  out.reused = since_part.empty();
  const auto since = out.reused ? 0 : number<std::int64_t>(since_part, 16);
  const auto pid = number<std::int64_t>(next_part(suffix, '-'), 10);
  auto host = support::percent_decode(suffix);
  if (!since || !pid || !host || !support::is_utf8(*host) || support::has_control(*host))
    return false;
  out.since_ms = *since;
  out.pid = *pid;
  out.host = std::move(*host);
  return true;
}

// Hints, checked when they are used: what cannot be read ends the list.
std::vector<successor> read_successors(std::string_view text, std::string_view key) {
  std::vector<successor> out;
  while (!text.empty()) {
    auto word = next_part(text, ',');
    const auto suffix = next_part(word, ':');
    const auto created = number<std::int64_t>(next_part(word, ':'), 16);
    const auto sequence = number<std::uint64_t>(next_part(word, ':'), 16);
    const auto since = number<std::int64_t>(word, 16);
    if (suffix.empty() || suffix.find('/') != std::string_view::npos) break;
    if (!created || !sequence || !since) break;
    out.push_back({std::string{key.substr(0, key.rfind('/') + 1)}.append(suffix), *created,
                   *created, *sequence, *since});
  }
  return out;
}

void read_marks(std::string_view text, queue_entry& out) {
  std::optional<std::uint64_t> token;
  bool granted = false;
  while (!text.empty()) {
    const auto word = next_part(text, ' ');
    if (word == "g") granted = true;
    if (out.reused && word.starts_with("o="))
      out.owner.sequence = number<std::uint64_t>(word.substr(2), 16).value_or(0);
    if (out.reused && word.starts_with("s="))
      out.since_ms = number<std::int64_t>(word.substr(2), 16).value_or(0);
    if (word.starts_with("t=")) token = number<std::uint64_t>(word.substr(2), 16);
    if (word.starts_with("c=")) out.calm = number<std::int64_t>(word.substr(2), 16).value_or(1);
    if (word.starts_with("n=")) out.successors = read_successors(word.substr(2), out.key);
    if (word.starts_with("m="))
      if (const auto mode = mode_of(word.substr(2))) {
        out.mode = *mode;
        out.weight = weight_of(*mode, out.weight);
      }
  }
  if (granted) out.token = {static_cast<std::uint64_t>(out.modified)};
  if (token) out.token = {*token};
  out.entered = granted || token.has_value();
}

std::string printable(std::string_view text) {
  if (support::is_utf8(text) && !support::has_control(text)) return std::string{text};
  const auto shown = support::quoted(text);
  return shown.substr(1, shown.size() - 2);
}

}  // namespace

std::string counter_key(std::string_view root, std::string_view name) {
  return std::string{root}.append(counters).append(name);
}

std::optional<std::int64_t> read_counter(std::string_view value) {
  return number<std::int64_t>(value, 10);
}

std::string epoch_key(std::string_view root, std::int64_t lease) {
  return fmt::format("{}{}{:x}", root, epochs, static_cast<std::uint64_t>(lease));
}

key_range keys_of(std::string_view root, std::string_view name) {
  key_range out;
  out.first.reserve(root.size() + name.size() + 1);
  out.first.append(root).append(name).append("/");
  out.end = out.first;
  out.end.back() = '/' + 1;
  return out;
}

key_range keys_of(std::string_view root, std::string_view name, std::int64_t lease) {
  return keys_from(fmt::format("{}{}/{:x}-", root, name, static_cast<std::uint64_t>(lease)));
}

// "\0" alone means "from the first key" and "to the last key".
key_range keys_from(std::string_view prefix) {
  key_range out{std::string{prefix}, std::string{prefix}};
  while (!out.end.empty() && static_cast<unsigned char>(out.end.back()) == 0xff) out.end.pop_back();
  if (out.end.empty()) {
    out.end.assign(1, '\0');
  } else {
    out.end.back() = static_cast<char>(static_cast<unsigned char>(out.end.back()) + 1);
  }
  if (out.first.empty()) out.first.assign(1, '\0');
  return out;
}

std::optional<std::string_view> name_in(std::string_view root, std::string_view key) {
  if (!key.starts_with(root)) return std::nullopt;
  key.remove_prefix(root.size());
  const auto slash = key.rfind('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const auto name = key.substr(0, slash);
  if (!check_name(name)) return std::nullopt;
  return name;
}

bool lies_in(const key_range& name, std::string_view key) noexcept {
  return key.starts_with(name.first) && key.find('/', name.first.size()) == std::string_view::npos;
}

std::string make_key(std::string_view root, std::string_view name, const key_parts& parts) {
  auto out = fmt::format("{}{}/{:x}-{:x}-{:016x}{:016x}-{}", root, name,
                         static_cast<std::uint64_t>(parts.lease),
                         parts.slot.value_or(parts.owner.sequence), parts.owner.client[0],
                         parts.owner.client[1], letter_of(parts.mode));
  const auto end = std::back_inserter(out);
  if (parts.mode == lock_mode::permits) fmt::format_to(end, ".{}.{}", parts.weight, parts.capacity);
  if (parts.replaces != 0) fmt::format_to(end, ".r{:x}", parts.replaces);
  fmt::format_to(end, "-{}-{}-{}", parts.slot ? "" : fmt::format("{:x}", parts.since_ms), parts.pid,
                 support::percent_encode(parts.host, ""));
  return out;
}

std::string make_value(std::string_view label, const marks& with) {
  std::string out{label};
  char divider = '\0';
  const auto add = [&](std::string_view word) {
    out += std::exchange(divider, ' ');
    out += word;
  };
  if (with.sequence != 0) {
    add(fmt::format("o={:x}", with.sequence));
    add(fmt::format("s={:x}", with.since_ms));
  }
  if (with.granted) add("g");
  if (with.mode) add(std::string{"m="} + letter_of(*with.mode));
  if (with.token) add(fmt::format("t={:x}", with.token->value));
  if (with.called != 0) add(fmt::format("c={:x}", with.called));
  if (!with.successors.empty()) {
    add("n=");
    for (const auto& next : with.successors) {
      const auto suffix = std::string_view{next.key}.substr(next.key.rfind('/') + 1);
      fmt::format_to(std::back_inserter(out), "{}{}:{:x}:{:x}:{:x}", out.back() == '=' ? "" : ",",
                     suffix, next.created, next.sequence, next.since_ms);
    }
  }
  return out;
}

queue_entry read_queue_entry(const stored_key& from) {
  queue_entry out;
  const auto suffix = from.key.substr(from.key.rfind('/') + 1);
  if (read_own_form(suffix, out)) {
    out.foreign = false;
  } else {
    out = queue_entry{};  // it may have been read half-way
    out.foreign = true;
    out.owner = {{static_cast<std::uint64_t>(from.lease), 0},
                 static_cast<std::uint64_t>(from.created)};
  }
  out.key = from.key;
  out.created = from.created;
  out.modified = from.modified;
  out.version = from.version;
  out.lease = from.lease;
  out.token = {static_cast<std::uint64_t>(from.created)};
  const auto end = out.foreign ? std::string_view::npos : from.value.find('\0');
  out.label = printable(from.value.substr(0, end));
  if (end != std::string_view::npos) read_marks(from.value.substr(end + 1), out);
  return out;
}

queue_entry read_queue_entry(const rpc::KeyValue& from) {
  return read_queue_entry(stored_key{from.key(), from.value(), from.create_revision(),
                                     from.mod_revision(), from.lease(), from.version()});
}

}  // namespace holdfast::engines::etcd
