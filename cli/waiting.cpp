#include "waiting.hpp"

#include "output.hpp"
#include "text.hpp"
#include "words.hpp"

#include <holdfast/url.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <string_view>

namespace holdfast::cli {

namespace {

using namespace std::chrono_literals;

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view{} : value;
}

// "file:" is the default store with its path spelt out.
result<store_url> spelt_out(std::string_view text) {
  auto url = store_url::parse(text);
  return url && url->scheme() == "file" && url->path().empty() ? store_url::parse(default_store())
                                                               : url;
}

bool same_option(const store_url& a, const store_url& b, std::string_view key) {
  const auto* left = a.find(key);
  const auto* right = b.find(key);
  return left == nullptr || right == nullptr ? left == right : *left == *right;
}

bool same_store(std::string_view a, std::string_view b) {
  if (a == b) return true;
  const auto left = spelt_out(a);
  const auto right = spelt_out(b);
  return left && right && left->scheme() == right->scheme() && left->path() == right->path() &&
         std::ranges::equal(left->endpoints(), right->endpoints(),
                            [](const endpoint& one, const endpoint& other) {
                              return one.host == other.host && one.port == other.port;
                            }) &&
         std::ranges::all_of(std::initializer_list<std::string_view>{"layout", "prefix", "db"},
                             [&](auto key) { return same_option(*left, *right, key); });
}

std::string in_words(const lock_info& lock) {
  if (lock.holders.empty()) return "";
  const auto oldest = std::ranges::max_element(lock.holders, {}, &holder_info::age);
  const auto others = lock.holders.size() - 1;
  return fmt::format("{}{}{}{}", process_of(*oldest),
                     oldest->label.empty() ? "" : fmt::format(" ({})", oldest->label),
                     held_for(*oldest),
                     others == 0   ? ""
                     : others == 1 ? " and one other"
                                   : fmt::format(" and {} others", others));
}

// Can we not have it beside this holder? Readers can, but not when a writer waits between the two.
bool in_our_way(const wanted& what, const lock_info& lock, const holder_info& holder) {
  return what.permits == 0 || holder.weight + what.permits > lock.capacity;
}

}  // namespace

std::optional<fencing_token> token_around_us(const arguments& args, const std::string& name) {
  if (variable("HOLDFAST_LOCK") != name) return std::nullopt;
  const auto digits = variable("HOLDFAST_TOKEN");
  fencing_token token;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), token.value);
  if (read.ec != std::errc{} || !same_store(args.store_text(), variable("HOLDFAST_STORE")))
    return std::nullopt;
  return token;
}

held_by look_at_holders(const client& store, const wanted& what) {
  const auto lock = store.inspect(what.name);
  // Without a look the environment is all there is.
  if (!lock) return {"", what.around_us && what.permits == 0};
  const bool ourselves =
      what.around_us && std::ranges::any_of(lock->holders, [&](const holder_info& holder) {
        return holder.token == *what.around_us && in_our_way(what, *lock, holder);
      });
  return {in_words(*lock), ourselves};
}

wait_notice::wait_notice(const client& store, wanted what) : store_(store), what_(std::move(what)) {
  if (stderr_is_terminal() || what_.around_us)
    speaker_ = std::thread{[this] { speak_after_a_second(); }};
}

wait_notice::~wait_notice() {
  finish();
  if (speaker_.joinable()) speaker_.join();
}

void wait_notice::finish() {
  const std::lock_guard lock{guard_};
  is_over_ = true;
  finished_.notify_all();
}

void wait_notice::speak_after_a_second() {
  {
    std::unique_lock lock{guard_};
    if (finished_.wait_for(lock, 1s, [this] { return is_over_; })) return;
  }
  const auto holders = look_at_holders(store_, what_);
  const std::lock_guard lock{guard_};  // so that nothing is said after finish()
  if (!is_over_) say(holders);
}

void wait_notice::say(const held_by& holders) const {
  const auto held =
      holders.words.empty() ? std::string{} : fmt::format(": held by {}", holders.words);
  if (holders.ourselves) {
    warn(
        fmt::format("Waiting for \"{}\"{}. That is the holdfast around this very command, so this "
                    "waits for itself. Give one of the two another name, or leave the inner "
                    "one out.",
                    what_.name, held));
  } else if (stderr_is_terminal()) {
    complain(fmt::format("Waiting for \"{}\"{}.", what_.name, held));
  }
}

}  // namespace holdfast::cli
