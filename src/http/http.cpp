#include "http/http.hpp"

#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace holdfast::http {

namespace {

constexpr std::string_view line_end = "\r\n";
constexpr std::size_t longest_chunk_line = 256;

error broken(std::string_view what) {
  return not_done{errc::protocol, fmt::format("this is no HTTP/1.1: {}", what)};
}

char small(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same(std::string_view a, std::string_view b) noexcept {
  return std::ranges::equal(a, b, [](char x, char y) { return small(x) == small(y); });
}

std::string_view trimmed(std::string_view text) noexcept {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::optional<std::uint64_t> number_in(std::string_view digits, int base) noexcept {
  std::uint64_t out = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), out, base);
  if (digits.empty() || code != std::errc{} || end != digits.data() + digits.size())
    return std::nullopt;
  return out;
}

bool is_token(char c) noexcept {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         std::string_view{"!#$%&'*+-.^_`|~"}.find(c) != std::string_view::npos;
}

// "HTTP/1.1 200 OK"
std::optional<int> status_in(std::string_view line) noexcept {
  if (line.size() < 12 || !line.starts_with("HTTP/1.") || line[8] != ' ') return std::nullopt;
  if (line[7] < '0' || line[7] > '9' || support::has_control(line)) return std::nullopt;
  if (line.size() > 12 && line[12] != ' ') return std::nullopt;
  const auto code = number_in(line.substr(9, 3), 10);
  if (!code || *code < 200 || *code > 599) return std::nullopt;  // nobody asked for an interim one
  return static_cast<int>(*code);
}

result<void> take_header(std::string_view line, head& out, bool& has_coding) {
  const auto colon = line.find(':');
  if (colon == 0 || colon == std::string_view::npos ||
      !std::ranges::all_of(line.substr(0, colon), is_token))
    return broken("a header line without a name");
  const auto name = line.substr(0, colon);
  const auto value = trimmed(line.substr(colon + 1));
  if (same(name, "content-length")) {
    const auto length = number_in(value, 10);
    if (!length || out.length) return broken("its length is no number, or given twice");
    out.length = length;
  } else if (same(name, "transfer-encoding")) {
    if (std::exchange(has_coding, true) || !same(value, "chunked"))
      return broken("a transfer coding that was not asked for");
    out.is_chunked = true;
  } else if (same(name, "content-type")) {
    out.content_type = value;
  } else if (same(name, "retry-after")) {
    out.retry_after = value;
  }
  return {};
}

// REQUIRES: `text` ends with an empty line.
result<head> parse_head(std::string_view text) {
  head out;
  out.bytes = text.size();
  auto end = text.find(line_end);
  const auto status = status_in(text.substr(0, end));
  if (!status) return broken("it does not begin with a status");
  out.status = *status;
  bool has_coding = false;
  for (auto at = end + 2; at + 2 < text.size(); at = end + 2) {
    end = text.find(line_end, at);
    const auto line = text.substr(at, end - at);
    if (std::ranges::any_of(line,
                            [](unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7f; }))
      return broken("a control character in its head");
    if (auto ok = take_header(line, out, has_coding); !ok) return ok.error();
  }
  if (out.is_chunked && out.length) return broken("chunks, and a length beside them");
  return out;
}

bool has_no_body(int status) noexcept { return status == 204 || status == 304; }

}  // namespace

void append_request(std::string& to, const request& what) {
  fmt::format_to(std::back_inserter(to), "{} {} HTTP/1.1\r\nHost: {}\r\nAccept: {}\r\n",
                 what.method, what.target, what.host, what.accepts);
  if (!what.credentials.empty())
    fmt::format_to(std::back_inserter(to), "Authorization: {}\r\n", what.credentials);
  if (!what.body.empty()) to += "Content-Type: application/json\r\n";
  if (!what.body.empty() || what.method == "POST")
    fmt::format_to(std::back_inserter(to), "Content-Length: {}\r\n", what.body.size());
  to += line_end;
  to += what.body;
}

result<std::optional<head>> read_head(std::string_view bytes, std::size_t& searched,
                                      const caps& limits) {
  constexpr std::string_view end = "\r\n\r\n";
  const auto from = searched < end.size() ? 0 : searched - (end.size() - 1);
  const auto at = bytes.substr(0, limits.head).find(end, from);
  if (at == std::string_view::npos) {
    if (bytes.size() >= limits.head) return broken("its head does not end");
    searched = bytes.size();
    return std::optional<head>{};
  }
  searched = 0;
  auto out = parse_head(bytes.substr(0, at + end.size()));
  if (!out) return std::move(out).error();
  return std::optional{*out};
}

