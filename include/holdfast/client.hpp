// A client is one connection of this process to one store: its session, its renewals, its waiters.
//
//   auto client = holdfast::client::open("file:");          // the embedded store of this user
//   holdfast::mutex stock{client, "stock/sku-42"};
//
// Open one per process and store, and share it: it has threads of its own, and threads of one client hand a lock to
// each other faster than the store could. Copies share it; locks and leases keep it alive; the last of these handles
// ends the session when it goes, which releases whatever was still held.
//
// Threads. All members, and all handles made from a client, may be used from any thread at once. The client's own
// threads renew leases, announce losses, call the observer and resume coroutines. Hooks, callbacks and coroutines have
// threads apart from the one that renews, so user code cannot cost a lease (but see client_options::resume).
//
// The end. The thread that drops the last handle waits until the client's threads have ended and its hooks have run,
// except inside such a hook or in a coroutine that the client resumed: there the client is taken apart on another
// thread. That takes milliseconds, or some seconds when the store does not answer while leases are still to be given
// back, plus the time of the hooks that are still to run.
//
// Crash. Nothing needs to run: the store notices (capabilities().dead_holder_bound, or the ttl) and lets others in.
//
// Fork. Not usable in a forked child: there every call that would ask the store is refused as misconfigured, valid() is
// false, and the child owns none of the parent's locks; destroying its copies leaves the parent's alone. Make no new
// handles from it there, either; open a new client. (fork and exec is fine.)
#pragma once

#include <holdfast/capabilities.hpp>
#include <holdfast/engine.hpp>
#include <holdfast/lease.hpp>
#include <holdfast/observer.hpp>
#include <holdfast/result.hpp>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast {

namespace core {
class client_core;
}

// Options of a client, constant after it was opened. An aggregate: write only what you change. Wrong values are refused
// by open() as misconfigured.
struct client_options {
  // ---- behaviour
  // Default liveness bound of its leases (acquire_options::ttl). From capabilities().min_ttl to max_ttl.
  nanoseconds ttl = std::chrono::seconds{10};
  // Bound on one round trip to the store, and the patience of an acquire with a store that is unavailable. Above 0, at
  // most 1 h. Does not bound a wait in the queue (acquire_options::wait does), nor open().
  nanoseconds call_timeout = std::chrono::seconds{5};
  // Threads and coroutines of this client hand an exclusive lock to each other without asking the store, and
  // with the same token. While other clients wait for it, at most this often and for this long after the store
  // granted it; while none does, without bound. handoff_limit 0 turns it off; a negative time is misconfigured.
  // See also acquire_options::own_token.
  unsigned handoff_limit = 64;
  nanoseconds handoff_time = std::chrono::milliseconds{20};
  // This client is the next session of one that is dead, or has left its leases behind: the client half of their
  // owner_id (lease::owner().client). It can adopt() them. REQUIRES: that client does not live any more, and has no
  // other successor. Only where capabilities().outlives_client; else open() refuses it as unsupported.
  std::optional<std::array<std::uint64_t, 2>> successor_of = std::nullopt;
  // ---- for humans and tools
  // Hears what happens (observer.hpp). Kept until the client has ended.
  std::shared_ptr<holdfast::observer> observer{};
  // Where coroutines go on: called with the continuation, on any thread of the client's or of the engine's; it must run
  // that exactly once, on whatever thread, and should return without blocking or throwing. A continuation that is
  // dropped leaves its coroutine suspended for ever. To run it in place is allowed, but then the coroutine holds up
  // that thread, and with it perhaps renewals. Unset: on one thread of the client's, which serves all its coroutines.
  std::function<void(std::function<void()>)> resume{};
  // Tests only. Must outlive the client.
  const holdfast::clock* clock = nullptr;
};

// One latch as operators see it, at one moment.
struct latch_info {
  std::string name;
  std::int64_t left = 0;  // counts until it opens; 0: it is open
  // When the store forgets it if it stays unchanged; no_expiry: never. unknown_time: the store did not tell.
  nanoseconds forgotten_in = unknown_time;
};

