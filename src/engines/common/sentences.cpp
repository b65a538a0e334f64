#include "engines/common/sentences.hpp"

#include "support/text.hpp"

#include <fmt/format.h>

#include <string>

namespace holdfast::engines {

std::string kind_of_lock(std::uint64_t capacity) {
  return capacity == rw_capacity ? std::string{"a mutex"}
                                 : fmt::format("a semaphore of {} permits", capacity);
}

error about(error why, std::string_view name) {
  if (name.empty()) return why;
  auto sentence = fmt::format("Lock {}: {}", support::quoted(name), why.message());
  if (why.is_owner_over()) return taken_back{why.code(), std::move(sentence)};
  if (why.is_not_done()) return not_done{why.code(), std::move(sentence)};
  return {why.code(), std::move(sentence)};
}

error as_reading(error why) {
  if (why.code() != errc::outcome_unknown) return why;
  return {errc::unavailable, why.message()};
}

error as_doubt(const error& why) { return {errc::outcome_unknown, why.message()}; }

error lock_not_held(std::string_view name, std::string_view store, const owner_id& owner) {
  return {errc::not_held,
          fmt::format("Lock {} on {} is not held by {} (any more); nothing was changed.",
                      support::quoted(name), store, to_string(owner))};
}

not_done other_capacity(const request& ask, std::uint64_t capacity, std::string_view store) {
  const auto name = support::quoted(ask.name);
  if (ask.weight > ask.capacity)
    return {errc::misconfigured, fmt::format("Lock {} on {} has {} permits, and {} were asked for.",
                                             name, store, ask.capacity, ask.weight)};
  return {errc::misconfigured,
          fmt::format("Lock {} on {} is in use as {}, and was asked for as {}; all users of a name "
                      "must agree on its kind and its permits.",
                      name, store, kind_of_lock(capacity), kind_of_lock(ask.capacity))};
}

not_done cannot_downgrade(const grant& held, lock_mode is, lock_mode to, std::string_view store) {
  return {errc::misconfigured,
          fmt::format("Lock {} on {} is held as {}; it cannot be downgraded to {}.",
                      support::quoted(held.name), store, to_string(is), to_string(to))};
}

}  // namespace holdfast::engines
