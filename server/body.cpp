#include "body.hpp"

#include <holdfast/url.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <set>

namespace holdfast::server {

namespace {

using nlohmann::json;

constexpr int deepest = 6;

[[noreturn]] void refuse_body(std::string sentence) {
  throw refused(bad_request(std::move(sentence)));
}

// nlohmann keeps the last of two fields of the same name; the client may have meant the first.
json parsed_object(std::string_view body) {
  std::vector<std::set<std::string>> names;
  const json::parser_callback_t judge = [&](int depth, json::parse_event_t event, json& value) {
    if (depth > deepest) refuse_body("the body is nested too deeply");
    if (event == json::parse_event_t::object_start) names.emplace_back();
    if (event == json::parse_event_t::object_end) names.pop_back();
    if (event == json::parse_event_t::key && !names.back().insert(value.get<std::string>()).second)
      refuse_body("the body has a field twice");
    return true;
  };
  try {
    auto out = json::parse(body, judge);
    if (!out.is_object()) refuse_body("the body must be a JSON object, such as {\"ttl\": \"10s\"}");
    return out;
  } catch (const json::exception&) {
    refuse_body("the body is no JSON object");
  }
}

// A field's name is the client's own text: it goes into sentences only when it is one of ours or plain.
std::string shown(std::string_view name) {
  std::string out{name.substr(0, 40)};
  for (char& c : out)
    if (c < ' ' || c > '~' || c == '"' || c == '\\') c = '?';
  return out;
}

}  // namespace

struct fields::content {
  json object;
  std::set<std::string, std::less<>> asked;

  const json* find(std::string_view name) {
    asked.emplace(name);
    const auto it = object.find(name);
    return it == object.end() || it->is_null() ? nullptr : &*it;
  }
};

fields::fields(std::string_view body) : content_(std::make_unique<content>()) {
  content_->object = body.empty() ? json::object() : parsed_object(body);
}
fields::fields(std::unique_ptr<content> inner) : content_(std::move(inner)) {}
fields::fields(fields&&) noexcept = default;
fields::~fields() = default;

bool fields::has(std::string_view name) const { return content_->find(name) != nullptr; }

std::optional<std::string> fields::text(std::string_view name, std::size_t longest) {
  const auto* value = content_->find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse_body(fmt::format("\"{}\" must be a text", name));
  auto out = value->get<std::string>();
  if (out.size() > longest)
    refuse_body(fmt::format("\"{}\" is longer than {} bytes", name, longest));
  return out;
}

std::optional<std::int64_t> fields::whole(std::string_view name, std::int64_t low,
                                          std::int64_t high) {
  const auto* value = content_->find(name);
  if (value == nullptr) return std::nullopt;
  const bool fits = value->is_number_integer() &&
                    (!value->is_number_unsigned() || value->get<std::uint64_t>() <= INT64_MAX);
  if (!fits || value->get<std::int64_t>() < low || value->get<std::int64_t>() > high)
    refuse_body(fmt::format("\"{}\" must be a whole number from {} to {}", name, low, high));
  return value->get<std::int64_t>();
}

std::optional<std::uint64_t> fields::natural(std::string_view name) {
  const auto* value = content_->find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_unsigned())
    refuse_body(fmt::format("\"{}\" must be a whole number, 0 or more", name));
  return value->get<std::uint64_t>();
}

std::optional<bool> fields::truth(std::string_view name) {
  const auto* value = content_->find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) refuse_body(fmt::format("\"{}\" must be true or false", name));
  return value->get<bool>();
}

std::optional<std::chrono::nanoseconds> fields::duration(std::string_view name,
                                                         std::chrono::nanoseconds low,
                                                         std::chrono::nanoseconds high) {
  const auto* value = content_->find(name);
  if (value == nullptr) return std::nullopt;
  std::optional<std::chrono::nanoseconds> out;
  if (value->is_string()) {
    if (auto parsed = parse_duration(value->get<std::string>())) out = *parsed;
  } else if (value->is_number()) {
    const auto seconds = value->get<double>();
    if (seconds >= 0 && seconds < 9e9)
      out = std::chrono::nanoseconds{static_cast<std::int64_t>(seconds * 1e9)};
  }
  if (!out)
    refuse_body(fmt::format(
        "\"{}\" must be a duration such as \"10s\" or \"250ms\", or a number of seconds", name));
  if (*out < low || *out > high)
    refuse_body(fmt::format("\"{}\" must be from {} to {}", name, format_duration(low),
                            format_duration(high)));
  return out;
}

std::vector<std::string> fields::texts(std::string_view name, std::size_t most,
                                       std::size_t longest) {
  const auto* value = content_->find(name);
  if (value == nullptr) return {};
  if (!value->is_array() || value->size() > most)
    refuse_body(fmt::format("\"{}\" must be a list of at most {} texts", name, most));
  std::vector<std::string> out;
  for (const auto& each : *value) {
    if (!each.is_string() || each.get_ref<const std::string&>().size() > longest)
      refuse_body(fmt::format("\"{}\" must be a list of texts of at most {} bytes", name, longest));
    out.push_back(each.get<std::string>());
  }
  return out;
}

std::vector<fields> fields::objects(std::string_view name, std::size_t most) {
  const auto* value = content_->find(name);
  if (value == nullptr) return {};
  if (!value->is_array() || value->size() > most)
    refuse_body(fmt::format("\"{}\" must be a list of at most {} objects", name, most));
  std::vector<fields> out;
  for (const auto& each : *value) {
    if (!each.is_object()) refuse_body(fmt::format("\"{}\" must be a list of objects", name));
    auto inner = std::make_unique<content>();
    inner->object = each;
    out.push_back(fields{std::move(inner)});
  }
  return out;
}

void fields::nothing_else() const {
  for (const auto& [name, value] : content_->object.items())
    if (content_->asked.find(name) == content_->asked.end())
      refuse_body(fmt::format("there is no field \"{}\" here", shown(name)));
}

void check_name_or_refuse(std::string_view name) {
  if (auto ok = check_name(name); !ok)
    throw refused(
        {.status = 400, .code = word_of(ok.error().code()), .detail = ok.error().message()});
}

}  // namespace holdfast::server
