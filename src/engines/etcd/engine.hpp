// etcd, alone or as a cluster: etcd:// and etcds:// (README.md, docs/internals/etcd-layout.md).
#pragma once

#include <holdfast/engine.hpp>

namespace holdfast::engines::etcd {

result<std::unique_ptr<engine>> make_engine(const engine_config& config);

}  // namespace holdfast::engines::etcd
