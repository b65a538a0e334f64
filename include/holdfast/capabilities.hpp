// What a store can promise, as data. Core, CLI and tests ask for a capability; nobody asks for a name.
#pragma once

#include <holdfast/types.hpp>

#include <string>

namespace holdfast {

enum class wakeup_kind { push, poll };             // does the store tell waiters, or do we ask?
enum class expiry_clock { local_steady, server };  // whose clock ends a dead holder's grant?
enum class token_origin { counter, server_time, store_revision };
enum class fencing_strength { strict, best_effort, none };

struct capabilities {
  std::string engine;  // for people to read, never to branch on

  bool fifo = false;  // first come, first served; dead waiters are skipped
  bool priorities = false;
  bool shared = false;         // shared_mutex
  bool upgrade = false;        // upgradeable reads
  bool permits = false;        // counting_semaphore
  bool counters = false;       // latch, barrier
  bool counters_apart = true;  // a counter may have the name of a lock
  bool observe = false;        // election::observe and latch waits are pushed, not polled
  bool atomic_multi = false;   // lock_all in one round trip; else in sorted order
  bool listing = false;        // list, inspect, revoke
  bool cross_process = false;
  bool immediate = false;         // verbs other than await and watch answer without I/O
  bool survives_restart = false;  // do grants outlive a restart of the store itself?

  wakeup_kind wakeup = wakeup_kind::poll;
  expiry_clock clock = expiry_clock::server;
  token_origin token = token_origin::counter;
  fencing_strength fencing = fencing_strength::none;

  nanoseconds min_ttl{};
  nanoseconds max_ttl{};
  // A holder's process dies: others have the lock within this. 0 means "within the ttl".
  nanoseconds dead_holder_bound{};
  // Added to the ttl in the worst case when the holder is paused or cut off rather than dead.
  nanoseconds expiry_slack{};
  // A lease is believed for at most this long after the store last showed a sign of life, however long its ttl; it is
  // renewed that much more often. 0: for its ttl.
  nanoseconds longest_validity{};
  // What decides longest_validity, for the sentence of a loss: "grace=3s in the store's address". Empty: the ttl.
  std::string validity_setting;
  // Taken off every validity for clock-rate drift between us and whoever decides expiry, in parts per
  // million of the ttl, plus a constant.
  unsigned drift_ppm = 0;
  nanoseconds margin{};

  // Sentences for `holdfast explain`: what is guaranteed under which assumption, and the limits.
  std::string exclusion;
  std::string token_scope;
  std::string limits;
};

}  // namespace holdfast
