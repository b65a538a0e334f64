// The one file that names every engine. HOLDFAST_ENGINE_<NAME> is 1 for each engine that is built.
#include "engines/registry.hpp"

#include <holdfast/client.hpp>

#include "support/text.hpp"

#include <fmt/format.h>

#if HOLDFAST_ENGINE_FILE
#include "engines/file/engine.hpp"
#endif
#if HOLDFAST_ENGINE_MEMORY
#include "engines/memory/engine.hpp"
#endif
#if HOLDFAST_ENGINE_MYSQL
#include "engines/mysql/engine.hpp"
#endif
#if HOLDFAST_ENGINE_REDIS
#include "engines/redis/engine.hpp"
#endif

#include <iterator>
#include <string>

namespace holdfast {

namespace engines {

namespace {

constexpr engine_entry rows[] = {
#if HOLDFAST_ENGINE_FILE
    {"file", file::make_engine},
#endif
#if HOLDFAST_ENGINE_MEMORY
    {"memory", memory::make_engine},
#endif
#if HOLDFAST_ENGINE_MYSQL
    {"mysql", mysql::make_engine},
#endif
#if HOLDFAST_ENGINE_REDIS
    {"redis", redis::make_engine},
    {"rediss", redis::make_engine},
    {"unix", redis::make_engine},
#endif
    {{}, nullptr},  // so that a build without any engine has an array too; not part of the table
};

}  // namespace

std::span<const engine_entry> table() { return {rows, std::size(rows) - 1}; }

}  // namespace engines

// Here and not in core, because core knows no engine.
result<client> client::try_open(std::string_view url, client_options options) {
  const auto make = [](const engine_config& config) -> result<std::unique_ptr<engine>> {
    const auto& scheme = config.url.scheme();
    for (const auto& row : engines::table()) {
      if (row.scheme == scheme) return row.make(config);
    }
    return error{errc::unsupported,
                 fmt::format("This build of Holdfast has no engine for {} (in {}); it has {}.",
                             support::quoted(scheme + ":"), config.url.str(),
                             fmt::join(known_schemes(), ", "))};
  };
  return try_open_with(make, url, std::move(options));
}

std::vector<std::string> known_schemes() {
  std::vector<std::string> schemes;
  for (const auto& row : engines::table()) schemes.emplace_back(row.scheme);
  return schemes;
}

std::string default_store() {
#if HOLDFAST_ENGINE_FILE
  return "file:" + support::percent_encode(engines::file::default_path());
#else
  return "memory:";
#endif
}

}  // namespace holdfast
