// What is sent to a server, and what comes back.
#pragma once

#include "engines/redis/script.hpp"
#include "engines/redis/settings.hpp"
#include "resp/resp.hpp"

#include <holdfast/engine.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::engines::redis {

// One call of a script: its name, keys and arguments in wire form. Words must be added exactly as announced.
class command {
 public:
  command(const script& what, std::size_t keys, std::size_t arguments);
  explicit command(std::initializer_list<std::string_view> plain);  // no script
  command& operator<<(std::string_view word) {
    resp::append_word(bytes_, word);
    return *this;
  }
  command& operator<<(std::int64_t number) {
    resp::append_word(bytes_, number);
    return *this;
  }
  // Another command right behind it, for which one more answer comes.
  void then(std::initializer_list<std::string_view> words);
  void then(const command& other);  // whose script must be known to the server
  // `other` goes first, and is answered first.
  void before(const command& other);
  // The same call with the whole text of the script, for a server that has forgotten it. False: it is whole already.
  bool spell_out();
  // Every answer for itself: an error reply to one is a value, and costs the others nothing.
  void keep_errors() noexcept { keeps_errors_ = true; }
  bool keeps_errors() const noexcept { return keeps_errors_; }

  std::string_view bytes() const noexcept { return bytes_; }
  unsigned replies() const noexcept { return replies_; }

 private:
  const script* what_ = nullptr;  // while only its name is there
  std::size_t words_ = 1;
  std::size_t lead_ = 0;  // where the script begins
  std::size_t head_ = 0;  // where what spell_out replaces ends
  unsigned replies_ = 1;
  bool keeps_errors_ = false;
  std::string bytes_;
};

// What came back: the values point into `frames`.
struct answer {
  std::string frames;
  std::vector<resp::value> values;
  std::uint64_t generation = 0;  // of the connection that answered; 0: it is gone since
};

// A time as PTTL says it: negative when there is no end. What is longer than nanoseconds can say has none, either.
inline nanoseconds time_left(std::int64_t ms) {
  constexpr auto longest = std::chrono::floor<std::chrono::milliseconds>(no_expiry).count();
  return ms < 0 || ms > longest ? no_expiry : nanoseconds{std::chrono::milliseconds{ms}};
}

// Where error replies are kept: the first that says more than that a key is of another kind.
const resp::value* refusal_in(const answer& got);
// The answer to PTTL: is the key there?
inline bool is_there(const resp::value& pttl) {
  return pttl.what == resp::value::kind::integer && pttl.integer != -2;
}
// A count as it is stored, in decimal; nothing when it is anything else.
std::optional<std::int64_t> count_in(const resp::value& stored);

// Renewals: so many grants for each script that the server can serve others in between. A script answers with a digit
// for each; one that was refused costs only its own grants their verdicts.
inline constexpr std::size_t most_per_script = 128;
// In a cluster each has one of its own: a script must not touch several slots.
inline std::size_t grants_per_script(const settings& how) {
  return how.in_cluster ? 1 : most_per_script;
}
renewal::verdict renewal_verdict(const answer& got, std::size_t first_script, std::size_t which,
                                 std::size_t per_script = most_per_script);

}  // namespace holdfast::engines::redis
