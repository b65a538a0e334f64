#include "words.hpp"

#include "text.hpp"

#include <fmt/format.h>

namespace holdfast::cli {

std::string_view word(wakeup_kind kind) noexcept {
  return kind == wakeup_kind::push ? "push" : "poll";
}

std::string_view word(expiry_clock clock) noexcept {
  return clock == expiry_clock::local_steady ? "local_steady" : "server";
}

std::string_view word(token_origin origin) noexcept {
  switch (origin) {
    case token_origin::counter:
      return "counter";
    case token_origin::server_time:
      return "server_time";
    case token_origin::store_revision:
      return "store_revision";
  }
  return "unknown";
}

std::string_view word(fencing_strength fencing) noexcept {
  switch (fencing) {
    case fencing_strength::strict:
      return "strict";
    case fencing_strength::best_effort:
      return "best_effort";
    case fencing_strength::none:
      return "none";
  }
  return "unknown";
}

std::string_view word(finding::level how) noexcept {
  switch (how) {
    case finding::level::good:
      return "good";
    case finding::level::note:
      return "note";
    case finding::level::warning:
      return "warning";
    case finding::level::bad:
      return "bad";
  }
  return "unknown";
}

std::string mode_of(const lock_info& lock, const holder_info& listed) {
  if (is_semaphore(lock)) return fmt::format("{} of {}", listed.weight, lock.capacity);
  return to_string(listed.mode);
}

std::string process_of(const holder_info& listed) {
  if (listed.host.empty() && listed.pid == 0) return owner_of(listed);
  return fmt::format("{}:{}", listed.host.empty() ? "?" : listed.host, listed.pid);
}

std::string owner_of(const holder_info& listed) {
  return listed.owner_text.empty() ? to_string(listed.owner) : listed.owner_text;
}

std::string held_for(const holder_info& listed) {
  return listed.age == unknown_time ? "" : " for " + brief(listed.age);
}

std::string token_of(const holder_info& listed) {
  return listed.token.value == 0 ? "-" : std::to_string(listed.token.value);
}

std::string permits_of(const lock_info& lock) {
  if (!is_semaphore(lock)) return "";
  const auto number = [](std::uint64_t count) {
    return fmt::format("{} permit{}", count, count == 1 ? "" : "s");
  };
  if (!lock.free_permits) return number(lock.capacity);
  if (lock.capacity == 0)
    return fmt::format("{} free of an unknown number", number(*lock.free_permits));
  return fmt::format("{}, {} free", number(lock.capacity), *lock.free_permits);
}

}  // namespace holdfast::cli
