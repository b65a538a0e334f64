// consul_fence: Consul's transactions compare indexes only, so the token is the value of a key, written by compare and
// set; the index that comes of it is what later changes are guarded with.
#include <holdfast/fence.hpp>

#include "fences/token_text.hpp"

#include <algorithm>
#include <utility>

namespace holdfast {

namespace {

// Consul answers such a path by a redirect to another key.
bool is_key(std::string_view path) {
  for (std::size_t at = 0; at <= path.size();) {
    const auto end = std::min(path.find('/', at), path.size());
    const auto segment = path.substr(at, end - at);
    if (segment.empty() || segment == "." || segment == "..") return false;
    at = end + 1;
  }
  return support::is_utf8(path) && !support::has_control(path);
}

std::string in_json(std::string_view text) {
  std::string out{'"'};
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out += '"';
}

}  // namespace

consul_fence::consul_fence(std::string path) : path_(std::move(path)) {
  if (!is_key(path_))
    throw lock_error{{errc::misconfigured,
                      fmt::format("A fence on Consul needs a key such as stock/sku-42.fence, and "
                                  "not {}.",
                                  support::quoted(path_))}};
}

result<std::uint64_t> consul_fence::admit(fencing_token token, const calls& with) const {
  if (token.value == 0) return fences::no_lease_has_it();
  const auto ours = std::to_string(token.value);
  for (int i = 0; i < fences::most_tries; ++i) {
    auto found = with.get(path_);
    if (!found) return std::move(found).error();
    if (*found) {
      const auto newer = fences::is_newer(token, (*found)->value, path_);
      if (!newer) return newer.error();
      if (!*newer) return (*found)->index;
    }
    auto set = with.cas(path_, ours, *found ? (*found)->index : 0);
    if (!set) return std::move(set).error();
    if (*set) return **set;
  }
  return fences::changed_all_the_time(path_);
}

std::string consul_fence::guard(std::uint64_t pass) const {
  return fmt::format(R"({{"KV":{{"Verb":"check-index","Key":{},"Index":{}}}}})", in_json(path_),
                     pass);
}

}  // namespace holdfast
