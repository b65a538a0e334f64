#include "engines/file/session.hpp"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

namespace holdfast::engines::file {

namespace {

constexpr std::chrono::seconds session_timeout{5};

// The next slot whose last owner is gone. REQUIRES: header.growing.
session* find_free_slot(mapping& store, std::uint32_t& index) {
  header& top = store.head();
  for (std::uint32_t i = 0; i < session_count; ++i) {
    index = (top.next_session + i) % session_count;
    session& slot = store.session_at(index);
    if (says_alive(life_word(slot).load(std::memory_order_acquire))) continue;
    // Round robin, so that a slot rests as long as possible between two owners.
    top.next_session = (index + 1) % session_count;
    return &slot;
  }
  return nullptr;
}

void describe_client(session& slot, const engine_config& config) {
  slot.pid = config.pid;
  slot.nonce[0] = config.client[0];
  slot.nonce[1] = config.client[1];
  write_text(slot.host, config.host);
}

}  // namespace

result<session_id> begin_session(mapping& store, const engine_config& config) {
  if (auto locked = store.lock_growing(session_timeout); !locked) return locked.error();
  session_id id;
  session* slot = find_free_slot(store, id.session);
  if (slot != nullptr) {
    id.generation = slot->generation.load(std::memory_order_relaxed) + 1;
    slot->generation.store(id.generation, std::memory_order_release);
    describe_client(*slot, config);
    const int got = pthread_mutex_trylock(&slot->alive);
    if (got == EOWNERDEAD) pthread_mutex_consistent(&slot->alive);
    if (got != 0 && got != EOWNERDEAD) slot = nullptr;
  }
  store.unlock_growing();
  if (slot == nullptr) {
    return error{
        errc::unavailable,
        fmt::format("The store {} has {} clients attached, which is the most it can have; close "
                    "some, or share one client per process.",
                    store.path(), session_count)};
  }
  futex_wake(life_word(*slot), INT_MAX);  // those that still wait for the predecessor's end
  return id;
}

void end_session(mapping& store, const session_id& id) noexcept {
  session& ended = store.session_at(id.session);
  pthread_mutex_unlock(&ended.alive);
  // glibc wakes one waiter, and only if it saw the flag; all of them have something to do.
  futex_wake(life_word(ended), INT_MAX);
}

void send_message(session& to, std::uint32_t cookie, std::uint64_t payload) noexcept {
  const auto position = to.ring_head.fetch_add(1, std::memory_order_acq_rel);
  ring_slot& slot = to.ring[position % ring_size];
  slot.payload = payload;
  slot.stamp.store(std::uint64_t{position + 1} << 32 | cookie, std::memory_order_release);
  to.wake.fetch_add(1, std::memory_order_acq_rel);
  futex_wake(to.wake, 1);
}

void write_text(text_words& to, std::string_view text) noexcept {
  std::array<char, sizeof(text_words)> bytes{};
  std::size_t length = std::min(text.size(), bytes.size());
  while (length < text.size() && length > 0 &&
         (static_cast<unsigned char>(text[length]) & 0xC0U) == 0x80U) {
    --length;
  }
  if (length > 0) std::memcpy(bytes.data(), text.data(), length);  // an empty view may have no data
  for (std::size_t i = 0; i < to.size(); ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i * sizeof word, sizeof word);
    to[i] = word;
    if (text.empty()) return;  // the first word says it all
  }
}

std::string read_text(const text_words& from) {
  std::array<char, sizeof(text_words)> bytes{};
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::uint64_t word = from[i];
    std::memcpy(bytes.data() + i * sizeof word, &word, sizeof word);
  }
  return {bytes.data(), strnlen(bytes.data(), bytes.size())};
}

}  // namespace holdfast::engines::file
