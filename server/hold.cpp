// A lock that is held exactly as long as a connection lives: the sentinel for clients that crash.
#include "json_text.hpp"
#include "locks.hpp"

#include <unistd.h>

namespace holdfast::server {

namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

// What the answer is written to: nothing yet, then a stream.
struct answer_stream {
  std::shared_ptr<event_stream> to;
  bool open(const visit& from) {
    if (to == nullptr) to = from.to->stream();
    return to != nullptr;
  }
};

task<> end_with_connection(service& s, lease_ptr which) {
  auto ignored = co_await s.leases.end(std::move(which), "its connection has ended");
  (void)ignored;
}

// Kept by the stop callback below, which lives in itself until the connection has ended.
struct sentinel {
  std::optional<std::stop_callback<std::function<void()>>> on_gone;
};

// From here on the stream and the lease belong to each other.
void hold_while_connected(service& s, const visit& from, std::shared_ptr<event_stream> to,
                          const lease_ptr& held) {
  to->carries_lease();
  held->on_lost = [to](std::string_view why) {
    to->finish("lost", json_object{}.add("why", why).text());
  };
  // Counted from the request, in whose time the client cannot be wrong: it may have slept before it reads this.
  held->on_upkeep = [&s, to, asked = from.came, weak = std::weak_ptr{held}] {
    const auto alive = weak.lock();
    if (alive == nullptr || alive->is_elsewhere) return;
    const auto valid = s.leases.valid(*alive, asked);
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(valid).count();
    to->send("renewed", json_object{}.add("valid_ms", ms).text());
  };
  const auto guard = std::make_shared<sentinel>();
  guard->on_gone.emplace(from.to->gone(), [&s, guard, weak = std::weak_ptr{held}] {
    s.loop.post([&s, guard, weak] {
      guard->on_gone.reset();
      if (const auto alive = weak.lock()) spawn(end_with_connection(s, alive));
    });
  });
}

task<> carry_out_hold(service& s, call_ptr call, ask wanted) {
  s.room.enter(call);
  const auto& from = call->first();
  answer_stream out;
  const std::function<void()> queued = [&] {
    call->is_queued = true;
    s.events.publish(queued_event(s, wanted));
    if (out.to == nullptr && out.open(from)) out.to->send("waiting", "{}");
  };
  // A store that cannot tell at once lets the client wait without a word; so it gets one.
  if (wanted.wait > 0ns && !s.is_immediate() && out.open(from)) out.to->send("waiting", "{}");
  auto got = co_await take_or_queue(s, wanted, queued, call->stop());
  if (!got) {
    count_failure(s, wanted, got.error());
    auto why = co_await explained(s, call->who(), got.error(), wanted.name());
    s.room.leave(call);
    if (call->cancelled()) why = *call->cancelled();
    if (out.to == nullptr) co_return call->refuse(why);
    out.to->finish("failed", json_of(why));
    co_return;
  }
  s.room.leave(call);
  if (call->cancelled() || call->is_abandoned() || s.is_stopping) {
    // The lease goes with this frame, which gives it back.
    if (out.to != nullptr)
      out.to->finish("failed", json_of(stopping()));
    else
      call->refuse(stopping());
    co_return;
  }
  const auto waited = steady::now() - call->came();
  s.counts.add_wait(wanted.name(), waited);
  s.counts.add(wanted.name(), outcome::granted);
  if (!out.open(from)) co_return;
  const auto held = s.leases.add(std::move(got->front()), call->who(), terms_of(wanted),
                                 std::move(call->lease), steady::now());
  if (held == nullptr) {
    const auto why = json_object{}.add("why", "it was lost as soon as it was granted").text();
    co_return out.to->finish("lost", why);
  }
  held->keeper = out.to;
  out.to->send("granted", json_of(s, *held, from.came, waited));
  hold_while_connected(s, from, out.to, held);
}

void hold(service& s, visit from) {
  s.refuse_when_stopping();
  fields in{from.asked().body};
  auto wanted = read_ask(s, in, asked_at::hold, from.parameter);
  auto place = s.bounds.lease(*from.who);
  auto waiter = wanted.wait > 0ns ? s.bounds.waiter(*from.who) : limits::place{};
  const auto call = std::make_shared<waiting_call>(std::move(from));
  call->name = wanted.name();
  call->lease = std::move(place);
  call->waiter = std::move(waiter);
  call->shown.mode = wanted.mode();
  call->shown.weight = wanted.permits;
  call->shown.label = wanted.label;
  call->shown.priority = wanted.priority;
  call->shown.host = s.host;
  call->shown.pid = s.pid;
  spawn(carry_out_hold(s, call, std::move(wanted)));
}

}  // namespace

void add_hold_routes(service& s) {
  s.routes.add({"POST", "/v1/locks/{name}:hold", scope::acquire,
                [&s](visit from) { hold(s, std::move(from)); }});
}

}  // namespace holdfast::server
