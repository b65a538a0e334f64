// barrier: `expected` participants meet, again and again.
//
// Like std::barrier, in phases: arrive() says in which phase we arrived, wait() returns when that phase is
// complete. A participant that dies is missed by all: wait with a time limit.
#pragma once

#include <holdfast/async.hpp>
#include <holdfast/client.hpp>
#include <holdfast/options.hpp>

#include <cstdint>
#include <string>

namespace holdfast {

class barrier {
 public:
  static constexpr std::int64_t max() noexcept { return 4'095; }
  using phase = std::uint32_t;  // wraps around; nobody can be more than one behind

  // Creates it for `expected` participants unless it exists; misconfigured when it exists for another number.
  // Throws lock_error.
  barrier(const client& store, std::string name, std::int64_t expected,
          nanoseconds keep = std::chrono::hours{24});

  result<phase> arrive();
  result<void> wait(phase arrived, nanoseconds limit = forever, std::stop_token stop = {}) const;
  async<void> async_wait(phase arrived, nanoseconds limit = forever,
                         std::stop_token stop = {}) const;
  result<void> arrive_and_wait(nanoseconds limit = forever, std::stop_token stop = {});
  result<void> arrive_and_drop();  // one participant fewer from the next phase on
  result<void> remove();
  const std::string& name() const noexcept { return name_; }

 private:
  client store_;
  std::string name_;
  nanoseconds keep_;
};

}  // namespace holdfast
