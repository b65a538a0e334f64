// The service as its handlers see it. Everything here belongs to the loop's thread.
#pragma once

#include "events.hpp"
#include "http.hpp"
#include "keys.hpp"
#include "leases.hpp"
#include "limits.hpp"
#include "metrics.hpp"
#include "options.hpp"
#include "router.hpp"
#include "state.hpp"
#include "waiting.hpp"

#include <holdfast/client.hpp>

#include <coroutine>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace holdfast::server {

class listener;

struct service {
  service(server::loop& on, const listener& in, const options& how, holdfast::client of,
          const key_ring& known, state_folder& kept);
  service(const service&) = delete;
  service& operator=(const service&) = delete;

  // Throws refused when the service stops.
  void refuse_when_stopping() const {
    if (is_stopping) throw refused(stopping());
  }
  bool is_immediate() const noexcept { return store.capabilities().immediate; }

  server::loop& loop;
  const listener& door;
  const options& configured;
  // Its own, of which it gives leases to its clients. Resumes coroutines on the loop.
  holdfast::client store;
  const key_ring& keys;
  state_folder& state;
  const std::string host;  // of this machine, as operators see it
  const std::int64_t pid;
  const std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
  limits bounds;
  numbers counts;
  event_hub events;
  lease_table leases;
  waiting_room room;
  router routes;
  std::size_t long_lists = 0;  // that are being made
  // Set by SIGTERM: no new grants.
  bool is_stopping = false;
  // Called once, when it is set.
  std::vector<std::function<void()>> when_stopping{};
  // Asked once, when the loop has ended: does a client count on anything here that ends with our session in the store?
  std::vector<std::function<bool()>> is_counted_on{};
};

// For coroutines: a call of the store that blocks, on a thread of the pool; where the store answers without I/O, in
// place, unless it may take long all the same. Gives false when too many wait already.
//
// A key has a quarter of the places, so that none takes all of them from the others.
//
//   store_work asking{s, *from.who, [&] { found = s.store.inspect(name); }};
//   const bool done = co_await asking;
class store_work {
 public:
  enum class length { one_call, long_list };
  store_work(service& of, const key& who, std::function<void()> blocking,
             length expected = length::one_call)
      : of_(of),
        who_(who),
        blocking_(std::move(blocking)),
        in_place_(of.is_immediate() && expected == length::one_call) {}
  bool await_ready() {
    if (in_place_) blocking_();
    return in_place_;
  }
  bool await_suspend(std::coroutine_handle<> who) {
    place_ = of_.bounds.job(who_);
    done_ = place_ && of_.loop.work(blocking_, [who] { who.resume(); });
    return done_;
  }
  bool await_resume() const noexcept { return done_; }

 private:
  service& of_;
  const key& who_;
  std::function<void()> blocking_;
  const bool in_place_;
  bool done_ = true;
  std::optional<limits::place> place_{};
};

problem pool_is_full();

// What everybody may know of a lock that was to be taken away, however it was asked for: an audit line; if it was taken
// away, an event and a count.
void note_break(service& s, const visit& from, const std::string& lock,
                const result<std::size_t>& ended);

}  // namespace holdfast::server
