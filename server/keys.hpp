// Who may do what. A key is 32 random bytes that a client shows as `Authorization: Bearer KEY`; the service knows its
// SHA-256 only. Key files have a line for each:
//
//   # name   scopes                  names       SHA-256 of the key
//   billing  acquire,inspect         billing/*   9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//   admin    acquire,inspect,break   *           60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752
//
// Names are those that begin with what stands before the *. High entropy is what makes one round of SHA-256 enough.
#pragma once

#include <holdfast/result.hpp>

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace holdfast::server {

// What a route needs. open: no key at all; any_key: a key, whatever it may do.
enum class scope : std::uint8_t { open, any_key, inspect, acquire, break_locks };

struct key {
  std::string name;  // empty: of a service without keys
  bool inspect = false, acquire = false, break_locks = false;
  std::string prefix;  // of the names it is for
  std::array<unsigned char, 32> hash{};

  bool has(scope wanted) const noexcept;
  bool may(scope wanted, std::string_view lock) const noexcept {
    return has(wanted) && lock.starts_with(prefix);
  }
};

class key_ring {
 public:
  // No keys: everybody may do everything.
  key_ring();
  // misconfigured for a file that others may read or write, and for a line that is none.
  static result<key_ring> read(const std::string& file);
  static result<key_ring> parse(std::string_view text, std::string_view file);

  bool empty() const noexcept { return keys_.empty(); }
  // Null for one that is not known. Takes as long for every key that is not.
  const key* find(std::string_view shown) const;
  // Of a service without keys.
  const key& anybody() const noexcept { return anybody_; }
  // Lives as long as the ring.
  const std::deque<key>& all() const noexcept { return keys_; }

 private:
  std::deque<key> keys_;
  key anybody_;
};

// A fresh key, and the line for a file of keys.
struct new_key {
  std::string secret;
  std::string line;
};
result<new_key> make_key(std::string_view name, std::string_view scopes, std::string_view names);

}  // namespace holdfast::server
