// The engine of one layout as a part of a cluster: it serves one shard.
#pragma once

#include "engines/common/remote_engine.hpp"

#include <string_view>
#include <vector>

namespace holdfast::engines::redis {

class cluster_part : public remote_engine {
 public:
  // Of the reactor's thread. The shard has these tags (slots.hpp) from now on.
  virtual void serve(std::vector<unsigned> tags) { static_cast<void>(tags); }
  // Of the reactor's thread. Its master is another server.
  virtual void leave_server(std::string_view why) = 0;
};

}  // namespace holdfast::engines::redis
