// Any bytes as an answer of a Consul agent, and as what lies in its keys. What must hold: nothing is read that is not
// there; a refused transaction is not taken for one that was carried out; and what is read can be written again.
#include "fuzz/require.hpp"

#include "engines/consul/kv.hpp"
#include "engines/consul/lock_state.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace holdfast::engines::consul;

void read_state(std::vector<kv_pair> pairs) {
  const auto keys = keys_of("p/", "stock");
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    // Half of them lie where locks do.
    if (i % 2 == 0) pairs[i].key = keys.folder + pairs[i].key;
    const auto parts = split_key("p/", pairs[i].key);
    if (parts)
      REQUIRE(keys_of("p/", parts->name).folder.size() + parts->leaf.size() == pairs[i].key.size());
  }
  const lock_state seen{pairs, keys};
  for (const auto& entry : seen.queue().all()) REQUIRE(entry.foreign || !entry.session.empty());
  REQUIRE(seen.queue().all().size() + seen.dead().size() <= pairs.size() * 2 + 64'000);
  REQUIRE((seen.version() != 0) == seen.anybody_holds());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes{reinterpret_cast<const char*>(data), size};
  for (const std::size_t before : {0U, 1U, 4U}) {
    const auto in = read_txn(bytes, before);
    if (!in) continue;
    REQUIRE(in->written.size() <= before);
    REQUIRE(in->done() || !in->failures.empty());
    read_state(in->tree);
  }
  if (auto in = read_pairs(bytes)) read_state(std::move(*in));
  if (const auto id = read_session_id(bytes)) REQUIRE(!id->empty() && id->size() <= 64);
  if (const auto record = read_semaphore(bytes)) {
    const auto again = read_semaphore(semaphore_text(*record));
    REQUIRE(again && again->limit == record->limit);
    REQUIRE(again->holders.size() <= record->holders.size());
  }
  if (const auto plain = from_base64(bytes)) REQUIRE(base64(*plain).size() == size);
  // One key of a lock with just these bytes in it.
  const auto keys = keys_of("p/", "stock");
  const holdfast::owner_id owner{{1, 2}, 3};
  read_state({{owner_key(keys, owner), std::string{bytes}, "s", 0, 1, 1},
              {".lock", std::string{bytes}, "", semaphore_flags, 2, 2}});
  return 0;
}
