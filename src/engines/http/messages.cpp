#include "engines/http/messages.hpp"

#include "engines/common/modes.hpp"
#include "support/text.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

namespace holdfast::engines::http {

namespace {

using nlohmann::json;

constexpr int deepest = 8;

// So that nesting costs no memory: looked at before anything is made of it.
bool is_shallow(std::string_view text) noexcept {
  int depth = 0;
  bool is_quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_quoted) {
      if (c == '\\') ++i;
      if (c == '"') is_quoted = false;
    } else if (c == '"') {
      is_quoted = true;
    } else if (c == '{' || c == '[') {
      if (++depth > deepest) return false;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return true;
}

void append_quoted(std::string& to, std::string_view text) {
  to += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      to += '\\';
      to += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      fmt::format_to(std::back_inserter(to), "\\u{:04x}", static_cast<unsigned>(c));
    } else {
      to += c;
    }
  }
  to += '"';
}

std::optional<lock_mode> mode_called(std::string_view word) noexcept {
  for (const auto mode :
       {lock_mode::exclusive, lock_mode::shared, lock_mode::upgradeable, lock_mode::permits})
    if (word == to_string(mode)) return mode;
  return std::nullopt;
}

constexpr std::array all_codes{
    errc::busy,   errc::timed_out,     errc::cancelled,       errc::not_held,
    errc::lost,   errc::unavailable,   errc::outcome_unknown, errc::unsupported,
    errc::denied, errc::misconfigured, errc::protocol};

std::string_view word_of(counter_op op) noexcept {
  switch (op) {
    case counter_op::read:
      return "read";
    case counter_op::create:
      return "create";
    case counter_op::store:
      return "store";
    case counter_op::add:
      return "add";
    case counter_op::compare_exchange:
      return "compare_exchange";
    case counter_op::erase:
      return "erase";
  }
  return "read";
}

}  // namespace

// ---- what we say

message& message::add(std::string_view field, std::string_view text) {
  std::string quoted;
  append_quoted(quoted, text);
  return add_json(field, quoted);
}

message& message::add_json(std::string_view field, std::string_view json) {
  text_ += text_.empty() ? '{' : ',';
  append_quoted(text_, field);
  text_ += ':';
  text_ += json;
  return *this;
}

std::string hex_of(const std::array<std::uint64_t, 2>& client) {
  return fmt::format("{:016x}{:016x}", client[0], client[1]);
}

std::optional<std::array<std::uint64_t, 2>> client_in(std::string_view hex) noexcept {
  if (hex.size() != 32) return std::nullopt;
  std::array<std::uint64_t, 2> out{};
  for (std::size_t i = 0; i < 2; ++i) {
    const auto* begin = hex.data() + 16 * i;
    const auto [end, code] = std::from_chars(begin, begin + 16, out[i], 16);
    if (code != std::errc{} || end != begin + 16) return std::nullopt;
  }
  return out;
}

message ask_about(std::string_view name, const owner_id& owner) {
  message out;
  out.add("name", name).add("owner", owner.sequence);
  return out;
}

message ask_to_enter(const request& ask) {
  auto out = ask_about(ask.name, ask.owner);
  out.add("mode", to_string(ask.mode)).add("weight", ask.weight).add("capacity", ask.capacity);
  out.add("ttl_ns", ask.ttl).add("wait", ask.wait);
  if (ask.order == queue_order::barging) out.add("order", "barging");
  if (ask.priority != 0) out.add("priority", static_cast<std::int64_t>(ask.priority));
  if (!ask.label.empty()) out.add("label", ask.label);
  if (ask.replaces != nullptr) out.add("replaces", ask.replaces->owner.sequence);
  if (ask.label_is_value) out.add("label_is_value", true);
  if (ask.has_readers) out.add("has_readers", true);
  return out;
}

message ask_to_count(const counter_request& ask) {
  message out;
  out.add("name", ask.name).add("op", word_of(ask.op)).add("operand", ask.operand);
  out.add("expected", ask.expected).add("keep_ns", ask.keep);
  return out;
}

// ---- what it says

struct reply::content {
  json words;
};

reply::reply(std::unique_ptr<content> inner) : content_(std::move(inner)) {}
reply::reply(reply&&) noexcept = default;
reply& reply::operator=(reply&&) noexcept = default;
reply::~reply() = default;

std::optional<reply> reply::parse(std::string_view text) {
  if (!is_shallow(text)) return std::nullopt;
  auto words = json::parse(text, nullptr, false);
  if (!words.is_object()) return std::nullopt;
  return reply{std::make_unique<content>(content{std::move(words)})};
}

