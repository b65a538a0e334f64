// lock_all: several names at once, all or nothing, without deadlock with other callers that do the same
// in another order.
//
//   const std::vector<std::string> both{"account/7", "account/3"};
//   auto held = holdfast::lock_all(client, both, {.wait = 3s}).value();
//   transfer(held[0].token(), held[1].token());              // of account/3 and account/7: sorted
//
// One atomic attempt where the store can (capabilities().atomic_multi); if that finds one of them taken, and on other
// stores, one after the other in sorted order, each name once. So while it waits for a later name it holds the earlier
// ones. Against code that takes the same names one by one in another order it is no protection; nor against a thread
// that holds one of them already: it waits for itself. For std faces use std::scoped_lock over several mutexes.
//
// Several stores:
//
//   const std::vector<holdfast::lock_place> both{{redis, "account/7"}, {etcd, "ledger"}};
//   auto held = holdfast::lock_all(both, {.wait = 3s}).value();       // held[0] is account/7
//
// In the order of the names, then of the stores' addresses, one after the other. Programs that lock one name in two
// stores must therefore write the addresses of these alike. There is no transaction over stores. What holds: on
// failure, whichever store it was, all that had been taken is released; where that store does not answer, its release
// is sent again in the background, and at the latest the lease ends with its ttl. On success all were valid at one
// moment.
//
// Each lease is renewed and may be lost by itself: also when one of several stores fails later. The others are then
// still held. Watch lost() of each, and check the token of each where its lock protects something.
#pragma once

#include <holdfast/client.hpp>
#include <holdfast/lease.hpp>
#include <holdfast/options.hpp>
#include <holdfast/task.hpp>

#include <span>
#include <string>
#include <vector>

namespace holdfast {

// One exclusive lease per name, in sorted order of the distinct names. No names: ok, and no leases. May be called from
// any thread; blocks for options.wait at most for the whole (plus 500 ms when the store does not answer); options.stop
// cancels. ttl, label and the other options count for each.
// Errors: misconfigured for a bad name or option; lost, at once, when an earlier one is lost while the later ones are
// waited for; else as mutex::acquire. On failure nothing stays held: what had been taken is released, and that is
// waited for within the same time; after that the releases have been sent.
result<std::vector<lease>> lock_all(const client& store, std::span<const std::string> names,
                                    const acquire_options& options = {});

// The same for coroutines: a lazy task (task.hpp) that blocks no thread. Names and options are copied before it
// returns, and checked; the wait counts from the call, not from the co_await. Its coroutine goes on where that of an
// async<T> does. options.stop does not interrupt the atomic attempt, which takes one round trip. Destroyed while
// suspended, it gives back what it has. On failure the releases have been sent and are not waited for.
task<result<std::vector<lease>>> async_lock_all(const client& store,
                                                std::span<const std::string> names,
                                                const acquire_options& options);
HOLDFAST_NAME_THE_OPTIONS_FIRST(task<result<std::vector<lease>>> async_lock_all(
    const client& store, std::span<const std::string> names, acquire_options&& options));

// One lock of one store.
struct lock_place {
  client store;
  std::string name;
};

// One exclusive lease for each place, in the order given: all of them, or none. For the rest as above; the options must
// suit every store. misconfigured also when a place is named twice: it would wait for itself, as it does for two
// clients of one store with the same name.
result<std::vector<lease>> lock_all(std::span<const lock_place> places,
                                    const acquire_options& options = {});
task<result<std::vector<lease>>> async_lock_all(std::span<const lock_place> places,
                                                const acquire_options& options);
HOLDFAST_NAME_THE_OPTIONS_FIRST(task<result<std::vector<lease>>> async_lock_all(
    std::span<const lock_place> places, acquire_options&& options));

}  // namespace holdfast
