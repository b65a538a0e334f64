// What engines say alike, in one wording each. A lock is named as in support::quoted(), a store by its address with
// the password redacted.
#pragma once

#include <holdfast/engine.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace holdfast::engines {

// "a mutex" (also as readers and a writer), or "a semaphore of 4 permits".
std::string kind_of_lock(std::uint64_t capacity);

// A failure of the transport, with the lock that was asked for (may be empty).
error about(error why, std::string_view name);
// Of what was only to be read, so nothing is unknown.
error as_reading(error why);
// Of what was done about something that may be in the store: that it was certainly not done says nothing about that.
error as_doubt(const error& why);

error lock_not_held(std::string_view name, std::string_view store, const owner_id& owner);
// In use with that capacity, which is not the one that was asked for, or is too small for it.
not_done other_capacity(const request& ask, std::uint64_t capacity, std::string_view store);
not_done cannot_downgrade(const grant& held, lock_mode is, lock_mode to, std::string_view store);

}  // namespace holdfast::engines
