// The words for what the library says in enums and weights.
#pragma once

#include <holdfast/capabilities.hpp>
#include <holdfast/engine.hpp>

#include <string>
#include <string_view>

namespace holdfast::cli {

constexpr bool is_semaphore(const lock_info& lock) noexcept {
  return lock.free_permits || (lock.capacity != 0 && lock.capacity != rw_capacity);
}

std::string_view word(wakeup_kind kind) noexcept;          // "push", "poll"
std::string_view word(expiry_clock clock) noexcept;        // "local_steady", "server"
std::string_view word(token_origin origin) noexcept;       // "counter", ...
std::string_view word(fencing_strength fencing) noexcept;  // "strict", ...
std::string_view word(finding::level how) noexcept;        // "good", "note", "warning", "bad"

// "exclusive", "shared", "2 of 5"
std::string mode_of(const lock_info& lock, const holder_info& listed);
// "host:1234"; its owner where the store does not know the process
std::string process_of(const holder_info& listed);
// As the store and other programs write it.
std::string owner_of(const holder_info& listed);
std::string held_for(const holder_info& listed);  // " for 3m12s"; "" when it is not known
std::string token_of(const holder_info& listed);  // "-" when it has none
// "3 permits", "3 permits, 1 free", "1 permit free of an unknown number"; empty unless a semaphore
std::string permits_of(const lock_info& lock);

}  // namespace holdfast::cli
