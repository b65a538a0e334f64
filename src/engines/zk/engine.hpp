// ZooKeeper, alone or as an ensemble: zk:// and zks:// (README.md).
#pragma once

#include <holdfast/engine.hpp>

#include <memory>

namespace holdfast::engines::zk {

result<std::unique_ptr<engine>> make_engine(const engine_config& config);

}  // namespace holdfast::engines::zk
