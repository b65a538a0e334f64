#include "locks.hpp"

#include "json_text.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace holdfast::server {

namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

constexpr auto answers_within = 200ms;

response shown_alone(service& s, const std::vector<lease_ptr>& got, steady::time_point asked,
                     std::chrono::nanoseconds waited) {
  return {200, "application/json", json_of(s, *got.front(), asked, waited), {}};
}

response shown_as_list(service& s, const std::vector<lease_ptr>& got, steady::time_point asked,
                       std::chrono::nanoseconds waited) {
  json_array all;
  for (const auto& each : got) all.add_json(json_of(s, *each, asked, waited));
  return {200, "application/json", json_object{}.add_json("leases", all.text()).text(), {}};
}

// Which of the two the end of the process concerns is known when it comes.
struct watched_process {
  std::weak_ptr<waiting_call> waits;
  std::weak_ptr<held_lease> holds;
};

task<> end_with_process(service& s, lease_ptr which) {
  auto ignored = co_await s.leases.end(std::move(which), "its process has ended");
  (void)ignored;
}

std::shared_ptr<watched_process> watch_process(service& s, const visit& from, pid_t pid,
                                               std::unique_ptr<timer>& watch,
                                               limits::place& place) {
  place = s.bounds.process();
  if (!from.asked().from_this_machine)
    throw refused(bad_request("\"pid\" is for clients on the machine of the service"));
  const auto descriptor = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (descriptor < 0)
    throw refused(bad_request(fmt::format("there is no process {} that could be watched", pid)));
  const auto about = std::make_shared<watched_process>();
  watch = s.loop.when_readable(descriptor, [&s, about] {
    if (const auto held = about->holds.lock()) return spawn(end_with_process(s, held));
    if (const auto call = about->waits.lock())
      call->cancel({.status = 410, .code = "cancelled", .detail = "the process has ended"});
  });
  if (watch == nullptr) throw refused(too_many("no more processes can be watched"));
  return about;
}

task<> end_incomplete(service& s, lease_ptr which) {
  auto ignored =
      co_await s.leases.end(std::move(which), "another lock of its request was lost at once");
  (void)ignored;
}

task<> give_back(lease what) {
  auto ignored = co_await what.async_release();
  (void)ignored;
}

// Nobody is there to hear of it, or it must not be given any more.
bool is_in_vain(const service& s, const waiting_call& call) {
  return s.is_stopping || call.cancelled() || (call.is_abandoned() && call.request.empty());
}

std::vector<lease_ptr> keep(service& s, waiting_call& call, const ask& wanted,
                            std::vector<lease> got,
                            const std::shared_ptr<watched_process>& process) {
  std::vector<lease_ptr> out;
  for (auto& each : got) {
    auto place = std::move(call.lease);
    if (!call.more_leases.empty()) {
      call.lease = std::move(call.more_leases.back());
      call.more_leases.pop_back();
    }
    s.counts.add(each.name(), outcome::granted);
    if (auto held = s.leases.add(std::move(each), call.who(), terms_of(wanted), std::move(place),
                                 steady::now()))
      out.push_back(std::move(held));
  }
  if (out.size() < wanted.names.size()) {
    for (auto& each : out) spawn(end_incomplete(s, std::move(each)));
    return {};
  }
  if (process != nullptr) {
    process->holds = out.front();
    out.front()->process = std::move(call.process);
    out.front()->process_place = std::move(call.process_place);
  }
  if (!call.request.empty()) s.leases.note_request(call.request, call.question, out);
  return out;
}

task<> carry_out(service& s, call_ptr call, ask wanted, shown_as show,
                 std::shared_ptr<watched_process> process) {
  s.room.enter(call);
  const std::function<void()> queued = [&] {
    call->is_queued = true;
    s.events.publish(queued_event(s, wanted));
  };
  auto got = co_await take_or_queue(s, wanted, queued, call->stop());
  while (!got && call->is_wanted_again()) {
    call->ask_again();
    auto again = co_await take_or_queue(s, wanted, queued, call->stop());
    got = std::move(again);
  }
  const auto waited = steady::now() - call->came();
  if (!got) {
    count_failure(s, wanted, got.error());
    auto why = co_await explained(s, call->who(), got.error(), wanted.name());
    s.room.leave(call);
    call->refuse(call->cancelled().value_or(why));
    co_return;
  }
  s.room.leave(call);
  if (is_in_vain(s, *call)) {
    for (auto& each : *got) spawn(give_back(std::move(each)));
    call->refuse(call->cancelled().value_or(stopping()));
    co_return;
  }
  s.counts.add_wait(wanted.name(), waited);
  const auto held = keep(s, *call, wanted, std::move(*got), process);
  if (held.empty())
    co_return call->refuse(problem_of({errc::lost, "it was lost as soon as it was granted"}));
  call->for_each([&](const visit& each) { each.answer(show(s, held, each.came, waited)); });
}

// Of one that waits with another. What that one may have got already a refusal does not know.
limits::place place_beside(service& s, const visit& from) {
  try {
    return s.bounds.waiter(*from.who);
  } catch (const refused& no) {
    auto why = no.why();
    why.done = std::nullopt;
    throw refused(why);
  }
}

