#include "engines/redis/engine.hpp"

#include "engines/redis/cluster.hpp"
#include "engines/redis/native.hpp"
#include "engines/redis/redisson.hpp"
#include "engines/redis/redlock.hpp"
#include "engines/redis/setnx.hpp"

#include "support/text.hpp"

#include <fmt/format.h>

namespace holdfast::engines::redis {

result<std::unique_ptr<engine>> make_engine(const engine_config& config) {
  if (config.url.scheme().starts_with("redlock")) {
    auto over = read_redlock_settings(config.url);
    if (!over) return std::move(over).error();
    return redlock::open(std::move(*over), config);
  }
  auto how = read_settings(config.url);
  if (!how) return std::move(how).error();
  if (how->is_cluster()) return cluster::open(*how, config);
  auto opened = open_layout(*how, config);
  if (!opened) return std::move(opened).error();
  return std::unique_ptr<engine>{std::move(*opened)};
}

result<std::unique_ptr<cluster_part>> open_layout(const settings& how,
                                                  const engine_config& config) {
  if (how.layout == "native") return native::open(how, config);
  if (how.layout == "redisson") return redisson::open(how, config);
  if (const auto* by = recipe_of(how.layout)) return setnx::open(*by, how, config);
  return error{errc::misconfigured,
               fmt::format("The store address {} asks for the layout {}; there are native, setnx, "
                           "redisson, setnx-expire-lua and getset.",
                           how.url, support::quoted(how.layout))};
}

}  // namespace holdfast::engines::redis
