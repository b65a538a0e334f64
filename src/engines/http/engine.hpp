// The stores of a `holdfast serve`: http:// and https:// (README.md).
#pragma once

#include <holdfast/engine.hpp>

#include <memory>

namespace holdfast::engines::http {

result<std::unique_ptr<engine>> make_engine(const engine_config& config);

}  // namespace holdfast::engines::http
