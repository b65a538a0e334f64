#include "engines/redis/engine.hpp"

#include "engines/redis/native.hpp"
#include "engines/redis/redisson.hpp"
#include "engines/redis/setnx.hpp"

#include "support/text.hpp"

#include <fmt/format.h>

namespace holdfast::engines::redis {

result<std::unique_ptr<engine>> make_engine(const engine_config& config) {
  auto how = read_settings(config.url);
  if (!how) return std::move(how).error();
  if (how->layout == "native") return native::open(*how, config);
  if (how->layout == "redisson") return redisson::open(*how, config);
  if (const auto* by = recipe_of(how->layout)) return setnx::open(*by, *how, config);
  return error{errc::misconfigured,
               fmt::format("The store address {} asks for the layout {}; there are native, setnx, "
                           "redisson, setnx-expire-lua and getset.",
                           config.url.str(), support::quoted(how->layout))};
}

}  // namespace holdfast::engines::redis
