#include "keys.hpp"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <vector>

namespace holdfast::server {

namespace {

using digest = std::array<unsigned char, SHA256_DIGEST_LENGTH>;

digest sha256(std::string_view text) {
  digest out{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), out.data());
  return out;
}

std::string hex_of(std::span<const unsigned char> bytes) {
  std::string out;
  for (const auto byte : bytes) fmt::format_to(std::back_inserter(out), "{:02x}", byte);
  return out;
}

std::optional<digest> digest_of(std::string_view hex) {
  digest out{};
  if (hex.size() != 2 * out.size()) return std::nullopt;
  for (std::size_t i = 0; i < hex.size(); ++i) {
    const char c = hex[i];
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit && (c < 'a' || c > 'f')) return std::nullopt;
    const auto value = static_cast<unsigned>(is_digit ? c - '0' : c - 'a' + 10);
    out[i / 2] = static_cast<unsigned char>(out[i / 2] * 16U + value);
  }
  return out;
}

std::vector<std::string_view> pieces(std::string_view line, std::string_view separators) {
  std::vector<std::string_view> out;
  while (true) {
    const auto begin = line.find_first_not_of(separators);
    if (begin == std::string_view::npos) return out;
    line.remove_prefix(begin);
    const auto end = std::min(line.find_first_of(separators), line.size());
    out.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

bool is_plain_word(std::string_view text) {
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

bool take_scopes(key& into, std::string_view scopes) {
  const auto words = pieces(scopes, ",");
  for (const auto word : words) {
    bool* which = word == "inspect"   ? &into.inspect
                  : word == "acquire" ? &into.acquire
                  : word == "break"   ? &into.break_locks
                                      : nullptr;
    if (which == nullptr) return false;
    *which = true;
  }
  return !words.empty();
}

// "*" is all names, "billing/*" those that begin with "billing/"; a * stands nowhere else.
bool take_names(key& into, std::string_view names) {
  if (!names.ends_with('*') || names.find('*') != names.size() - 1) return false;
  into.prefix = names.substr(0, names.size() - 1);
  return true;
}

error bad_line(std::string_view file, std::size_t number, std::string_view why) {
  return {errc::misconfigured,
          fmt::format("line {} of the file of keys {} {}; a line is NAME SCOPES NAMES SHA256, as "
                      "holdfast serve --new-key prints it",
                      number, file, why)};
}

result<key> key_of(std::string_view line, std::string_view file, std::size_t number) {
  const auto words = pieces(line, " \t\r");
  if (words.size() != 4) return bad_line(file, number, "has not four words");
  key out;
  if (!is_plain_word(words[0]))
    return bad_line(file, number, "begins with no name of letters and digits");
  out.name = words[0];
  if (!take_scopes(out, words[1]))
    return bad_line(file, number, "has other scopes than acquire, inspect and break");
  if (!take_names(out, words[2]))
    return bad_line(file, number, "has names that do not end with their only *");
  const auto hash = digest_of(words[3]);
  if (!hash) return bad_line(file, number, "does not end with 64 hexadecimal digits");
  out.hash = *hash;
  return out;
}

}  // namespace

bool key::has(scope wanted) const noexcept {
  switch (wanted) {
    case scope::open:
    case scope::any_key:
      return true;
    case scope::inspect:
      return inspect;
    case scope::acquire:
      return acquire;
    case scope::break_locks:
      return break_locks;
  }
  return false;
}

key_ring::key_ring() { anybody_.inspect = anybody_.acquire = anybody_.break_locks = true; }

result<key_ring> key_ring::read(const std::string& file) {
  struct stat about {};
  if (stat(file.c_str(), &about) != 0)
    return error{errc::misconfigured, fmt::format("the file of keys {} cannot be found", file)};
  const bool is_ours = about.st_uid == geteuid() || about.st_uid == 0;
  if (!S_ISREG(about.st_mode) || !is_ours || (about.st_mode & 077) != 0)
    return error{errc::misconfigured,
                 fmt::format("the file of keys {} must be a plain file that belongs to this user "
                             "and that nobody else can read or write (chmod 600)",
                             file)};
  std::ifstream in{file};
  const std::string text{std::istreambuf_iterator<char>{in}, {}};
  if (!in)
    return error{errc::misconfigured, fmt::format("the file of keys {} cannot be read", file)};
  return parse(text, file);
}

result<key_ring> key_ring::parse(std::string_view text, std::string_view file) {
  key_ring out;
  std::size_t number = 0;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    const auto line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    const auto begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos || line[begin] == '#') continue;
    auto one = key_of(line, file, number);
    if (!one) return std::move(one).error();
    for (const auto& other : out.keys_)
      if (other.name == one->name || other.hash == one->hash)
        return bad_line(file, number, "has the name or the key of an earlier line");
    out.keys_.push_back(std::move(*one));
  }
  if (out.keys_.empty())
    return error{errc::misconfigured,
                 fmt::format("the file of keys {} has no key; holdfast serve --new-key NAME makes "
                             "one",
                             file)};
  return out;
}

const key* key_ring::find(std::string_view shown) const {
  const auto hash = sha256(shown);
  const key* found = nullptr;
  for (const auto& each : keys_)
    if (CRYPTO_memcmp(hash.data(), each.hash.data(), hash.size()) == 0) found = &each;
  return found;
}

result<new_key> make_key(std::string_view name, std::string_view scopes, std::string_view names) {
  std::array<unsigned char, 32> random{};
  if (RAND_bytes(random.data(), static_cast<int>(random.size())) != 1)
    return error{errc::unavailable, "the system's random source gave no key"};
  new_key out;
  out.secret = hex_of(random);
  out.line = fmt::format("{} {} {} {}", name, scopes, names, hex_of(sha256(out.secret)));
  if (auto judged = key_of(out.line, "to be", 1); !judged)
    return error{errc::misconfigured,
                 fmt::format("a key needs a name of letters and digits, scopes such as "
                             "acquire,inspect,break, and names such as * or billing/*; not \"{}\", "
                             "\"{}\", \"{}\"",
                             name, scopes, names)};
  return out;
}

}  // namespace holdfast::server
