// Redis: see README.md in this folder for the layouts, and docs/guides/redis.md for users.
#pragma once

#include "engines/redis/cluster_part.hpp"
#include "engines/redis/settings.hpp"

#include <holdfast/engine.hpp>

#include <memory>

namespace holdfast::engines::redis {

result<std::unique_ptr<engine>> make_engine(const engine_config& config);
// The engine of the layout that the settings name, for one server, or for one shard of a cluster.
result<std::unique_ptr<cluster_part>> open_layout(const settings& how, const engine_config& config);

}  // namespace holdfast::engines::redis
