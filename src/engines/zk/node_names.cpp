#include "engines/zk/node_names.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>

namespace holdfast::engines::zk {

namespace {

constexpr std::string_view protection = "_c_";

constexpr std::array layouts{
    layout{.name = "curator",
           .programs = "Curator",
           .mutex = "lock-",
           .writer = "__WRIT__",
           .reader = "__READ__",
           .candidate = "latch-",
           .has_permits = true},
    layout{.name = "kazoo",
           .programs = "kazoo",
           .is_kazoo = true,
           .has_dashes = false,
           .mutex = "__lock__",
           .writer = "__lock__",
           .reader = "__rlock__",
           .candidate = "__lock__",
           .has_lasting_folders = true},
    layout{.name = "go-zk",
           .programs = "go-zookeeper",
           .has_dashes = false,
           .mutex = "lock-",
           .writer = "lock-",
           .candidate = "lock-"},
    layout{
        .name = "exclusive", .programs = "programs that lock by one plain node", .is_plain = true},
};

std::string uuid_text(const std::array<std::uint64_t, 2>& id, bool has_dashes) {
  auto out = fmt::format("{:016x}{:016x}", id[0], id[1]);
  if (has_dashes)
    for (const std::size_t at : {20U, 16U, 12U, 8U}) out.insert(at, 1, '-');
  return out;
}

std::optional<std::uint64_t> hex(std::string_view text) {
  std::uint64_t out = 0;
  const auto* const end = text.data() + text.size();
  const auto [at, failure] = std::from_chars(text.data(), end, out, 16);
  if (text.empty() || failure != std::errc{} || at != end) return std::nullopt;
  return out;
}

std::optional<std::array<std::uint64_t, 2>> read_uuid(std::string_view text) {
  std::string digits;
  for (const char c : text)
    if (c != '-') digits.push_back(c);
  if (digits.size() != 32) return std::nullopt;
  const auto high = hex(std::string_view{digits}.substr(0, 16)),
             low = hex(std::string_view{digits}.substr(16));
  if (!high || !low) return std::nullopt;
  return std::array{*high, *low};
}

// The owner, if a client of ours made this prefix: "<uuid>-<sequence>-", and of a candidate "<pid>-<host>-".
void read_owner(std::string_view prefix, contender& out) {
  const bool is_protected = prefix.starts_with(protection);
  if (is_protected) prefix.remove_prefix(protection.size());
  const auto uuid = prefix.size() > 36 && prefix[8] == '-' ? 36U : 32U;
  if (prefix.size() < uuid + 3 || prefix[uuid] != '-' || !prefix.ends_with('-')) return;
  const auto client = read_uuid(prefix.substr(0, uuid));
  prefix.remove_prefix(uuid + 1);
  const auto dash = prefix.find('-');
  const auto sequence = hex(prefix.substr(0, dash));
  if (!client || !sequence) return;
  out.owner = owner_id{*client, *sequence};
  prefix.remove_prefix(dash + 1);
  if (prefix.empty()) return;
  const auto end = prefix.find('-');
  std::from_chars(prefix.data(), prefix.data() + end, out.pid);
  prefix.remove_prefix(end + 1);
  if (!prefix.empty()) out.host = prefix.substr(0, prefix.size() - 1);
}

// Ten digits, or what a negative number is printed as.
std::optional<std::int32_t> read_sequence(std::string_view text) {
  if (text.size() < 10 || text.size() > 11) return std::nullopt;
  std::int32_t out = 0;
  const auto* const end = text.data() + text.size();
  const auto [at, failure] = std::from_chars(text.data(), end, out);
  if (failure != std::errc{} || at != end) return std::nullopt;
  return out;
}

std::optional<contender> read_with(std::string_view base, wish wants, std::string_view child) {
  if (base.empty()) return std::nullopt;
  const auto at = child.rfind(base);
  if (at == std::string_view::npos) return std::nullopt;
  const auto sequence = read_sequence(child.substr(at + base.size()));
  if (!sequence) return std::nullopt;
  contender out;
  out.name = child;
  out.wants = wants;
  out.sequence = *sequence;
  read_owner(child.substr(0, at), out);
  return out;
}

}  // namespace

const layout* find_layout(std::string_view name) noexcept {
  for (const auto& row : layouts)
    if (row.name == name) return &row;
  return nullptr;
}

std::string layout_choices() {
  std::string out;
  for (const auto& row : layouts) {
    if (!out.empty()) out += &row == &layouts.back() ? " or " : ", ";
    out += row.name;
  }
  return out;
}

std::string prefix_of(const layout& in, const owner_id& owner) {
  const auto client = uuid_text(owner.client, in.has_dashes);
  if (in.is_kazoo) return fmt::format("{}-{:x}-", client, owner.sequence);
  return fmt::format("{}{}-{:x}-", protection, client, owner.sequence);
}

// Letters, digits, dots and dashes; no host has a base in its name.
std::string address_of(std::int64_t pid, std::string_view host) {
  std::string safe;
  for (const char c : host) {
    const bool is_plain =
        (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    safe.push_back(is_plain || c == '.' || c == '-' ? c : '.');
  }
  for (const std::string_view base : {"lock-", "latch-", "lease-"})
    for (auto at = safe.find(base); at != std::string::npos; at = safe.find(base))
      safe[at + base.size() - 1] = '.';
  return fmt::format("{}-{}-", pid, safe);
}

std::string_view base_for(const layout& in, lock_mode mode, bool is_candidate,
                          bool has_readers) noexcept {
  if (mode == lock_mode::shared) return in.reader;
  if (is_candidate) return in.candidate;
  return has_readers ? in.writer : in.mutex;
}

std::optional<contender> read_contender(const layout& in, std::string_view child) {
  for (const auto base : {in.mutex, in.writer, in.candidate}) {
    auto found = read_with(base, wish::exclusive, child);
    if (!found) continue;
    found->may_become_reader = base == in.writer && !in.reader.empty();
    return found;
  }
  return read_with(in.reader, wish::shared, child);
}

std::optional<contender> read_permit(std::string_view child) {
  return read_with(permit_base, wish::shared, child);
}

std::optional<owner_id> read_owner_text(std::string_view text) {
  const auto dash = text.rfind('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto client = read_uuid(text.substr(0, dash));
  const auto sequence = hex(text.substr(dash + 1));
  if (!client || !sequence) return std::nullopt;
  return owner_id{*client, *sequence};
}

std::string_view parent_of(std::string_view path) noexcept {
  return path.substr(0, path.rfind('/'));
}

std::string_view last_of(std::string_view path) noexcept {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace holdfast::engines::zk
