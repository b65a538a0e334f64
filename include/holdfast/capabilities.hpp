// What a store can promise, as data. Core, the command line and the tests ask for a capability, never for the name of
// an engine; programs should do the same.
//
//   const auto& can = client.capabilities();
//   if (can.fencing != holdfast::fencing_strength::strict) warn(can.token_scope);
//   if (!can.shared) return use_a_plain_mutex();            // a shared_mutex would throw unsupported
//
// Found out when the client is opened, and constant from then on. For a server they say what is true of a server that
// is set up as the engine's guide asks; client::diagnose() looks whether this one is. `exclusion` and `limits` say
// under which assumptions the rest holds: read those first.
#pragma once

#include <holdfast/types.hpp>

#include <string>

namespace holdfast {

// push: the store tells a waiter that it may have its turn. poll: the client asks again and again, so a waiter is late
// by up to one interval.
enum class wakeup_kind { push, poll };
// Whose clock ends the grant of a dead or silent holder: this machine's steady clock, or the server's.
enum class expiry_clock { local_steady, server };
// Where fencing tokens come from.
enum class token_origin { counter, server_time, store_revision };
// strict: tokens of a name rise for the life of the store. best_effort: as long as the store keeps its data and its
// clock (capabilities::token_scope says which). none: do not fence with them.
enum class fencing_strength { strict, best_effort, none };

struct capabilities {
  // For people to read, never to branch on.
  std::string engine;

  // ---- what there is. What is not there is refused as unsupported, at construction or by the call.
  // First come, first served between clients; dead waiters are skipped. Without it waiters are served in any order, and
  // queue_order says nothing.
  bool fifo = false;
  bool priorities = false;     // acquire_options::priority other than 0
  bool shared = false;         // shared_mutex
  bool upgrade = false;        // upgradeable reads
  bool permits = false;        // counting_semaphore
  bool counters = false;       // latch, barrier
  bool counters_apart = true;  // a latch or barrier may have the name of a lock
  // election::observe and the waits of latch and barrier are pushed. Without it they are polled, and work all the same.
  bool observe = false;
  // lock_all tries all names in one atomic step first; else it takes them one after the other in sorted order.
  bool atomic_multi = false;
  bool listing = false;        // client::list; one name can be inspected and revoked everywhere
  bool cross_process = false;  // else only clients of this process meet in it
  bool immediate = false;      // verbs other than await and watch answer without I/O
  // Grants outlive a restart of the store itself (of the server, or for a store of this machine: a reboot).
  bool survives_restart = false;
  bool outlives_client = false;  // acquire_options::outlives_client, client::adopt

  wakeup_kind wakeup = wakeup_kind::poll;
  expiry_clock clock = expiry_clock::server;
  token_origin token = token_origin::counter;
  fencing_strength fencing = fencing_strength::none;

  // ---- times. Declared by the engine, for a machine that lets the waiter run; no promise of the operating system.
  // The ttl of a client or an acquire must lie in this range, ends included; else misconfigured.
  nanoseconds min_ttl{};
  nanoseconds max_ttl{};
  // A holder's process dies: others have the lock within this. 0 means "within the ttl".
  nanoseconds dead_holder_bound{};
  // Added to the ttl in the worst case when the holder is paused or cut off rather than dead.
  nanoseconds expiry_slack{};
  // A lease is believed for at most this long after the client's session with the store was last known to live, however
  // long its ttl; the client asks several times as often. 0: for its ttl.
  nanoseconds longest_validity{};
  // The store ends a session that it does not hear from, also of a client that holds nothing: so the client is heard
  // for as long as it lives. Else only while it holds something.
  bool session_needs_heartbeats = false;
  // What decides longest_validity, for the sentence of a loss: "grace=3s in the store's address". Empty: the ttl.
  std::string validity_setting;
  // Taken off every validity, so that the holder stops believing before the store lets others in: for the drift between
  // our clock and the one that decides expiry, in parts per million of the ttl, plus a constant.
  unsigned drift_ppm = 0;
  nanoseconds margin{};

  // ---- sentences for people, printed by `holdfast explain`. Their wording may change with any version.
  // Under which assumption there is one holder at a time; over what scope tokens rise; what else to know.
  std::string exclusion;
  std::string token_scope;
  std::string limits;
};

}  // namespace holdfast
