#include "engines/consul/kv.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cctype>

namespace holdfast::engines::consul {

namespace {

using nlohmann::json;

constexpr std::string_view base64_letters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// Nothing of a store's text is trusted: what has another type than expected counts as absent.
std::string text_at(const json& from, const char* key) {
  const auto at = from.find(key);
  return at != from.end() && at->is_string() ? at->get<std::string>() : std::string{};
}
std::uint64_t number_at(const json& from, const char* key) {
  const auto at = from.find(key);
  return at != from.end() && at->is_number_unsigned() ? at->get<std::uint64_t>() : 0;
}

std::optional<kv_pair> pair_in(const json& from) {
  if (!from.is_object()) return std::nullopt;
  kv_pair out;
  out.key = text_at(from, "Key");
  if (out.key.empty()) return std::nullopt;
  auto value = from_base64(text_at(from, "Value"));
  if (!value) return std::nullopt;
  out.value = std::move(*value);
  out.session = text_at(from, "Session");
  out.flags = number_at(from, "Flags");
  out.created = number_at(from, "CreateIndex");
  out.modified = number_at(from, "ModifyIndex");
  if (out.modified == 0) return std::nullopt;  // it would be a token
  return out;
}

json parsed(std::string_view body) { return json::parse(body, nullptr, false); }

}  // namespace

// ---- requests

void transaction::add(std::string_view verb, std::string_view key) {
  if (operations_++ > 0) out_ += ',';
  out_ += fmt::format(R"({{"KV":{{"Verb":"{}","Key":{}}}}})", verb, json_text(key));
  if (verb == "lock" || verb == "unlock" || verb == "set") ++results_;
}
void transaction::insert(std::string_view field) {
  out_.resize(out_.size() - 2);
  out_ += field;
  out_ += "}}";
}
void transaction::with_index(std::uint64_t index) { insert(fmt::format(R"(,"Index":{})", index)); }
void transaction::with_session(std::string_view session) {
  insert(fmt::format(R"(,"Session":{})", json_text(session)));
}
void transaction::with_value(std::string_view value, std::uint64_t flags) {
  insert(fmt::format(R"(,"Flags":{},"Value":"{}")", flags, base64(value)));
}

// ---- answers

bool txn_reply::failed_at(std::size_t operation) const noexcept {
  return std::ranges::find(failures, operation, &failure::operation) != failures.end();
}
bool txn_reply::is_delayed() const noexcept {
  return std::ranges::any_of(failures, [](const failure& one) {
    return one.what.find("due to lock delay") != std::string::npos;
  });
}
bool txn_reply::is_session_invalid(std::string_view id) const noexcept {
  return std::ranges::any_of(failures, [id](const failure& one) {
    return one.what.find("invalid session") != std::string::npos &&
           one.what.find(id) != std::string::npos;
  });
}
std::uint64_t txn_reply::index_of(std::string_view key) const noexcept {
  std::uint64_t out = 0;
  for (const auto& pair : written)
    if (pair.key == key) out = pair.modified;
  return out;
}

std::optional<txn_reply> read_txn(std::string_view body, std::size_t results_before_tree) {
  const auto in = parsed(body);
  if (!in.is_object()) return std::nullopt;
  txn_reply out;
  const auto errors = in.find("Errors");
  if (errors != in.end() && errors->is_array())
    for (const auto& one : *errors) {
      if (!one.is_object()) return std::nullopt;
      out.failures.push_back({number_at(one, "OpIndex"), text_at(one, "What")});
    }
  const auto results = in.find("Results");
  if (results == in.end()) return std::nullopt;
  if (!results->is_array()) return out.done() ? std::nullopt : std::optional{std::move(out)};
  for (const auto& one : *results) {
    const auto kv = one.is_object() ? one.find("KV") : one.end();
    if (kv == one.end()) return std::nullopt;
    auto pair = pair_in(*kv);
    if (!pair) return std::nullopt;
    auto& to = out.written.size() < results_before_tree ? out.written : out.tree;
    to.push_back(std::move(*pair));
  }
  return out;
}

std::optional<std::vector<kv_pair>> read_pairs(std::string_view body) {
  const auto in = parsed(body);
  if (!in.is_array()) return std::nullopt;
  std::vector<kv_pair> out;
  for (const auto& one : in) {
    auto pair = pair_in(one);
    if (!pair) return std::nullopt;
    out.push_back(std::move(*pair));
  }
  return out;
}

std::optional<std::string> read_session_id(std::string_view body) {
  const auto in = parsed(body);
  if (!in.is_object()) return std::nullopt;
  auto id = text_at(in, "ID");
  const auto is_fit = [](unsigned char c) { return std::isxdigit(c) != 0 || c == '-'; };
  if (id.empty() || id.size() > 64 || !std::ranges::all_of(id, is_fit)) return std::nullopt;
  return id;
}

// ---- text

std::string base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const auto left = std::min<std::size_t>(3, bytes.size() - at);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i)
      bits = (bits << 8U) | (i < left ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    for (std::size_t i = 0; i < 4; ++i)
      out += i <= left ? base64_letters[(bits >> (18U - 6U * i)) & 63U] : '=';
  }
  return out;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::string out;
  out.reserve(text.size() / 4 * 3);
  for (std::size_t at = 0; at < text.size(); at += 4) {
    std::uint32_t bits = 0;
    std::size_t fill = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      const auto c = text[at + i];
      const auto value = base64_letters.find(c);
      const bool is_fill = c == '=' && at + 4 == text.size() && i >= 2;
      if (is_fill ? false : (value == std::string_view::npos || fill > 0)) return std::nullopt;
      fill += is_fill ? 1 : 0;
      bits = (bits << 6U) | (is_fill ? 0U : static_cast<std::uint32_t>(value));
    }
    for (std::size_t i = 0; i < 3 - fill; ++i)
      out += static_cast<char>((bits >> (16U - 8U * i)) & 255U);
  }
  return out;
}

std::string escaped_path(std::string_view key) {
  constexpr std::string_view plain = "-._~/";
  std::string out;
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 128 && (std::isalnum(byte) != 0 || plain.find(c) != std::string_view::npos)) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", byte);
    }
  }
  return out;
}

std::string json_text(std::string_view text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

// ---- api.Semaphore

std::string semaphore_text(const semaphore_record& what) {
  json holders = json::object();
  for (const auto& session : what.holders) holders[session] = true;
  return json{{"Limit", what.limit}, {"Holders", holders}}.dump();
}

std::optional<semaphore_record> read_semaphore(std::string_view value) {
  const auto in = parsed(value);
  if (!in.is_object()) return std::nullopt;
  semaphore_record out;
  out.limit = number_at(in, "Limit");
  if (out.limit == 0) return std::nullopt;
  const auto holders = in.find("Holders");
  if (holders == in.end() || holders->is_null()) return out;
  if (!holders->is_object()) return std::nullopt;
  for (const auto& [session, holds] : holders->items())
    if (holds.is_boolean() && holds.get<bool>()) out.holders.push_back(session);
  return out;
}

}  // namespace holdfast::engines::consul
