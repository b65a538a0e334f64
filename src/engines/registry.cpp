// The one file that names every engine. HOLDFAST_ENGINE_<NAME> is 1 for each engine that is built.
#include "engines/registry.hpp"

#include <holdfast/client.hpp>
#include <holdfast/give_back.hpp>

#include "support/text.hpp"

#include <fmt/format.h>

#if HOLDFAST_ENGINE_CONSUL
#include "engines/consul/engine.hpp"
#endif
#if HOLDFAST_ENGINE_ETCD
#include "engines/etcd/engine.hpp"
#endif
#if HOLDFAST_ENGINE_FILE
#include "engines/file/engine.hpp"
#endif
#if HOLDFAST_ENGINE_HTTP
#include "engines/http/engine.hpp"
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
#if HOLDFAST_ENGINE_ZK
#include "engines/zk/engine.hpp"
#endif

#include <unistd.h>

#include <iterator>
#include <string>

namespace holdfast {

namespace engines {

namespace {

constexpr engine_entry rows[] = {
#if HOLDFAST_ENGINE_CONSUL
    {"consul", consul::make_engine},
    {"consuls", consul::make_engine},
#endif
#if HOLDFAST_ENGINE_ETCD
    {"etcd", etcd::make_engine},
    {"etcds", etcd::make_engine},
#endif
#if HOLDFAST_ENGINE_FILE
    {"file", file::make_engine},
#endif
#if HOLDFAST_ENGINE_HTTP
    {"http", http::make_engine},
    {"https", http::make_engine},
#endif
#if HOLDFAST_ENGINE_MEMORY
    {"memory", memory::make_engine},
#endif
#if HOLDFAST_ENGINE_MYSQL
    {"mysql", mysql::make_engine, mysql::schema},
#endif
#if HOLDFAST_ENGINE_REDIS
    {"redis", redis::make_engine},
    {"redis+cluster", redis::make_engine},
    {"redis+sentinel", redis::make_engine},
    {"rediss", redis::make_engine},
    {"rediss+cluster", redis::make_engine},
    {"rediss+sentinel", redis::make_engine},
    {"redlock", redis::make_engine},
    {"redlocks", redis::make_engine},
    {"unix", redis::make_engine},
#endif
#if HOLDFAST_ENGINE_ZK
    {"zk", zk::make_engine},
    {"zks", zk::make_engine},
#endif
    {{}, nullptr},  // so that a build without any engine has an array too; not part of the table
};

}  // namespace

std::span<const engine_entry> table() { return {rows, std::size(rows) - 1}; }

namespace {

// `where` says, for the sentence, what asked for the scheme.
result<engine_entry> find(const std::string& scheme, std::string_view where = {}) {
  for (const auto& row : table()) {
    if (row.scheme == scheme) return row;
  }
  return error{errc::unsupported,
               fmt::format("This build of Holdfast has no engine for {}{}; it has {}.",
                           support::quoted(scheme + ":"), where, fmt::join(known_schemes(), ", "))};
}

}  // namespace

}  // namespace engines

// Here and not in core, because core knows no engine.
result<std::unique_ptr<engine>> open_engine(const engine_config& config) {
  const auto row = engines::find(config.url.scheme(), fmt::format(" (in {})", config.url.str()));
  if (!row) return row.error();
  return row->make(config);
}

result<client> client::try_open(std::string_view url, client_options options) {
  return try_open_with(open_engine, url, std::move(options));
}

namespace {

class nobody_listens final : public engine_listener {
  void on_lost(std::span<const owner_id>, std::string_view) noexcept override {}
  void on_session_lost(std::uint64_t, std::string_view) noexcept override {}
};

}  // namespace

// As the dead client's next session: to the store an owner is whoever comes with the client's random bits.
result<void> give_back(std::string_view text, std::string_view name, const owner_id& owner,
                       nanoseconds patience) {
  const auto url = store_url::parse(text);
  if (!url) return url.error();
  if (auto ok = check_name(name); !ok) return ok;
  nobody_listens listener;
  const auto store = open_engine({*url, owner.client, system_clock(), listener, {}, getpid()});
  if (!store) return store.error();
  const call limits{std::chrono::steady_clock::now() + patience, {}};
  request ask;
  ask.name = name;
  ask.owner = owner;
  const auto there = (*store)->settle(ask, limits);
  if (!there) return there.error();
  if (there->what != entered::kind::granted)
    return error{errc::not_held, fmt::format("lock '{}' on {} is not held by {}", name, url->str(),
                                             to_string(owner))};
  return (*store)->release(there->granted, limits);
}

std::vector<std::string> known_schemes() {
  std::vector<std::string> schemes;
  for (const auto& row : engines::table()) schemes.emplace_back(row.scheme);
  return schemes;
}

result<std::string> schema_of(std::string_view scheme) {
  const auto row = engines::find(std::string{scheme});
  if (!row) return row.error();
  return row->schema == nullptr ? std::string{} : row->schema();
}

std::string default_store() {
#if HOLDFAST_ENGINE_FILE
  return "file:" + support::percent_encode(engines::file::default_path());
#else
  return "memory:";
#endif
}

}  // namespace holdfast