// A handle of the connection; copying it costs a reference count. Never empty, except moved-from: then it may only be
// assigned to or destroyed.
class client {
 public:
  // Opens the store, which proves that it answers, and starts the client's threads. Blocks while the engine connects:
  // hardly for the embedded stores, up to 5 s for the servers of today. Not cancellable.
  // Throws lock_error: misconfigured (bad URL or option), unsupported (no such engine in this build), denied,
  // unavailable (also when no thread could be started), protocol (the store's data is damaged or of another version).
  static client open(std::string_view url, client_options options = {});
  // The same, with the failure as a value.
  static result<client> try_open(std::string_view url, client_options options = {});
  // For tests and for engines of your own: the factory is called once, before this returns, with what every engine is
  // opened with. The URL must parse; its scheme is the factory's business.
  using engine_factory = std::function<result<std::unique_ptr<engine>>(const engine_config&)>;
  static result<client> try_open_with(const engine_factory& make, std::string_view url,
                                      client_options options = {});

  // What this store can do (capabilities.hpp). Lives as long as the client.
  const holdfast::capabilities& capabilities() const noexcept;
  // The address as it was given, with the password redacted.
  std::string url() const;
  // A snapshot of this client's numbers (observer.hpp). Does not ask the store, but walks over all its leases: not for
  // a hot loop.
  holdfast::metrics metrics() const;

  // ---- operators' view. One request each: they block for call_timeout at most, are not cancellable, and are not
  // repeated when the store is away. misconfigured in a forked child; else what the store says: unavailable, denied,
  // protocol, outcome_unknown.
  //
  // The names under `prefix` (all, if empty) that have a holder or a waiter, sorted, at most `limit`, each with both.
  // Names that change meanwhile may be missing or be shown as they were. unsupported where capabilities().listing is
  // false.
  result<std::vector<lock_info>> list(std::string_view prefix = {},
                                      std::size_t limit = 10'000) const;
  // The latches under `prefix` (all, if empty), sorted, at most `limit`, open ones too; no barriers. The store keeps
  // both as counters, and a barrier's number is never below 2^36: a latch that has so many counts left is taken for a
  // barrier and not listed. May take more than one request, which share one call_timeout. unsupported where
  // capabilities().counters or capabilities().listing is false.
  result<std::vector<latch_info>> latches(std::string_view prefix = {},
                                          std::size_t limit = 10'000) const;
  // One name. One that is not in use is no error: it has neither holders nor waiters. misconfigured for a bad name.
  result<lock_info> inspect(std::string_view name) const;
  // Force-release: ends every grant of the name, raises the token, and lets the waiters in. Holders learn of it as
  // loss, at once where the store can tell them, else with their next renewal: until then they may still act, and only
  // a fence keeps them out. Returns how many grants there were; 0 is no error. After outcome_unknown look again.
  // unsupported for permits of which the store does not know the holders (lock_info::free_permits).
  result<std::size_t> revoke(std::string_view name) const;

  // Looks at the real server's configuration: does it keep what capabilities() promises? Changes nothing. Empty where
  // there is no server. Blocks for about call_timeout at most; errors as above, except unsupported.
  result<std::vector<finding>> diagnose() const;

  // A lease on what `owner` holds: an owner of the client that this one succeeds (client_options::successor_of), whose
  // acquire had outlives_client. Same name, mode, token and ttl; from now on this client renews it. One request: blocks
  // for call_timeout at most; not cancellable. An observer hears acquired().
  //   not_held       there is no such grant (any more): its ttl was over, or it was given back or revoked
  //   misconfigured  a bad name, not an owner of the predecessor's, one that was adopted before, or a forked child
  //   unavailable, outcome_unknown ...   nothing is known; try again while its ttl lasts
  result<lease> adopt(std::string_view name, const owner_id& owner) const;

  // For our own handles; no part of the interface.
  const std::shared_ptr<core::client_core>& core() const noexcept { return core_; }

 private:
  explicit client(std::shared_ptr<core::client_core> core) : core_(std::move(core)) {}
  std::shared_ptr<core::client_core> core_;
};

// The URL schemes this build can open, sorted; without their colon.
std::vector<std::string> known_schemes();

// What must be set up in stores of this scheme before their first use, as text for the store's own command line
// ("mysql": tables). Touches no store. Empty where nothing must be; unsupported when this build has no such scheme.
result<std::string> schema_of(std::string_view scheme);

// The embedded default: "file:" with the path of this user's store spelt out, or "memory:" in a build without file:.
// Does not open or create it.
std::string default_store();

}  // namespace holdfast
