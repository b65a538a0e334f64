// The in-process store: the reference that every other engine is compared with. See store.hpp for the rules.
#pragma once

#include <holdfast/engine.hpp>

#include <memory>

namespace holdfast::engines::memory {

// memory: is private to this client; memory:NAME is shared by all clients of the process that name it.
result<std::unique_ptr<engine>> make_engine(const engine_config& config);

}  // namespace holdfast::engines::memory
