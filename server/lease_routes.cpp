// What a client does with a lease that it has.
#include "json_text.hpp"
#include "locks.hpp"

#include <holdfast/shared_mutex.hpp>
#include <holdfast/url.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace holdfast::server {

namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

problem no_such_lease() {
  return {.status = 404,
          .code = word_of(errc::not_held),
          .detail = "there is no such lease (any more), or it is another key's"};
}

problem lost_lease(const std::string& why) {
  return {.status = 410, .code = word_of(errc::lost), .detail = "the lease was lost: " + why};
}

// What was found out before anything was done. A lease that is left to the next service is over only here.
problem ended_meanwhile(const service& s) {
  return s.is_stopping ? stopping() : lost_lease("it ended meanwhile");
}

// The same when the store has carried out what was asked.
problem ended_since(const service& s) {
  auto out = ended_meanwhile(s);
  if (s.is_stopping) out.done = std::nullopt;
  return out;
}

std::int64_t whole_ms(std::chrono::nanoseconds duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

std::string renewed_json(const service& s, const held_lease& which, steady_time asked) {
  return json_object{}
      .add("valid_ms", whole_ms(s.leases.valid(which, asked)))
      .add("ttl_ms", whole_ms(which.terms.ttl))
      .text();
}

// The store, asked about this very lease, has let go.
void note_loss(service& s, const lease_ptr& which, const error& why) {
  if (why.code() == errc::lost) s.leases.lost(which, why.message());
}

problem upgrade_waits() {
  return {
      .status = 409, .code = "conflict", .detail = "an upgrade of this lease waits; it keeps it"};
}

problem in_use() {
  auto out =
      problem_of({errc::unavailable, "something else is being done with this lease; ask again"});
  out.done = false;
  return out;
}

// For what takes a turn: a store that stands still must not let the requests of one client pile up.
lease_ptr with_room_in_line(lease_ptr which) {
  if (which->next.size() >= lease_turn::most_in_line)
    throw refused(too_many(fmt::format(
        "{} requests about this lease wait for the store; ask again later", which->next.size())));
  return which;
}

// The library proves the lease to the store all the while, and an upgrade may wait for an hour: so no turn here. But
// the upgrade itself may stand in line behind a downgrade.
void renew_during_upgrade(const service& s, const visit& from, held_lease& which) {
  if (which.is_elsewhere) throw refused(in_use());
  lease_table::renewed(which, from.came);
  from.answer(renewed_json(s, which, from.came));
}

task<> renew(service& s, visit from, lease_ptr which, std::optional<std::chrono::nanoseconds> ttl) {
  lease_turn turn{which};
  co_await turn;
  if (which->is_over) co_return from.refuse(ended_meanwhile(s));
  auto proof = co_await which->grant.async_renew();
  if (!proof) {
    note_loss(s, which, proof.error());
    co_return from.refuse(problem_of(proof.error()));
  }
  if (which->is_over) co_return from.refuse(ended_since(s));
  if (ttl) which->terms.ttl = *ttl;
  lease_table::renewed(*which, from.came);
  s.counts.add_renewal(which->name);
  from.answer(renewed_json(s, *which, from.came));
}

void renew_route(service& s, visit from) {
  fields in{from.asked().body};
  const auto ttl = in.duration("ttl", 0ns, std::chrono::nanoseconds::max());
  in.nothing_else();
  const auto which = lease_or_refuse(s, from, from.parameter);
  // The store keeps the grant for the ttl that it was asked for with.
  if (ttl && (*ttl > which->terms.longest_ttl || *ttl < s.store.capabilities().min_ttl))
    throw refused(bad_request(
        fmt::format("\"ttl\" must be from {} to that with which the lease was acquired, {}",
                    format_duration(s.store.capabilities().min_ttl),
                    format_duration(which->terms.longest_ttl))));
  if (which->stop_upgrade && ttl) throw refused(upgrade_waits());
  if (which->stop_upgrade) return renew_during_upgrade(s, from, *which);
  spawn(renew(s, std::move(from), with_room_in_line(which), ttl));
}

task<> release(service& s, visit from) {
  auto done = co_await give_up(s, from, from.parameter);
  if (done) co_return from.answer(response{204, "", {}, {}});
  from.refuse(not_given_back(s, done.error()));
}

void release_route(service& s, visit from) {
  check_release(s, from, from.parameter);
  spawn(release(s, std::move(from)));
}

void show_route(service& s, const visit& from) {
  const auto which = lease_or_refuse(s, from, from.parameter);
  if (which->is_elsewhere) throw refused(in_use());
  const auto token = which->grant.token().value;
  from.answer(json_object{}
                  .add("name", which->name)
                  .add("token", token)
                  .add("token_text", std::to_string(token))
                  .add("mode", to_string(which->grant.mode()))
                  .add("ttl_ms", whole_ms(which->terms.ttl))
                  .add("valid_ms", whole_ms(s.leases.valid(*which, from.came)))
                  .add("label", which->terms.label)
                  .text());
}

task<> downgrade(service& s, visit from, lease_ptr which, lock_mode to) {
  lease_turn turn{which};
  co_await turn;
  if (which->is_over) co_return from.refuse(ended_meanwhile(s));
  result<void> done;
  store_work asking{s, *from.who, [&s, &done, &which, to] {
                      try {  // see is_elsewhere
                        shared_mutex lock{s.store, which->name};
                        done = lock.downgrade(which->grant, to);
                      } catch (const lock_error& wrong) {  // a store without readers
                        done = error{wrong.reason(), wrong.what()};
                      }
                    }};
  which->is_elsewhere = true;
  const bool begun = co_await asking;
  which->is_elsewhere = false;
  if (const auto loss = std::exchange(which->loss_to_tell, std::nullopt))
    s.leases.lost(which, *loss);
  if (!begun) co_return from.refuse(pool_is_full());
  if (!done) {
    note_loss(s, which, done.error());
    co_return from.refuse(problem_of(done.error()));
  }
  if (which->is_over) co_return from.refuse(ended_since(s));
  from.answer(json_of(s, *which, from.came, 0ns));
}

void downgrade_route(service& s, visit from) {
  fields in{from.asked().body};
  const auto mode = in.text("mode", 20).value_or("shared");
  in.nothing_else();
  if (mode != "shared" && mode != "upgradeable")
    throw refused(bad_request("\"mode\" is shared or upgradeable"));
  auto which = lease_or_refuse(s, from, from.parameter);
  if (which->stop_upgrade) throw refused(upgrade_waits());
  spawn(downgrade(s, std::move(from), with_room_in_line(std::move(which)),
                  mode == "shared" ? lock_mode::shared : lock_mode::upgradeable));
}

task<> upgrade(service& s, call_ptr call, lease_ptr which, std::chrono::nanoseconds wait) {
  which->stop_upgrade = [call] { call->cancel(lost_lease("it ended meanwhile")); };
  const std::unique_ptr<held_lease, void (*)(held_lease*)> waits{
      which.get(), [](held_lease* of) { of->stop_upgrade = nullptr; }};
  lease_turn turn{which};
  co_await turn;
  if (which->is_over) co_return call->refuse(ended_meanwhile(s));
  if (which->grant.mode() == lock_mode::exclusive && !which->earlier_sequences.empty()) {
    const auto& again = call->first();  // whose first answer it has not heard
    co_return again.answer(json_of(s, *which, again.came, 0ns));
  }
  s.room.enter(call);
  acquire_options how;
  how.wait = wait;
  how.stop = call->stop();
  result<void> done;
  try {
    shared_mutex lock{s.store, which->name};
    done = co_await lock.async_upgrade(which->grant, how);
  } catch (const lock_error& wrong) {
    done = error{wrong.reason(), wrong.what()};
  }
  s.room.leave(call);
  if (!which->is_over) lease_table::renewed(*which, steady::now());
  if (!done) {
    note_loss(s, which, done.error());
    co_return call->refuse(call->cancelled().value_or(problem_of(done.error())));
  }
  if (!s.leases.changed(which)) co_return call->refuse(ended_since(s));
  const auto& from = call->first();
  from.answer(json_of(s, *which, from.came, steady::now() - from.came));
}

void upgrade_route(service& s, visit from) {
  s.refuse_when_stopping();
  fields in{from.asked().body};
  const auto wait = in.duration("wait", 0ns, 1h).value_or(0ns);
  in.nothing_else();
  auto which = lease_or_refuse(s, from, from.parameter);
  if (which->stop_upgrade) throw refused(upgrade_waits());
  which = with_room_in_line(std::move(which));
  auto place = wait > 0ns ? s.bounds.waiter(*from.who) : limits::place{};
  const auto call = std::make_shared<waiting_call>(std::move(from));
  call->name = which->name;
  call->waiter = std::move(place);
  spawn(upgrade(s, call, std::move(which), wait));
}

}  // namespace

