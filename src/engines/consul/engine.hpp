// consul: and consuls: one Consul datacenter, through one or more of its agents.
#pragma once

#include <holdfast/engine.hpp>

namespace holdfast::engines::consul {

result<std::unique_ptr<engine>> make_engine(const engine_config& config);

}  // namespace holdfast::engines::consul
