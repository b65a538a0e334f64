// What the bad days of a Redlock share: several servers, and a look into each of them.
#pragma once

#include "faults/faults.hpp"

#include "support/redlock_servers.hpp"

#include <memory>

namespace holdfast::testing {

class redlock_faults : public ::testing::Test {
 protected:
  void SetUp() override { need(redis_server::available(), "redlock5"); }
};

inline bool has_key(const redis_server& server, const std::string& key) {
  return redis_command(server, {"EXISTS", key}) == "1";
}

// On how many of the nodes that answer is the lock?
inline std::size_t votes_for(redlock_servers& nodes, const std::string& name,
                             const std::vector<std::size_t>& but = {}) {
  std::size_t out = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (std::ranges::find(but, i) == but.end() && has_key(nodes[i], name)) ++out;
  return out;
}

// A proxy in front of each node.
class proxied_nodes {
 public:
  explicit proxied_nodes(redlock_servers& nodes) {
    for (std::size_t i = 0; i < nodes.size(); ++i)
      all_.push_back(std::make_unique<fault_proxy>(nodes[i].port()));
  }
  fault_proxy& operator[](std::size_t i) { return *all_[i]; }
  std::size_t size() const noexcept { return all_.size(); }
  std::string url(const std::string& query) const {
    std::string out;
    for (const auto& one : all_)
      out += (out.empty() ? "redlock://127.0.0.1:" : ",127.0.0.1:") + std::to_string(one->port());
    return out + query;
  }

 private:
  std::vector<std::unique_ptr<fault_proxy>> all_;
};

}  // namespace holdfast::testing