lease_ptr lease_or_refuse(service& s, const visit& from, const std::string& id) {
  if (auto found = s.leases.find(id, *from.who)) return found;
  if (const auto* ended = s.leases.find_ended(id, *from.who); ended && !ended->why.empty())
    throw refused(lost_lease(ended->why));
  s.refuse_when_stopping();  // the next one knows it
  throw refused(no_such_lease());
}

void check_release(service& s, const visit& from, const std::string& id) {
  if (s.leases.find_ended(id, *from.who) == nullptr)
    with_room_in_line(lease_or_refuse(s, from, id));
}

// The first answer may not have arrived, or may not have been one.
task<result<void>> give_up(service& s, visit from, std::string id) {
  if (const auto which = s.leases.find(id, *from.who)) {
    auto done = co_await s.leases.end(which, {});
    co_return done;
  }
  const auto* ended = s.leases.find_ended(id, *from.who);
  if (ended == nullptr || (ended->why.empty() && !ended->is_unsure)) co_return result<void>{};
  if (!ended->why.empty()) co_return error{errc::lost, "the lease was lost: " + ended->why};
  const auto token = ended->token;
  result<lock_info> found = lock_info{};
  store_work asking{s, *from.who,
                    [&s, &found, name = ended->name] { found = s.store.inspect(name); }};
  const bool begun = co_await asking;
  const bool is_gone =
      begun && found && std::ranges::none_of(found->holders, [&](const holder_info& each) {
        return each.token.value == token;
      });
  if (!is_gone)
    co_return error{errc::outcome_unknown,
                    "the store has not confirmed yet that it was given back"};
  if (auto* known = s.leases.find_ended(id, *from.who)) known->is_unsure = false;
  co_return result<void>{};
}

problem not_given_back(const service& s, const error& why) {
  auto out = s.is_stopping && why.code() != errc::lost ? stopping() : problem_of(why);
  if (out.status == 503) out.done = std::nullopt;  // perhaps it is, in the background
  return out;
}

void add_lease_routes(service& s) {
  using act_type = void (*)(service&, visit);
  const auto add = [&s](std::string_view method, std::string_view pattern, act_type act) {
    s.routes.add(
        {method, pattern, scope::acquire, [&s, act](visit from) { act(s, std::move(from)); }});
  };
  add("POST", "/v1/leases/{lease}:renew", &renew_route);
  add("POST", "/v1/leases/{lease}:downgrade", &downgrade_route);
  add("POST", "/v1/leases/{lease}:upgrade", &upgrade_route);
  add("DELETE", "/v1/leases/{lease}", &release_route);
  s.routes.add({"GET", "/v1/leases/{lease}", scope::acquire,
                [&s](const visit& from) { show_route(s, from); }});
}

}  // namespace holdfast::server
