// The mysql: engine. See README.md beside this file.
#pragma once

#include <holdfast/engine.hpp>

#include <memory>
#include <string>

namespace holdfast::engines::mysql {

result<std::unique_ptr<engine>> make_engine(const engine_config& config);

// The tables it needs, as SQL with explanations.
std::string schema();

}  // namespace holdfast::engines::mysql
