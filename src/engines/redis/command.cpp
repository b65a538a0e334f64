#include "engines/redis/command.hpp"

#include <algorithm>
#include <charconv>

namespace holdfast::engines::redis {

command::command(const script& what, std::size_t keys, std::size_t arguments)
    : what_(&what), words_(3 + keys + arguments) {
  bytes_.reserve(256 + 32 * (keys + arguments));
  resp::append_head(bytes_, words_);
  *this << "EVALSHA" << what.sha;
  head_ = bytes_.size();
  *this << static_cast<std::int64_t>(keys);
}

void command::then(std::initializer_list<std::string_view> words) {
  resp::append_command(bytes_, words);
  ++replies_;
}

void command::then(const command& other) {
  bytes_ += other.bytes_;
  replies_ += other.replies_;
}

command::command(std::initializer_list<std::string_view> plain) {
  resp::append_command(bytes_, plain);
}

void command::before(const command& other) {
  bytes_.insert(0, other.bytes_);
  lead_ += other.bytes_.size();
  head_ += other.bytes_.size();
  replies_ += other.replies_;
}

bool command::spell_out() {
  if (what_ == nullptr) return false;
  std::string whole;
  whole.reserve(bytes_.size() + what_->text.size() + 32);
  whole.append(bytes_, 0, lead_);
  resp::append_head(whole, words_);
  resp::append_word(whole, std::string_view{"EVAL"});
  resp::append_word(whole, what_->text);
  whole.append(bytes_, head_);
  bytes_ = std::move(whole);
  what_ = nullptr;
  return true;
}

renewal::verdict renewal_verdict(const answer& got, std::size_t first_script, std::size_t which,
                                 std::size_t per_script) {
  const auto script = first_script + which / per_script;
  const auto at = which % per_script;
  if (script >= got.values.size() || got.values[script].is_error())
    return renewal::verdict::unknown;
  const auto verdicts = got.values[script].text;
  if (at >= verdicts.size()) return renewal::verdict::unknown;
  if (verdicts[at] == '1') return renewal::verdict::held;
  return verdicts[at] == '0' ? renewal::verdict::lost : renewal::verdict::unknown;
}

const resp::value* refusal_in(const answer& got) {
  const auto refuses = [](const resp::value& reply) {
    return reply.is_error() && !reply.text.starts_with("WRONGTYPE");
  };
  const auto found = std::ranges::find_if(got.values, refuses);
  return found == got.values.end() ? nullptr : &*found;
}

std::optional<std::int64_t> count_in(const resp::value& stored) {
  if (stored.is_null() || stored.is_error()) return std::nullopt;
  std::int64_t out = 0;
  const auto* end = stored.text.data() + stored.text.size();
  const auto [at, code] = std::from_chars(stored.text.data(), end, out);
  if (code != std::errc{} || at != end) return std::nullopt;
  return out;
}

}  // namespace holdfast::engines::redis