// True: answered, or waits with the one that is on its way.
bool join_earlier(service& s, const visit& from, const std::string& request,
                  const std::string& question, const shown_as& show) {
  const auto judge = [&](const std::string& earlier) {
    if (earlier != question)
      throw refused({.status = 409,
                     .code = "conflict",
                     .detail = "this request_id was used for another question"});
  };
  if (const auto call = s.room.find(request)) {
    judge(call->question);
    call->attach(from, place_beside(s, from));
    return true;
  }
  const auto known = s.leases.of_request(request, *from.who);
  if (!known) return false;
  judge(known->question);
  if (known->leases.empty())
    throw refused(
        {.status = 409,
         .code = "conflict",
         .detail = "what this request_id was answered with has ended; ask with another one"});
  for (const auto& each : known->leases)
    if (each->is_elsewhere)
      throw refused(
          problem_of({errc::unavailable, "something is being done with its lease; ask again"}));
  // As if it were heard of: it has the answer now, and counts from here.
  for (const auto& each : known->leases) lease_table::renewed(*each, from.came);
  from.answer(show(s, known->leases, from.came, 0ns));
  return true;
}

std::string question_of(const visit& from) {
  return fmt::format("{} {}", from.asked().target, from.asked().body);
}

void acquire_at(service& s, visit from, asked_at where, const shown_as& show) {
  fields in{from.asked().body};
  auto wanted = read_ask(s, in, where, from.parameter);
  for (const auto& name : wanted.names) from.check(scope::acquire, name);
  acquire(s, std::move(from), std::move(wanted), show);
}

}  // namespace

lease_terms terms_of(const ask& wanted) {
  return {.label = wanted.label,
          .permits = wanted.permits,
          .of = wanted.of,
          .ttl = wanted.ttl,
          .by = wanted.by};
}

event queued_event(const service& s, const ask& wanted) {
  return {.what = event_kind::queued,
          .name = wanted.name(),
          .label = wanted.label,
          .host = s.host,
          .pid = s.pid};
}

task<result<std::vector<lease>>> take_or_queue(service& s, const ask& wanted,
                                               const std::function<void()>& queued,
                                               std::stop_token stop) {
  const auto began = steady::now();
  if (wanted.wait > 0ns && s.is_immediate() && !wanted.several) {
    auto first = co_await take(s, wanted, 0ns, stop);
    if (first || first.error().code() != errc::busy) co_return first;
    queued();
  }
  // A store behind a network does not tell: who has no answer for a while waits.
  std::unique_ptr<timer> by_now;
  if (wanted.wait > 0ns && !s.is_immediate() && !wanted.several)
    by_now = s.loop.after(answers_within, queued);
  auto left = wanted.wait;
  if (left != forever)
    left = std::max<std::chrono::nanoseconds>(left - (steady::now() - began), 0ns);
  if (wanted.wait > 0ns && left == 0ns) left = 1ns;
  auto got = co_await take(s, wanted, left, stop);
  co_return got;
}

task<problem> explained(service& s, const key& who, const error& why, std::string name) {
  auto out = problem_of(why);
  if (why.code() != errc::busy) co_return out;
  // It was not asked for, and whoever asks for something needs the places.
  if (s.bounds.jobs() >= loop::most_work / 2) co_return out;
  result<lock_info> found = error{errc::unavailable, ""};
  store_work asking{s, who, [&s, &found, name] { found = s.store.inspect(name); }};
  const bool done = co_await asking;
  if (done && found) out.holders = holders_json(*found);
  co_return out;
}

void count_failure(service& s, const ask& wanted, const error& why) {
  const auto code = why.code();
  s.counts.add(wanted.name(), code == errc::busy        ? outcome::busy
                              : code == errc::timed_out ? outcome::timed_out
                              : code == errc::cancelled ? outcome::cancelled
                                                        : outcome::failed);
}

void acquire(service& s, visit from, ask wanted, shown_as show) {
  s.refuse_when_stopping();
  std::string request, question;
  if (!wanted.request_id.empty()) {
    request = s.state.hash("request", fmt::format("{} {}", from.who->name, wanted.request_id));
    question = s.state.hash("question", question_of(from));
    if (join_earlier(s, from, request, question, show)) return;
  }
  std::unique_ptr<timer> watch;
  std::shared_ptr<watched_process> process;
  limits::place watch_place;
  if (wanted.pid) process = watch_process(s, from, *wanted.pid, watch, watch_place);
  auto place = s.bounds.lease(*from.who);
  std::vector<limits::place> more;
  for (std::size_t i = 1; i < wanted.names.size(); ++i) more.push_back(s.bounds.lease(*from.who));
  auto waiter = wanted.wait > 0ns ? s.bounds.waiter(*from.who) : limits::place{};
  const auto call = std::make_shared<waiting_call>(std::move(from));
  call->name = wanted.name();
  call->request = std::move(request);
  call->question = std::move(question);
  call->lease = std::move(place);
  call->more_leases = std::move(more);
  call->waiter = std::move(waiter);
  call->process = std::move(watch);
  call->process_place = std::move(watch_place);
  call->shown.mode = wanted.mode();
  call->shown.weight = wanted.permits;
  call->shown.label = wanted.label;
  call->shown.priority = wanted.priority;
  call->shown.host = s.host;
  call->shown.pid = s.pid;
  if (process != nullptr) process->waits = call;
  spawn(carry_out(s, call, std::move(wanted), std::move(show), process));
}

void add_lock_routes(service& s) {
  const auto add = [&s](std::string_view pattern, asked_at where, const shown_as& show) {
    s.routes.add({"POST", pattern, scope::acquire,
                  [&s, where, show](visit from) { acquire_at(s, std::move(from), where, show); }});
  };
  add("/v1/locks/{name}:acquire", asked_at::lock, &shown_alone);
  add("/v1/semaphores/{name}:acquire", asked_at::semaphore, &shown_alone);
  add("/v1/elections/{name}:campaign", asked_at::election, &shown_alone);
  add("/v1/locks:acquire", asked_at::locks, &shown_as_list);
}

}  // namespace holdfast::server
