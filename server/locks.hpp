// Acquire, and what is done with a lease: the routes below /v1/locks, /v1/semaphores and /v1/leases that programs use.
#pragma once

#include "asking.hpp"
#include "service.hpp"

#include <functional>
#include <string>

namespace holdfast::server {

void add_lock_routes(service& s);
void add_lease_routes(service& s);
void add_hold_routes(service& s);
void add_plain_routes(service& s);
void add_coordination_routes(service& s);
void add_operator_routes(service& s);
void add_page_routes(service& s);

// How the leases that an acquire got are shown to who asked for them.
using shown_as = std::function<response(service&, const std::vector<lease_ptr>&,
                                        std::chrono::steady_clock::time_point asked,
                                        std::chrono::nanoseconds waited)>;
// Answers the visit, now or later. Throws refused.
void acquire(service& s, visit from, ask wanted, shown_as show);

// With two attempts where the first tells at once whether it must wait. `queued` is called before the second.
task<result<std::vector<lease>>> take_or_queue(service& s, const ask& wanted,
                                               const std::function<void()>& queued,
                                               std::stop_token stop);
// A busy answer names the holders, if the store has time to say so.
task<problem> explained(service& s, const key& who, const error& why, std::string name);
void count_failure(service& s, const ask& wanted, const error& why);
lease_terms terms_of(const ask& wanted);
event queued_event(const service& s, const ask& wanted);
// Of a path with {lease}. Throws refused: not known, or lost.
lease_ptr lease_or_refuse(service& s, const visit& from, const std::string& id);
// Throws for a lease that is neither held nor remembered, and for one with too much to be done already.
void check_release(service& s, const visit& from, const std::string& id);
// Gives it back, or says what has become of it since: the client may have asked before.
task<result<void>> give_up(service& s, visit from, std::string id);
problem not_given_back(const service& s, const error& why);

}  // namespace holdfast::server