// "1a\r\n" and so many bytes and "\r\n"; extensions behind the number are not looked at.
result<chunk> next_chunk(std::string_view bytes, std::size_t longest) {
  const auto end = bytes.substr(0, longest_chunk_line).find(line_end);
  if (end == std::string_view::npos) {
    if (bytes.size() >= longest_chunk_line) return broken("a chunk without a length");
    return chunk{};
  }
  const auto line = bytes.substr(0, end);
  const auto length = number_in(trimmed(line.substr(0, line.find(';'))), 16);
  if (!length) return broken("a chunk without a length");
  if (*length > longest) return broken("it is too long");
  const auto begin = end + line_end.size();
  const auto whole = begin + *length + line_end.size();
  if (bytes.size() < whole) return chunk{};
  if (bytes.substr(begin + *length, 2) != line_end)
    return broken(*length == 0 ? "trailers, which were not asked for" : "a chunk without an end");
  return chunk{whole, bytes.substr(begin, *length)};
}

// ---- answers

result<std::size_t> answer_scanner::finish(std::size_t length) {
  head_.reset();
  searched_ = scanned_ = body_ = 0;
  return length;
}

result<std::size_t> answer_scanner::scan_chunks(std::string_view bytes) {
  for (;;) {
    const auto next = next_chunk(bytes.substr(scanned_), limits_.body - body_);
    if (!next) return next.error();
    if (next->bytes == 0) return std::size_t{0};
    scanned_ += next->bytes;
    body_ += next->data.size();
    if (next->data.empty()) return finish(scanned_);
  }
}

result<std::size_t> answer_scanner::next(std::string_view bytes) {
  if (!head_) {
    auto found = read_head(bytes, searched_, limits_);
    if (!found) return std::move(found).error();
    if (!*found) return std::size_t{0};
    head_ = **found;
    scanned_ = head_->bytes;
  }
  if (has_no_body(head_->status)) return finish(head_->bytes);
  if (head_->is_chunked) return scan_chunks(bytes);
  if (!head_->length) return broken("an answer without a length");
  if (*head_->length > limits_.body) return broken("it is too long");
  const auto whole = head_->bytes + static_cast<std::size_t>(*head_->length);
  return bytes.size() < whole ? std::size_t{0} : finish(whole);
}

result<answer> read_answer(std::string_view bytes, const caps& limits) {
  std::size_t searched = 0;
  const auto found = read_head(bytes, searched, limits);
  if (!found) return found.error();
  if (!*found) return broken("it is cut short");
  const auto& read = **found;
  answer out;
  out.status = read.status;
  out.content_type = trimmed(read.content_type.substr(0, read.content_type.find(';')));
  std::ranges::transform(out.content_type, out.content_type.begin(), small);
  out.retry_after = read.retry_after;
  auto rest = bytes.substr(read.bytes);
  if (!read.is_chunked || has_no_body(read.status)) {
    const auto length = has_no_body(read.status) ? 0 : read.length.value_or(0);
    if (rest.size() != length || length > limits.body) return broken("it is cut short");
    out.body = rest;
    return out;
  }
  for (;;) {
    const auto next = next_chunk(rest, limits.body - out.body.size());
    if (!next) return next.error();
    if (next->bytes == 0) return broken("it is cut short");
    rest.remove_prefix(next->bytes);
    if (next->data.empty()) break;
    out.body += next->data;
  }
  if (!rest.empty()) return broken("more than was asked for");
  return out;
}

// ---- events

result<stream_scanner::piece> stream_scanner::next(std::string_view bytes) {
  if (!has_head_) {
    const auto found = read_head(bytes, searched_);
    if (!found) return found.error();
    if (!*found) return piece{};
    has_head_ = true;
    is_chunked_ = (*found)->is_chunked;
    return piece{(*found)->bytes, true};
  }
  if (!is_chunked_) return piece{bytes.size(), false};
  const auto next = next_chunk(bytes, longest_chunk);
  if (!next) return next.error();
  if (next->bytes != 0 && next->data.empty()) return broken("the stream has ended");
  return piece{next->bytes, false};
}

result<void> event_reader::read(std::string_view bytes, std::vector<event>& out) {
  while (!bytes.empty()) {
    const auto end = bytes.find('\n');
    const bool is_whole = end != std::string_view::npos;
    const auto part = bytes.substr(0, end);
    if (line_.size() + part.size() + building_.data.size() > longest_event)
      return broken("an event that is too long");
    line_ += part;
    if (!is_whole) return {};
    bytes.remove_prefix(end + 1);
    auto line = std::exchange(line_, {});
    if (line.ends_with('\r')) line.pop_back();
    take_line(line, out);
  }
  return {};
}

void event_reader::take_line(std::string_view line, std::vector<event>& out) {
  if (line.empty()) {
    auto done = std::exchange(building_, {});
    if (!std::exchange(has_data_, false)) return;
    if (done.name.empty()) done.name = "message";
    out.push_back(std::move(done));
    return;
  }
  const auto colon = std::min(line.find(':'), line.size());
  const auto field = line.substr(0, colon);
  auto value = line.substr(std::min(colon + 1, line.size()));
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (field == "event") building_.name = value;
  if (field != "data") return;  // comments, and what this does not know
  if (std::exchange(has_data_, true)) building_.data += '\n';
  building_.data += value;
}

}  // namespace holdfast::http
