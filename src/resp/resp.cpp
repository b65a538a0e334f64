// One function reads one item (a scalar, or the head of an aggregate) and judges it; framing and take() both stand on
// it, so they cannot disagree about what the protocol is. Framing goes from item to item with a counter per open
// aggregate instead of building values, and begins again at the item that was incomplete.
#include "resp/resp.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>

namespace holdfast::resp {

namespace {

// Longer than any 64-bit integer with its sign: what goes on is not a number.
constexpr std::size_t longest_number = 20;
constexpr std::size_t shortest_item = 3;  // "_\r\n"
constexpr std::string_view line_end = "\r\n";

enum class step : std::uint8_t { whole, more, bad };

struct parsed {
  char type = 0;
  bool null = false;
  std::string_view text;
  std::int64_t integer = 0;
  std::size_t items = 0;  // of an aggregate; of a map keys and values together
  std::size_t end = 0;    // where the next item begins
  const char* why = "";   // when it is bad

  step refuse(const char* reason) {
    why = reason;
    return step::bad;
  }
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_aggregate(char type) {
  return type == '*' || type == '%' || type == '~' || type == '>' || type == '|';
}

error refused(const char* why) {
  return {errc::protocol, std::string{"This is not the Redis protocol: "} + why + '.'};
}

// The line from `begin` without its end. `searched` remembers over calls how far there is none.
step read_line(std::string_view bytes, std::size_t begin, std::size_t longest,
               std::size_t& searched, parsed& out) {
  auto at = std::max(begin, searched);
  while (at < bytes.size() && bytes[at] != '\r' && bytes[at] != '\n') ++at;
  if (at - begin > longest) return out.refuse("a number is too long");
  if (at == bytes.size() || (bytes[at] == '\r' && at + 1 == bytes.size())) {
    searched = at;
    return step::more;
  }
  if (bytes[at] == '\n' || bytes[at + 1] != '\n') {
    return out.refuse("a line does not end with CR LF");
  }
  out.text = bytes.substr(begin, at - begin);
  out.end = at + line_end.size();
  return step::whole;
}

// The integer that is all of `text`. The protocol allows a plus sign, from_chars does not.
std::optional<std::int64_t> to_integer(std::string_view text) {
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return std::nullopt;
  }
  std::int64_t value = 0;
  const auto* const end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, value);
  if (failure != std::errc{} || stop != end) return std::nullopt;
  return value;
}

// Takes an optional sign / as many digits as there are off the front; says whether there were any.
void take_sign(std::string_view& text) {
  if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
}
bool take_digits(std::string_view& text) {
  const auto size = text.size();
  while (!text.empty() && is_digit(text.front())) text.remove_prefix(1);
  return text.size() < size;
}

bool is_big(std::string_view text) {
  take_sign(text);
  return take_digits(text) && text.empty();
}

bool is_real(std::string_view text) {
  take_sign(text);
  if (text == "inf" || text == "nan") return true;
  if (!take_digits(text)) return false;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    if (!take_digits(text)) return false;
  }
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    take_sign(text);
    if (!take_digits(text)) return false;
  }
  return text.empty();
}

step judge_line(parsed& out) {
  switch (out.type) {
    case ':': {
      const auto value = to_integer(out.text);
      if (!value) return out.refuse("an integer is not one, or does not fit into 64 bits");
      out.integer = *value;
      return step::whole;
    }
    case '#':
      if (out.text != "t" && out.text != "f") return out.refuse("a boolean is neither t nor f");
      out.integer = out.text == "t" ? 1 : 0;
      return step::whole;
    case '_':
      if (!out.text.empty()) return out.refuse("a null has content");
      out.null = true;
      return step::whole;
    case ',':
      return is_real(out.text) ? step::whole : out.refuse("a real number is not one");
    case '(':
      return is_big(out.text) ? step::whole : out.refuse("a big number is not one");
    default:
      return step::whole;
  }
}

// What a length or count says: `out.null`, or at most `most` in `size`.
step judge_size(parsed& out, std::size_t most, std::size_t& size) {
  if (out.text == "-1" && (out.type == '$' || out.type == '*')) {
    out.null = true;
    return step::whole;
  }
  if (out.text == "?") return out.refuse("streamed values are not supported");
  if (out.text.empty() || !is_digit(out.text.front())) return out.refuse("a length is not one");
  const auto* const end = out.text.data() + out.text.size();
  const auto [stop, failure] = std::from_chars(out.text.data(), end, size);
  if (stop != end) return out.refuse("a length is not one");
  if (failure != std::errc{} || size > most) return out.refuse("a value is larger than allowed");
  return step::whole;
}

