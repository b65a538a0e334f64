#include "service.hpp"

#include "audit.hpp"

#include <unistd.h>

#include <array>

namespace holdfast::server {

namespace {

std::string name_of_this_host() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

}  // namespace

service::service(server::loop& on, const listener& in, const options& how, holdfast::client of,
                 const key_ring& known, state_folder& kept)
    : loop(on),
      door(in),
      configured(how),
      store(std::move(of)),
      keys(known),
      state(kept),
      host(name_of_this_host()),
      pid(getpid()),
      bounds({.leases = how.leases_per_key,
              .waiters = how.waiters_per_key,
              .watchers = how.watchers,
              .sessions = how.sessions / 2,
              .processes = how.processes,
              .jobs = known.empty() ? loop::most_work : loop::most_work / 4}),
      events(on, store, host),
      leases(on, store, kept, events, counts),
      routes(known, {how.hosts}) {
  events.own_client = [this] { return leases.own(); };
}

problem pool_is_full() { return too_many("too many requests wait for the store; try later"); }

void note_break(service& s, const visit& from, const std::string& lock,
                const result<std::size_t>& ended) {
  audit_break({lock, from.who->name, from.asked().peer}, ended);
  if (!ended) return;
  s.counts.add(lock, outcome::broken);
  s.events.publish({.what = event_kind::broken,
                    .name = lock,
                    .label = from.who->name,
                    .host = s.host,
                    .pid = s.pid,
                    .why = "an operator took it away"});
}

}  // namespace holdfast::server
