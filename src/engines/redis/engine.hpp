// Redis: see README.md in this folder for the layouts, and docs/guides/redis.md for users.
#pragma once

#include <holdfast/engine.hpp>

#include <memory>

namespace holdfast::engines::redis {

result<std::unique_ptr<engine>> make_engine(const engine_config& config);

}  // namespace holdfast::engines::redis
