// zk_fence: ZooKeeper compares versions only, so the token is the content of a node, written by compare and set; the
// version that comes of it is what later changes are guarded with.
#include <holdfast/fence.hpp>

#include "fences/token_text.hpp"

#include <utility>

namespace holdfast {

zk_fence::zk_fence(std::string path) : path_(std::move(path)) {
  if (path_.size() < 2 || path_.front() != '/' || path_.back() == '/')
    throw lock_error{{errc::misconfigured,
                      fmt::format("A fence on ZooKeeper needs a path such as /stock/sku-42.fence, "
                                  "and not {}.",
                                  support::quoted(path_))}};
}

result<std::int32_t> zk_fence::admit(fencing_token token, const session& with) const {
  if (token.value == 0) return fences::no_lease_has_it();
  const auto ours = std::to_string(token.value);
  for (int i = 0; i < fences::most_tries; ++i) {
    auto found = with.get(path_);
    if (!found) return std::move(found).error();
    if (!*found) {
      auto made = with.create(path_, ours);
      if (!made) return std::move(made).error();
      if (*made) return 0;
      continue;
    }
    const auto newer = fences::is_newer(token, (*found)->data, path_);
    if (!newer) return newer.error();
    if (!*newer) return (*found)->version;
    auto set = with.set(path_, ours, (*found)->version);
    if (!set) return std::move(set).error();
    if (*set) return **set;
  }
  return fences::changed_all_the_time(path_);
}

}  // namespace holdfast
