// Waiting on a counter: what latch and barrier are made of.
#pragma once

#include "core/client_core.hpp"

#include <holdfast/async.hpp>

#include <functional>
#include <memory>
#include <string>

namespace holdfast::core {

// One operation, tried again while the store is unavailable (which means: it did not happen) and
// patience lasts.
result<counter> count(client_core& core, const counter_request& ask);

// Is what we wait for so? An error ends the wait with it.
using counter_test = std::function<result<bool>(const counter&)>;

struct counter_wait {
  std::string name;
  counter_test done;
  nanoseconds limit;
  std::stop_token stop;
};

result<void> wait_for(client_core& core, const counter_wait& what);
async<void> async_wait_for(std::shared_ptr<client_core> core, counter_wait what);

}  // namespace holdfast::core
