// One blocking connection to one Redis server, over hiredis: what a program without a lock library has.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

struct redisContext;

namespace holdfast::cli::flash {

class redis_error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A reply, as far as the recipes need one.
struct redis_reply {
  bool is_nil = true;
  std::int64_t number = 0;  // integers
  std::string text{};       // strings and statuses
  std::vector<redis_reply> parts{};
  bool is_ok() const noexcept { return text == "OK"; }
};

class redis_link {
 public:
  // redis://[user[:password]@]host[:port][/db] or unix:path. Throws redis_error.
  explicit redis_link(const std::string& url);
  // Throws redis_error, also for an error reply.
  redis_reply ask(const std::vector<std::string>& words);
  // EVAL.
  redis_reply run(std::string_view script, const std::vector<std::string>& keys,
                  const std::vector<std::string>& values);

 private:
  redis_reply ask_once(const std::vector<std::string>& words, std::string& refusal);
  struct closer {
    void operator()(redisContext* context) const noexcept;
  };
  std::unique_ptr<redisContext, closer> context_;
};

}  // namespace holdfast::cli::flash
