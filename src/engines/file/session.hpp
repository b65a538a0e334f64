// Sessions: which clients are attached, which are dead, and how to reach the living.
#pragma once

#include <holdfast/engine.hpp>

#include "engines/file/mapping.hpp"
#include "engines/file/word.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace holdfast::engines::file {

// The first word of the session's mutex: thread id and flags, as the kernel's robust-futex ABI has it.
inline futex_word& life_word(session& client) noexcept {
  return reinterpret_cast<futex_word&>(client.alive.__data.__lock);
}

constexpr bool says_alive(std::uint32_t life) noexcept {
  return (life & FUTEX_TID_MASK) != 0 && (life & FUTEX_OWNER_DIED) == 0;
}

// A slot is given to a new client by raising its generation first and locking its mutex second, so a session of an
// older generation never looks alive.
inline bool is_alive(session& client, std::uint32_t generation) noexcept {
  return client.generation.load(std::memory_order_acquire) == generation &&
         says_alive(life_word(client).load(std::memory_order_acquire));
}

// As far as a lock word can tell: it has only the low bits of the generation. After 16 owners of one slot in turn
// (65536 clients) a dead one may pass for alive; its ttl ends it then.
inline bool may_be_alive(session& client, std::uint32_t generation_low) noexcept {
  return low_bits(client.generation.load(std::memory_order_acquire), generation_bits) ==
             generation_low &&
         says_alive(life_word(client).load(std::memory_order_acquire));
}

struct session_id {
  std::uint32_t session = 0;
  std::uint32_t generation = 0;
};

// Takes a slot for the calling thread, which must be the one to end it. unavailable when all are taken.
result<session_id> begin_session(mapping& store, const engine_config& config);
// From now on all clients see this session as dead, and those that monitor it are awake.
void end_session(mapping& store, const session_id& id) noexcept;

// Sends a message to the session's thread and wakes it. Messages may be lost when too many come at once or when the
// sender is killed; the thread sees that and looks at everything.
void send_message(session& to, std::uint32_t cookie, std::uint64_t payload) noexcept;

// Cut to 64 bytes, never inside a character.
void write_text(text_words& to, std::string_view text) noexcept;
std::string read_text(const text_words& from);

}  // namespace holdfast::engines::file