// The content of a string whose length is in out.text.
step read_payload(std::string_view bytes, const caps& limits, parsed& out) {
  // Not even waited for when it cannot fit into what is left of the frame.
  const auto used = out.end + line_end.size();
  const auto room = limits.frame > used ? limits.frame - used : 0;
  std::size_t size = 0;
  if (const auto judged = judge_size(out, room, size); judged != step::whole) return judged;
  if (out.null) return step::whole;
  const auto rest = bytes.substr(out.end);
  // Each byte of the end as soon as it is there: a peer out of step is found out before it sends more.
  if (rest.size() > size && rest[size] != '\r')
    return out.refuse("a string is longer than it said");
  if (rest.size() < size || rest.size() - size < line_end.size()) return step::more;
  if (rest[size + 1] != '\n') return out.refuse("a string does not end with CR LF");
  out.text = rest.substr(0, size);
  out.end += size + line_end.size();
  if (out.type != '=') return step::whole;
  constexpr std::string_view prefix = "txt:";
  if (size < prefix.size() || out.text[prefix.size() - 1] != ':') {
    return out.refuse("a verbatim string does not name its format");
  }
  out.text.remove_prefix(prefix.size());
  return step::whole;
}

// The item that begins at `at`.
step read_item(std::string_view bytes, std::size_t at, std::size_t& searched, const caps& limits,
               parsed& out) {
  if (at >= bytes.size()) return step::more;
  out.type = bytes[at];
  const auto any = std::numeric_limits<std::size_t>::max();
  switch (out.type) {
    case '+':
    case '-':
    case '_':
    case '#':
    case ',':
    case '(': {
      const auto line = read_line(bytes, at + 1, any, searched, out);
      return line == step::whole ? judge_line(out) : line;
    }
    case ':': {
      const auto line = read_line(bytes, at + 1, longest_number, searched, out);
      return line == step::whole ? judge_line(out) : line;
    }
    case '$':
    case '=':
    case '!': {
      const auto line = read_line(bytes, at + 1, longest_number, searched, out);
      return line == step::whole ? read_payload(bytes, limits, out) : line;
    }
    case '*':
    case '~':
    case '>':
    case '%':
    case '|': {
      const auto line = read_line(bytes, at + 1, longest_number, searched, out);
      if (line != step::whole) return line;
      const std::size_t each = out.type == '%' || out.type == '|' ? 2 : 1;
      const auto judged = judge_size(out, limits.elements / each, out.items);
      out.items *= each;
      return judged;
    }
    default:
      return out.refuse("there is no such type of value");
  }
}

value::kind kind_of(const parsed& item) {
  using kind = value::kind;
  if (item.null) return kind::null;
  switch (item.type) {
    case '+':
      return kind::simple;
    case '-':
    case '!':
      return kind::error;
    case ':':
      return kind::integer;
    case '$':
      return kind::bulk;
    case '#':
      return kind::boolean;
    case ',':
      return kind::real;
    case '(':
      return kind::big;
    case '=':
      return kind::verbatim;
    case '*':
      return kind::array;
    case '%':
      return kind::map;
    case '~':
      return kind::set;
    case '>':
      return kind::push;
    default:
      return kind::null;  // unreachable: attributes are no values, and there is nothing else
  }
}

// take() as an object, so that its recursion shares the counters.
class reader {
 public:
  reader(std::string_view bytes, const caps& limits) : bytes_(bytes), limits_(limits) {}

  bool read(value& out, unsigned open) {
    parsed item;
    do {
      item = parsed{};
      std::size_t searched = 0;
      const auto outcome = read_item(bytes_, at_, searched, limits_, item);
      if (outcome == step::more) return refuse("a reply ends too early");
      if (outcome == step::bad || item.end > limits_.frame) {
        return refuse(outcome == step::bad ? item.why : "a reply is larger than allowed");
      }
      at_ = item.end;
      if (item.type == '|' && !skip(item, open)) return false;
    } while (item.type == '|');
    out.what = kind_of(item);
    if (item.null) return true;
    if (is_aggregate(item.type)) return read_items(item, out, open);
    if (item.type != ':' && item.type != '#' && item.type != '_') out.text = item.text;
    out.integer = item.integer;
    return true;
  }

