#include <holdfast/types.hpp>

#include <fmt/format.h>

namespace holdfast {

std::string to_string(const owner_id& owner) {
  return fmt::format("{:016x}{:016x}-{:x}", owner.client[0], owner.client[1], owner.sequence);
}

const char* to_string(lock_mode mode) noexcept {
  switch (mode) {
    case lock_mode::exclusive:
      return "exclusive";
    case lock_mode::shared:
      return "shared";
    case lock_mode::upgradeable:
      return "upgradeable";
    case lock_mode::permits:
      return "permits";
  }
  return "unknown";
}

}  // namespace holdfast
