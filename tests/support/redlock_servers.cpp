#include "support/redlock_servers.hpp"

#include "support/shared_server.hpp"

#include <map>

namespace holdfast::testing {

redlock_servers& shared_redlock(std::size_t nodes) {
  static std::map<std::size_t, shared_server<redlock_servers>> all;
  return *all.try_emplace(nodes, redlock_servers::options{.nodes = nodes}).first->second;
}

}  // namespace holdfast::testing
