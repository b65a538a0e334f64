// How contenders of a lock are named in ZooKeeper: by us, and by the clients whose locks we share. Pure.
//
// A contender is a child of the lock's node, made as ephemeral sequential: PREFIX BASE SEQUENCE, where the server adds
// the sequence of ten digits. The base says what it wants, the prefix who made it.
//
//   curator, go-zk   _c_<uuid>-<ours>-lock-0000000007     Curator's and go-zookeeper's own have no <ours>
//   kazoo            <32 hex>-<ours>-__lock__0000000007   kazoo's own has no -<ours>-
//
// Ours: the uuid is the client's id and <ours> the sequence of the owner in hex. So an owner's node is found again by
// listing, whatever became of the answer to its creation ("protection", as Curator calls it). A candidate's has the pid
// and the host of its client, too: its content is the candidate's value, for other programs to read.
//
// The sequence is the number of nodes that were ever created below the lock's node: no two nodes of a lock have it in
// common, and a later one has the larger. Old servers let it wrap after 2^31, and print it as a signed number then.
// Newer ones (3.8.0 does) give the last one to all that come, or negative ones again and again: such nodes are in no
// order, so ours do not stay (zk_engine::begin_anew), on whatever server. Curator and the others take them in any
// order, and have several holders then.
#pragma once

#include <holdfast/types.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace holdfast::engines::zk {

enum class wish : std::uint8_t { exclusive, shared };

struct layout {
  std::string_view name;      // as in ?layout=
  std::string_view programs;  // with which it is shared, for sentences
  bool is_kazoo = false;
  bool has_dashes = true;  // in the uuid
  // Bases: of a mutex, a writer among readers, a reader, and a candidate of an election. Empty: there is none.
  std::string_view mutex, writer, reader, candidate;
  bool has_permits = false;
  bool is_plain = false;  // one node per lock, which is the lock; no queue
  // The node of a lock is persistent and stays: its other clients count on one that they have once seen.
  bool has_lasting_folders = false;
};

const layout* find_layout(std::string_view name) noexcept;
std::string layout_choices();  // "curator, kazoo, go-zk or exclusive"

// Below a semaphore: its queue, and the nodes of those that have a permit. Curator's.
inline constexpr std::string_view queue_segment = "locks", permits_segment = "leases";
inline constexpr std::string_view permit_base = "lease-";
// What the permits' node says, and before what number.
inline constexpr std::string_view capacity_mark = "of=";

// What every name of this owner's nodes begins with, and no other's.
std::string prefix_of(const layout& in, const owner_id& owner);
// What follows it in the name of a candidate.
std::string address_of(std::int64_t pid, std::string_view host);
// The base for a request.
std::string_view base_for(const layout& in, lock_mode mode, bool is_candidate,
                          bool has_readers) noexcept;

struct contender {
  std::string name;
  wish wants = wish::exclusive;
  std::int32_t sequence = 0;
  std::optional<owner_id> owner{};  // nothing: another program's
  std::int64_t pid = 0;             // of a candidate
  std::string host{};
  bool may_become_reader =
      false;  // a writer, which may give its place in the order to a reader of its own

  // 3.8 gives the last number to all that come; and to those that come before it has carried out the one before them,
  // negative ones, which it gives out again the next time.
  bool is_in_no_order() const noexcept {
    return sequence < 0 || sequence == std::numeric_limits<std::int32_t>::max();
  }
  // Comes before the other in the queue: by distance, because sequences wrap.
  bool is_before(const contender& other) const noexcept {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(sequence) -
                                     static_cast<std::uint32_t>(other.sequence)) < 0;
  }
};

// A child of a lock's node; nothing: it is no contender.
std::optional<contender> read_contender(const layout& in, std::string_view child);
// A child of a semaphore's permits.
std::optional<contender> read_permit(std::string_view child);
// What to_string() makes of an owner.
std::optional<owner_id> read_owner_text(std::string_view text);
// "/a/b" of "/a/b/c", "c" of it.
std::string_view parent_of(std::string_view path) noexcept;
std::string_view last_of(std::string_view path) noexcept;

}  // namespace holdfast::engines::zk