std::string reply::text(const char* field) const {
  const auto at = content_->words.find(field);
  return at != content_->words.end() && at->is_string() ? at->get<std::string>() : std::string{};
}

std::optional<std::int64_t> reply::whole(const char* field) const {
  const auto at = content_->words.find(field);
  if (at == content_->words.end() || !at->is_number_integer()) return std::nullopt;
  if (at->is_number_unsigned() &&
      at->get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
    return std::nullopt;
  return at->get<std::int64_t>();
}

std::optional<std::uint64_t> reply::natural(const char* field) const {
  const auto at = content_->words.find(field);
  if (at == content_->words.end() || !at->is_number_unsigned()) return std::nullopt;
  return at->get<std::uint64_t>();
}

std::optional<bool> reply::truth(const char* field) const {
  const auto at = content_->words.find(field);
  if (at == content_->words.end() || !at->is_boolean()) return std::nullopt;
  return at->get<bool>();
}

// Half of all there is, so that nothing overflows that is counted with it.
std::optional<nanoseconds> reply::length(const char* field) const {
  const auto given = whole(field);
  if (!given || *given < 0) return std::nullopt;
  return nanoseconds{std::min(*given, std::numeric_limits<std::int64_t>::max() / 4)};
}

std::optional<reply> reply::object(const char* field) const {
  const auto at = content_->words.find(field);
  if (at == content_->words.end() || !at->is_object()) return std::nullopt;
  return reply{std::make_unique<content>(content{*at})};
}

std::optional<std::vector<reply>> reply::objects(const char* field) const {
  const auto at = content_->words.find(field);
  if (at == content_->words.end() || !at->is_array()) return std::nullopt;
  std::vector<reply> out;
  out.reserve(at->size());
  for (auto& one : *at) {
    if (!one.is_object()) return std::nullopt;
    out.push_back(reply{std::make_unique<content>(content{std::move(one)})});
  }
  return out;
}

std::vector<std::uint64_t> reply::naturals(const char* field) const {
  std::vector<std::uint64_t> out;
  const auto at = content_->words.find(field);
  if (at == content_->words.end() || !at->is_array()) return out;
  for (const auto& one : *at)
    if (one.is_number_unsigned()) out.push_back(one.get<std::uint64_t>());
  return out;
}

namespace {

struct word_of_flag {
  const char* word;
  bool capabilities::*flag;
};
constexpr std::array flags{
    word_of_flag{"fifo", &capabilities::fifo},
    word_of_flag{"priorities", &capabilities::priorities},
    word_of_flag{"shared", &capabilities::shared},
    word_of_flag{"upgrade", &capabilities::upgrade},
    word_of_flag{"permits", &capabilities::permits},
    word_of_flag{"counters", &capabilities::counters},
    word_of_flag{"counters_apart", &capabilities::counters_apart},
    word_of_flag{"observe", &capabilities::observe},
    word_of_flag{"atomic_multi", &capabilities::atomic_multi},
    word_of_flag{"listing", &capabilities::listing},
    word_of_flag{"survives_restart", &capabilities::survives_restart},
    word_of_flag{"outlives_client", &capabilities::outlives_client},
};

struct word_of_length {
  const char* word;
  nanoseconds capabilities::*length;
};
constexpr std::array lengths{
    word_of_length{"min_ttl_ns", &capabilities::min_ttl},
    word_of_length{"max_ttl_ns", &capabilities::max_ttl},
    word_of_length{"expiry_slack_ns", &capabilities::expiry_slack},
    word_of_length{"longest_validity_ns", &capabilities::longest_validity},
    word_of_length{"margin_ns", &capabilities::margin},
};

struct word_of_sentence {
  const char* word;
  std::string capabilities::*sentence;
};
constexpr std::array sentences{
    word_of_sentence{"engine", &capabilities::engine},
    word_of_sentence{"validity_setting", &capabilities::validity_setting},
    word_of_sentence{"exclusion", &capabilities::exclusion},
    word_of_sentence{"token_scope", &capabilities::token_scope},
    word_of_sentence{"limits", &capabilities::limits},
};

std::optional<capabilities> read_caps(const reply& from) {
  capabilities out;
  for (const auto& one : flags) {
    const auto given = from.truth(one.word);
    if (!given) return std::nullopt;
    out.*one.flag = *given;
  }
  for (const auto& one : lengths) {
    const auto given = from.length(one.word);
    if (!given) return std::nullopt;
    out.*one.length = *given;
  }
  for (const auto& one : sentences) out.*one.sentence = from.text(one.word);
  const auto drift = from.natural("drift_ppm");
  if (!drift || *drift > 500'000 || out.max_ttl == nanoseconds::zero()) return std::nullopt;
  out.drift_ppm = static_cast<unsigned>(*drift);
  const auto token = from.text("token"), fencing = from.text("fencing");
  out.token = token == "store_revision" ? token_origin::store_revision
              : token == "server_time"  ? token_origin::server_time
                                        : token_origin::counter;
  out.fencing = fencing == "strict"        ? fencing_strength::strict
                : fencing == "best_effort" ? fencing_strength::best_effort
                                           : fencing_strength::none;
  return out;
}

// A duration that may be none: null is unknown, "never" does not end.
nanoseconds read_known(const reply& from, const char* field) {
  if (from.text(field) == "never") return no_expiry;
  return from.length(field).value_or(unknown_time);
}

std::optional<holder_info> read_holder(const reply& from, const who_we_are& who) {
  holder_info out;
  const auto client = client_in(from.text("client"));
  const auto mode = mode_called(from.text("mode"));
  const auto sequence = from.natural("owner");
  if (!client || !mode || !sequence) return std::nullopt;
  out.owner = {*client == who.theirs ? who.ours : *client, *sequence};
  out.mode = *mode;
  out.weight = from.natural("weight").value_or(0);
  out.token.value = from.natural("token").value_or(0);
  out.age = read_known(from, "age_ns");
  out.expires_in = read_known(from, "expires_in_ns");
  out.priority = static_cast<int>(from.whole("priority").value_or(0));
  out.pid = from.whole("pid").value_or(0);
  out.host = from.text("host");
  out.label = from.text("label");
  out.owner_text = from.text("owner_text");
  return out;
}

bool read_holders(const reply& from, const char* field, const who_we_are& who,
                  std::vector<holder_info>& out) {
  const auto all = from.objects(field);
  if (!all) return false;
  for (const auto& one : *all) {
    auto holder = read_holder(one, who);
    if (!holder) return false;
    out.push_back(std::move(*holder));
  }
  return true;
}

}  // namespace

std::optional<session_begun> read_session(const reply& from) {
  session_begun out;
  out.id = from.text("session");
  const bool is_id =
      out.id.size() == 32 && out.id.find_first_not_of("0123456789abcdef") == std::string::npos;
  const auto client = client_in(from.text("client"));
  const auto grace = from.natural("grace_ms");
  const auto now = from.length("now_ns");
  const auto caps = from.object("capabilities");
  if (!is_id || !client || !grace || *grace == 0 || *grace > 24U * 3600 * 1000 || !now || !caps)
    return std::nullopt;
  auto can = read_caps(*caps);
  if (!can) return std::nullopt;
  out.client = *client;
  out.grace = std::chrono::milliseconds{*grace};
  out.now = *now;
  out.caps = std::move(*can);
  return out;
}

store_proof read_proof(const reply& from) {
  const auto number = from.natural("store_session");
  const auto age = from.length("proof_age_ns");
  if (!number || !age) return {};
  return {*number, *age};
}

std::optional<grant_record> read_grant(const reply& from) {
  grant_record out;
  const auto owner = from.natural("owner"), weight = from.natural("weight"),
             token = from.natural("token");
  const auto mode = mode_called(from.text("mode"));
  const auto ttl = from.length("ttl_ns"), age = from.length("age_ns");
  // 0 belongs to no grant: a fence would refuse nothing with it.
  if (!owner || !weight || !token || *token == 0 || !mode || !ttl || !age) return std::nullopt;
  out.owner = *owner;
  out.mode = *mode;
  out.weight = *weight;
  out.token.value = *token;
  out.ttl = *ttl;
  out.age = *age;
  out.proof = read_proof(from);
  return out;
}

std::optional<entered_record> read_entered(const reply& from) {
  const auto what = from.text("what");
  if (what == "busy") return entered_record{entered::kind::busy, {}};
  if (what == "waiting") return entered_record{entered::kind::waiting, {}};
  const auto inner = from.object("grant");
  if (what != "granted" || !inner) return std::nullopt;
  const auto grant = read_grant(*inner);
  if (!grant) return std::nullopt;
  return entered_record{entered::kind::granted, grant};
}

std::optional<counter> read_counter(const reply& from) {
  const auto exists = from.truth("exists"), applied = from.truth("applied");
  const auto value = from.whole("value");
  const auto version = from.natural("version");
  if (!exists || !applied || !value || !version) return std::nullopt;
  return counter{*exists, *applied, *value, *version};
}

std::optional<lock_info> read_lock(const reply& from, const who_we_are& who) {
  lock_info out;
  out.name = from.text("name");
  const auto capacity = from.natural("capacity"), version = from.natural("version");
  if (!check_name(out.name) || !capacity || !version) return std::nullopt;
  out.capacity = *capacity;
  out.version = *version;
  out.free_permits = from.natural("free_permits");
  if (!read_holders(from, "holders", who, out.holders) ||
      !read_holders(from, "waiters", who, out.waiters))
    return std::nullopt;
  return out;
}

std::optional<counter_info> read_counter_info(const reply& from) {
  counter_info out;
  out.name = from.text("name");
  const auto value = from.whole("value");
  if (!check_name(out.name) || !value) return std::nullopt;
  out.value = *value;
  out.forgotten_in = read_known(from, "forgotten_in_ns");
  return out;
}

std::optional<finding> read_finding(const reply& from) {
  constexpr std::array words{
      std::pair{"good", finding::level::good}, std::pair{"note", finding::level::note},
      std::pair{"warning", finding::level::warning}, std::pair{"bad", finding::level::bad}};
  const auto level = from.text("level");
  for (const auto& [word, how] : words)
    if (level == word) return finding{how, from.text("about"), from.text("sentence")};
  return std::nullopt;
}

// ---- refusals

namespace {

refusal by_status(int status, std::string_view store) {
  const auto said = [&](std::string_view what) {
    return fmt::format("{} answered with the status {}: {}", store, status, what);
  };
  switch (status) {
    case 401:
    case 403:
    case 407:
      return {false, not_done{errc::denied, said("it, or a proxy in front of it, let us not in.")}};
    case 404:
    case 405:
      return {false, not_done{errc::misconfigured,
                              said("there is no holdfast service at this address, or it is of an "
                                   "older version.")}};
    case 429:
      return {false, not_done{errc::unavailable, said("too many requests.")}};
    case 502:
    case 503:
    case 504:
      return {false,
              {errc::outcome_unknown, said("a proxy could not pass the request on, or not "
                                           "wait for its answer.")}};
    default:
      break;
  }
  if (status >= 300 && status < 400)
    return {false, not_done{errc::misconfigured,
                            said("redirections are not followed; name the service itself.")}};
  if (status >= 400 && status < 500)
    return {false, not_done{errc::protocol, said("it does not understand us.")}};
  return {false, {errc::outcome_unknown, said("it failed to say more.")}};
}

}  // namespace

refusal read_refusal(int status, std::string_view content_type, std::string_view body,
                     std::string_view store) {
  if (status < 400 || content_type != "application/problem+json") return by_status(status, store);
  const auto said = reply::parse(body);
  if (!said) return by_status(status, store);
  const auto word = said->text("code");
  auto detail = said->text("detail");
  const bool is_ours = !detail.empty() && detail.size() <= 2000 && !support::has_control(detail);
  if (!is_ours) detail = fmt::format("{} answered {}", store, support::quoted(word));
  if (word == "no_session") return {true, not_done{errc::unavailable, std::move(detail)}, is_ours};
  if (word == "late") return {false, not_done{errc::unavailable, std::move(detail)}, is_ours, true};
  const bool is_certain = said->truth("done") == std::optional{false};
  for (const auto code : all_codes)
    if (word == to_string(code)) {
      if (is_certain && said->truth("over") == std::optional{true})
        return {false, taken_back{code, std::move(detail)}, is_ours};
      if (is_certain) return {false, not_done{code, std::move(detail)}, is_ours};
      // A doubt, however certain the code sounds elsewhere.
      if (error{code, {}}.is_not_done())
        return {false, {errc::outcome_unknown, std::move(detail)}, is_ours};
      return {false, {code, std::move(detail)}, is_ours};
    }
  auto by = by_status(status, store);
  if (status == 503 && is_certain) by.why = not_done{errc::unavailable, detail};
  if (word == "too_many" && !is_certain) by.why = {errc::outcome_unknown, detail};
  return {false,
          by.why.is_not_done() ? error{not_done{by.why.code(), std::move(detail)}}
                               : error{by.why.code(), std::move(detail)},
          is_ours};
}

}  // namespace holdfast::engines::http