  std::size_t at() const noexcept { return at_; }
  const char* why() const noexcept { return why_; }

 private:
  bool refuse(const char* why) {
    why_ = why;
    return false;
  }

  bool open_aggregate(const parsed& item, unsigned open) {
    if (item.type == '>' && open != 0) return refuse("a push is inside another value");
    if (open >= limits_.depth) return refuse("values are nested too deeply");
    if (item.items > limits_.elements - elements_) return refuse("a reply has too many elements");
    elements_ += item.items;
    return true;
  }

  // An attribute says something about the value behind it that we never asked for.
  bool skip(const parsed& item, unsigned open) {
    if (!open_aggregate(item, open)) return false;
    for (std::size_t i = 0; i < item.items; ++i) {
      value ignored;
      if (!read(ignored, open + 1)) return false;
    }
    return true;
  }

  bool read_items(const parsed& item, value& out, unsigned open) {
    if (!open_aggregate(item, open)) return false;
    // The count is only a claim; the bytes that are here bound what may be taken for it.
    out.items.reserve(std::min(item.items, (bytes_.size() - at_) / shortest_item));
    for (std::size_t i = 0; i < item.items; ++i) {
      if (!read(out.items.emplace_back(), open + 1)) return false;
    }
    return true;
  }

  std::string_view bytes_;
  const caps& limits_;
  std::size_t at_ = 0;
  std::size_t elements_ = 0;
  const char* why_ = "";
};

template <class Number>
void append_line(std::string& to, char type, Number number) {
  std::array<char, 32> text;  // NOLINT: filled by to_chars
  text[0] = type;
  auto* end = std::to_chars(text.data() + 1, text.data() + text.size() - 2, number).ptr;
  *end++ = '\r';
  *end++ = '\n';
  to.append(text.data(), static_cast<std::size_t>(end - text.data()));
}

}  // namespace

result<value> take(std::string_view& bytes, const caps& limits) {
  value out;
  reader from{bytes, limits};
  if (!from.read(out, 0)) return refused(from.why());
  bytes.remove_prefix(from.at());
  return out;
}

result<frame_scanner::frame> frame_scanner::next(std::string_view bytes) {
  for (;;) {
    parsed item;
    const auto outcome = read_item(bytes, scanned_, searched_, limits_, item);
    if (outcome == step::bad) return refused(item.why);
    if (outcome == step::more) {
      if (bytes.size() > limits_.frame) return refused("a reply is larger than allowed");
      return frame{};
    }
    if (item.end > limits_.frame) return refused("a reply is larger than allowed");
    scanned_ = searched_ = item.end;
    const bool attribute = item.type == '|';
    if (!attribute) --left_;
    if (is_aggregate(item.type) && !item.null) {
      if (item.type == '>' && !outer_.empty()) return refused("a push is inside another value");
      if (outer_.size() >= limits_.depth) return refused("values are nested too deeply");
      if (item.items > limits_.elements - elements_) {
        return refused("a reply has too many elements");
      }
      push_ = push_ || item.type == '>';
      elements_ += item.items;
      outer_.push_back(left_);
      left_ = item.items;
    }
    while (left_ == 0 && !outer_.empty()) {
      left_ = outer_.back();
      outer_.pop_back();
    }
    if (left_ == 0) {
      const frame complete{.length = scanned_, .push = push_};
      reset();
      return complete;
    }
  }
}

void frame_scanner::reset() noexcept {
  scanned_ = searched_ = elements_ = 0;
  left_ = 1;
  outer_.clear();
  push_ = false;
}

void append_command(std::string& to, std::initializer_list<std::string_view> words) {
  append_head(to, words.size());
  for (const auto word : words) append_word(to, word);
}

void append_head(std::string& to, std::size_t words) { append_line(to, '*', words); }

void append_word(std::string& to, std::string_view word) {
  append_line(to, '$', word.size());
  to += word;
  to += line_end;
}

void append_word(std::string& to, std::int64_t number) {
  std::array<char, longest_number> text;  // NOLINT: filled by to_chars
  const auto* const end = std::to_chars(text.data(), text.data() + text.size(), number).ptr;
  append_word(to, std::string_view{text.data(), static_cast<std::size_t>(end - text.data())});
}

}  // namespace holdfast::resp
