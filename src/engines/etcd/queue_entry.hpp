// One key under the name of a lock, as every client reads it; and how such keys are named.
//
//   [prefix/]NAME/LEASE-SLOT-CLIENT-SPEC--PID-HOST               value: \0 MARKS
//   [prefix/]NAME/LEASE-SEQUENCE-CLIENT-SPEC-SINCE-PID-HOST      value: LABEL, or LABEL \0 MARKS
//
// LEASE, SLOT, SEQUENCE, CLIENT and SINCE (milliseconds of the wall clock) in hex. SPEC: x exclusive, s shared, u
// upgradeable, p.K.N permits; then .rHEX for the upgrade of the key that was created at that revision. There is no
// slash in what follows the name: what lies deeper belongs to another lock, so `a` and `a/b` do not meet, and names
// need no escapes.
//
// The first form is for all without a label or value, and a client uses the same key again and again: etcd's index
// keeps every key that ever was until the history is compacted, and looks through them for each question about the
// name. The second is for entries with a label, for elections, whose value is read by other programs, also when empty,
// and for upgrades.
//
// Keys of another form are those of other clients (clientv3/concurrency: NAME/LEASE): exclusive ones.
//
// MARKS, one word each:
//   o=HEX s=HEX   SEQUENCE and SINCE, where the key does not say them
//   g             it is granted, and its token is the revision of this value
//   t=HEX         its token, kept through a change of value; it is granted
//   m=s m=u       its mode is this by now
//   n=KEY:CREATED:SEQUENCE:SINCE,...   the waiters behind it (of the key what follows the name), told to it by the
//                 holder that handed over to it (lock_queue.hpp)
//   c=HEX         called to look at the queue, by a value of this version
#pragma once

#include "engines/common/modes.hpp"
#include "engines/common/ordered_queue.hpp"

#include <holdfast/engine.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::engines::etcd {

namespace rpc {
class KeyValue;
}

// Half open, as etcd has it.
struct key_range {
  std::string first, end;
};

std::string counter_key(std::string_view root, std::string_view name);
std::optional<std::int64_t> read_counter(std::string_view value);
// Of a client, by its lease (session.hpp).
std::string epoch_key(std::string_view root, std::int64_t lease);
key_range keys_of(std::string_view root, std::string_view name);                      // of a lock
key_range keys_of(std::string_view root, std::string_view name, std::int64_t lease);  // our own
key_range keys_from(std::string_view prefix);  // all that begin with it
// The name of the lock that a key belongs to; nothing: it is no lock's.
std::optional<std::string_view> name_in(std::string_view root, std::string_view key);

// A key, and when it was created: it can be another one's afterwards.
struct stored {
  std::string key;
  std::int64_t created = 0;
  friend bool operator==(const stored&, const stored&) = default;
};

// Every request that creates a key under a lease compares this key of the same lease, and does nothing if it has
// changed. So a client that changes it makes sure that no request which it sent before, and gave up, is carried out
// later: a server that was stopped, or a slow network, keeps it for as long as it likes, and it would block the lock
// for as long as our session lives.
struct epoch_view {
  std::string key;
  std::int64_t modified = 0;  // the revision of its last change; 0: there is none
};

// A waiter to which a holder hands over.
struct successor {
  std::string key;
  std::int64_t created = 0, modified = 0;
  std::uint64_t sequence = 0;
  std::int64_t since_ms = 0;
  bool overtaken = false;
};

// Its position is the revision at which the key was created.
struct queue_entry : ordered_entry {
  std::string key;
  std::int64_t modified = 0;           // the revision of its value
  std::int64_t version = 1, calm = 1;  // up to this version no client came in ahead of it
  std::int64_t lease = 0;
  bool reused = false;  // a key of the first form
  std::int64_t since_ms = 0;
  std::int64_t pid = 0;
  std::string host;
  std::string label;
  std::vector<successor> successors;  // that it was told

  // A client came in ahead of it since it waits: its own creation is no token any more.
  bool overtaken() const noexcept { return !foreign && !entered && version != calm; }
  // Hands over when it goes, if it had to wait; one that waits just behind it need not look at it all the time.
  bool hands_over() const noexcept {
    return !foreign && mode == lock_mode::exclusive && replaces == 0;
  }
  // May be handed over to: a value that other programs read (an election's) is not written by others.
  bool takes_hand_over() const noexcept { return hands_over() && !entered && reused; }
};

// What is asked for and by which owner, as a key; `since_ms` by the wall clock.
struct key_parts {
  std::int64_t lease = 0;
  std::optional<std::uint64_t> slot;  // the first form
  owner_id owner;
  lock_mode mode = lock_mode::exclusive;
  std::uint64_t weight = rw_capacity, capacity = rw_capacity;
  std::int64_t replaces = 0;
  std::int64_t since_ms = 0;
  std::int64_t pid = 0;
  std::string_view host;
};
std::string make_key(std::string_view root, std::string_view name, const key_parts& parts);

// The marks of a value.
struct marks {
  std::uint64_t sequence = 0;  // 0: the key says it
  std::int64_t since_ms = 0;
  bool granted = false;
  std::optional<lock_mode> mode;
  std::optional<fencing_token> token;
  std::vector<successor> successors;
  std::int64_t called = 0;
};
std::string make_value(std::string_view label, const marks& with);

// A key that lies directly under a name, as the store has it.
struct stored_key {
  std::string_view key, value;
  std::int64_t created = 0, modified = 0, lease = 0, version = 1;
};
queue_entry read_queue_entry(const stored_key& from);
queue_entry read_queue_entry(const rpc::KeyValue& from);
// Does the key lie directly under the name whose range that is?
bool lies_in(const key_range& name, std::string_view key) noexcept;

}  // namespace holdfast::engines::etcd
