// What a client asks for, read from the body of its request, and how the library is asked for it.
#pragma once

#include "body.hpp"
#include "service.hpp"

#include <holdfast/lease.hpp>
#include <holdfast/options.hpp>
#include <holdfast/task.hpp>

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

namespace holdfast::server {

enum class lock_kind : std::uint8_t { exclusive, shared, upgradeable, permits, election };

struct ask {
  std::vector<std::string> names;  // one, except of several at once
  bool several = false;
  lock_kind kind = lock_kind::exclusive;
  std::uint64_t permits = 0, of = 0;
  std::chrono::nanoseconds ttl{};
  std::chrono::nanoseconds wait{0};
  queue_order order = queue_order::fifo;
  int priority = 0;
  std::string label{};
  std::string request_id{};  // empty: none
  std::optional<pid_t> pid{};
  kept_by by = kept_by::client;

  const std::string& name() const noexcept { return names.front(); }
  lock_mode mode() const noexcept;
};

// Where it is asked, which decides what may be said. All throw refused.
enum class asked_at : std::uint8_t { lock, locks, hold, semaphore, election };
ask read_ask(const service& s, fields& in, asked_at where, std::string name);
std::chrono::nanoseconds checked_ttl(const service& s,
                                     std::optional<std::chrono::nanoseconds> given);

// The lease, or why not. With wait 0: one attempt.
task<result<std::vector<lease>>> take(service& s, const ask& wanted, std::chrono::nanoseconds wait,
                                      std::stop_token stop);

// As the answer to an acquire shows it.
std::string json_of(const service& s, const held_lease& which,
                    std::chrono::steady_clock::time_point asked, std::chrono::nanoseconds waited);
// Whoever has it, as an array; for the answer `busy`.
std::string holders_json(const lock_info& lock);

}  // namespace holdfast::server
