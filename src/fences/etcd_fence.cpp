// etcd_fence: who is newest is decided by one compare of bytes, in two forms.
//
// A compare with the VALUE of a key that does not exist is false, whatever it compares with, also over a range. So "not
// newer, or not there" cannot be asked for; but "newer" can, and the admission is what is done if not. That needs no
// key made beforehand. As a condition of the work it would be treacherous: beside another compare that fails, an older
// token would come in. Hence the guard, which asks whether our token is the newest, and can stand beside others.
//
// The messages are few and small, so they are written and read here by hand: core needs no protobuf.
#include <holdfast/fence.hpp>

#include "fences/token_text.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <utility>

namespace holdfast {

namespace {

constexpr std::size_t token_width = 20;

// ---- writing. The numbers of fields are those of etcd's rpc.proto; all are below 16, so that a tag is one byte.

std::string small_number(unsigned field, unsigned value) {
  return {static_cast<char>(field << 3U), static_cast<char>(value)};
}

std::string bytes(unsigned field, std::string_view content) {
  std::string out{static_cast<char>(field << 3U | 2U)};
  auto length = content.size();
  for (; length >= 0x80; length >>= 7U) out.push_back(static_cast<char>(length | 0x80U));
  out.push_back(static_cast<char>(length));
  return out.append(content);
}

enum class outcome : unsigned { equal = 0, greater = 1 };

// TxnRequest.compare
std::string compare_value(outcome wanted, std::string_view key, std::string_view with) {
  constexpr unsigned target_value = 3;
  const auto result = small_number(1, static_cast<unsigned>(wanted));
  return bytes(1, result + small_number(2, target_value) + bytes(3, key) + bytes(7, with));
}

// RequestOp
std::string read(std::string_view key) { return bytes(1, bytes(1, key)); }
std::string put(std::string_view key, std::string_view value) {
  return bytes(2, bytes(1, key) + bytes(2, value));
}

// TxnRequest.success, TxnRequest.failure
std::string if_true(std::string_view operation) { return bytes(2, operation); }
std::string if_false(std::string_view operation) { return bytes(3, operation); }

// ---- reading

struct field {
  std::uint64_t number = 0;
  std::uint64_t value = 0;     // of a number
  std::string_view content{};  // of bytes and messages
};

std::optional<std::uint64_t> take_number(std::string_view& from) {
  std::uint64_t out = 0;
  for (unsigned shift = 0; shift < 64 && !from.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(from.front());
    from.remove_prefix(1);
    out |= std::uint64_t{byte & 0x7fU} << shift;
    if (byte < 0x80) return out;
  }
  return std::nullopt;
}

std::optional<std::string_view> take_bytes(std::string_view& from, std::uint64_t count) {
  if (count > from.size()) return std::nullopt;
  const auto out = from.substr(0, count);
  from.remove_prefix(count);
  return out;
}

std::optional<field> take_field(std::string_view& from) {
  const auto tag = take_number(from);
  if (!tag) return std::nullopt;
  field out{.number = *tag >> 3U};
  const auto kind = *tag & 7U;
  auto size = std::optional<std::uint64_t>{kind == 1 ? 8 : 4};  // of what has a fixed one
  if (kind == 0 || kind == 2) size = take_number(from);
  if (!size || kind == 3 || kind == 4 || kind > 5) return std::nullopt;
  if (kind == 0) {
    out.value = *size;
    return out;
  }
  const auto content = take_bytes(from, *size);
  if (!content) return std::nullopt;
  out.content = *content;
  return out;
}

// False when the message, or what `visit` makes of one of its fields, is not in order.
template <class Visitor>
bool each_field(std::string_view message, Visitor visit) {
  while (!message.empty()) {
    const auto next = take_field(message);
    if (!next || !visit(*next)) return false;
  }
  return true;
}

struct verdict {
  bool succeeded = false;
  std::optional<std::string_view> newest{};  // what the fence's key held, where the answer shows it
};

// KeyValue
bool look_at_pair(std::string_view pair, std::string_view fence, verdict& out) {
  std::string_view key, value;
  const bool good = each_field(pair, [&](const field& part) {
    if (part.number == 1) key = part.content;
    if (part.number == 5) value = part.content;
    return true;
  });
  if (good && key == fence) out.newest = std::max(out.newest.value_or(""), value);
  return good;
}

// RangeResponse
bool look_at_pairs(std::string_view found, std::string_view fence, verdict& out) {
  return each_field(found, [&](const field& part) {
    return part.number != 2 || look_at_pair(part.content, fence, out);
  });
}

// TxnResponse. Of its ResponseOps only those that have read something matter.
bool look_at_answer(std::string_view answer, std::string_view fence, verdict& out) {
  return each_field(answer, [&](const field& part) {
    if (part.number == 2) out.succeeded = part.value != 0;
    if (part.number != 3) return true;
    return each_field(part.content, [&](const field& operation) {
      return operation.number != 1 || look_at_pairs(operation.content, fence, out);
    });
  });
}

std::optional<std::uint64_t> read_token(std::string_view text) {
  std::uint64_t out = 0;
  const auto* const end = text.data() + text.size();
  const auto [at, code] = std::from_chars(text.data(), end, out);
  if (text.size() != token_width || code != std::errc{} || at != end) return std::nullopt;
  return out;
}

}  // namespace

etcd_fence::etcd_fence(std::string key) : key_(std::move(key)) {
  if (key_.empty())
    throw lock_error{{errc::misconfigured, "The key of a fence on etcd must not be empty."}};
}

std::string etcd_fence::value(fencing_token token) {
  if (token.value == 0) throw lock_error{fences::no_lease_has_it()};
  return fmt::format("{:0{}}", token.value, token_width);
}

// Both ways end with a read of the fence: with our own token when we were let in.
std::string etcd_fence::admission(fencing_token token) const {
  const auto ours = value(token);
  return compare_value(outcome::greater, key_, ours) + if_true(read(key_)) +
         if_false(put(key_, ours)) + if_false(read(key_));
}

std::string etcd_fence::guard(fencing_token token) const {
  return compare_value(outcome::equal, key_, value(token)) + if_false(read(key_));
}

result<void> etcd_fence::judge(fencing_token token, std::string_view answer) const {
  const auto fence = support::quoted(key_);
  verdict said;
  if (!look_at_answer(answer, key_, said)) {
    return error{
        errc::protocol,
        fmt::format("What came back from the fence {} is not a TxnResponse of etcd.", fence)};
  }
  if (!said.newest && said.succeeded) return {};
  if (!said.newest) {
    return error{errc::misconfigured,
                 fmt::format("The fence {} holds no token and refuses {}: show it with admission() "
                             "before the first read. If that was done, somebody removed the key.",
                             fence, token.value)};
  }
  const auto newest = read_token(*said.newest);
  if (!newest) {
    return error{errc::protocol, fmt::format("The fence {} holds {}, which is not a token of {} "
                                             "digits. Find the newest token of its "
                                             "lock (holdfast show), and put that there.",
                                             fence, support::quoted(*said.newest), token_width)};
  }
  if (*newest == token.value) return {};
  if (*newest > token.value) {
    return error{
        errc::lost,
        fmt::format("The fence {} has seen token {} and refuses the older {}: another holder was "
                    "here since. Nothing was done; stop.",
                    fence, *newest, token.value)};
  }
  return error{errc::misconfigured, fmt::format("The fence {} has seen token {} and not yet {}, "
                                                "and so refuses it: show it with admission() "
                                                "before the first read.",
                                                fence, *newest, token.value)};
}

}  // namespace holdfast
