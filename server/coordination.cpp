// Latches and elections. Semaphores are acquired as locks are (locks.cpp).
#include "json_text.hpp"
#include "locks.hpp"

#include <holdfast/election.hpp>
#include <holdfast/latch.hpp>
#include <holdfast/url.hpp>

#include <charconv>

namespace holdfast::server {

namespace {

using namespace std::chrono_literals;

constexpr std::int64_t largest_count = std::int64_t{1} << 32;
constexpr auto longest_latch_wait = std::chrono::nanoseconds{1h};
constexpr std::size_t most_latches = 10'000;

std::string latch_text(const std::string& name, std::int64_t left) {
  return json_object{}.add("name", name).add("left", left).add("open", left == 0).text();
}

// One call about one latch, which gives what is left.
using latch_call = std::function<result<std::int64_t>()>;

task<> carry_out_latch(service& s, visit from, latch_call call) {
  result<std::int64_t> left = std::int64_t{0};
  store_work asking{s, *from.who, [&] {
                      try {
                        left = call();
                      } catch (const lock_error& wrong) {
                        left = error{wrong.reason(), wrong.what()};
                      }
                    }};
  const bool done = co_await asking;
  if (!done) co_return from.refuse(pool_is_full());
  if (!left) co_return from.refuse(problem_of(left.error()));
  if (from.asked().method == "DELETE") co_return from.answer(response{204, "", {}, {}});
  from.answer(latch_text(from.parameter, *left));
}

void on_latch(service& s, visit from, latch_call call) {
  spawn(carry_out_latch(s, std::move(from), std::move(call)));
}

void make_latch(service& s, visit from, bool anew) {
  fields in{from.asked().body};
  const auto count = in.whole("count", 0, largest_count);
  const auto keep =
      in.duration("keep", 1ms, std::chrono::nanoseconds::max()).value_or(latch::default_keep);
  in.nothing_else();
  if (!count) throw refused(bad_request("\"count\" is missing"));
  const auto name = from.parameter;
  on_latch(s, std::move(from), [&s, name, keep, anew, count = *count]() -> result<std::int64_t> {
    latch one{s.store, name, count, keep};
    if (!anew) return one.value();
    if (auto set = one.set(count); !set) return std::move(set).error();
    return count;
  });
}

void count_latch_down(service& s, visit from) {
  fields in{from.asked().body};
  const auto by = in.whole("by", 0, largest_count).value_or(1);
  in.nothing_else();
  const auto name = from.parameter;
  on_latch(s, std::move(from), [&s, name, by] { return latch{s.store, name}.count_down(by); });
}

void show_latch(service& s, visit from) {
  const auto name = from.parameter;
  on_latch(s, std::move(from), [&s, name] { return latch{s.store, name}.value(); });
}

void remove_latch(service& s, visit from) {
  const auto name = from.parameter;
  on_latch(s, std::move(from), [&s, name]() -> result<std::int64_t> {
    if (auto done = latch{s.store, name}.remove(); !done) return std::move(done).error();
    return 0;
  });
}

// What both waits share: a client that may go, a service that may stop.
call_ptr waiting_call_of(service& s, visit from, std::chrono::nanoseconds wait) {
  s.refuse_when_stopping();
  auto place = wait > 0ns ? s.bounds.waiter(*from.who) : limits::place{};
  auto call = std::make_shared<waiting_call>(std::move(from));
  call->waiter = std::move(place);
  return call;
}

task<> wait_for_latch(service& s, call_ptr call, std::chrono::nanoseconds wait) {
  const auto& from = call->first();
  const latch one{s.store, from.parameter};
  s.room.enter(call);
  const auto stop = call->stop();
  auto opened = co_await one.async_wait(wait, stop);
  s.room.leave(call);
  if (opened) co_return from.answer(latch_text(from.parameter, 0));
  from.refuse(call->cancelled().value_or(problem_of(opened.error())));
}

void wait_for_latch_route(service& s, visit from) {
  fields in{from.asked().body};
  const auto wait = in.duration("wait", 0ns, longest_latch_wait).value_or(0ns);
  in.nothing_else();
  spawn(wait_for_latch(s, waiting_call_of(s, std::move(from), wait), wait));
}

task<> list_latches(service& s, visit from, std::string prefix) {
  result<std::vector<latch_info>> found = std::vector<latch_info>{};
  store_work asking{s, *from.who, [&] { found = s.store.latches(prefix, most_latches); },
                    store_work::length::long_list};
  const bool done = co_await asking;
  if (!done) co_return from.refuse(pool_is_full());
  if (!found) co_return from.refuse(problem_of(found.error()));
  json_array all;
  for (const auto& each : *found) all.add_json(latch_text(each.name, each.left));
  from.answer(json_object{}.add_json("latches", all.text()).text());
}

std::string leader_text(const std::optional<leader_info>& leader) {
  if (!leader) return R"({"leader":null})";
  const auto text = json_object{}
                        .add("value", leader->value)
                        .add("term", leader->term.value)
                        .add("host", leader->host)
                        .add("pid", leader->pid)
                        .text();
  return json_object{}.add_json("leader", text).text();
}

task<> show_leader(service& s, visit from) {
  result<std::optional<leader_info>> found = std::optional<leader_info>{};
  store_work asking{s, *from.who, [&] { found = election{s.store, from.parameter}.leader(); }};
  const bool done = co_await asking;
  if (!done) co_return from.refuse(pool_is_full());
  if (!found) co_return from.refuse(problem_of(found.error()));
  from.answer(leader_text(*found));
}

task<> observe_leader(service& s, call_ptr call, fencing_token seen,
                      std::chrono::nanoseconds wait) {
  const auto& from = call->first();
  const election seat{s.store, from.parameter};
  s.room.enter(call);
  const auto stop = call->stop();
  auto found = co_await seat.async_observe(seen, wait, stop);
  s.room.leave(call);
  if (found) co_return from.answer(leader_text(*found));
  from.refuse(call->cancelled().value_or(problem_of(found.error())));
}

void leader_route(service& s, visit from) {
  from.query.allow_only({"seen", "wait"});
  const auto* seen = from.query.find("seen");
  const auto* wait = from.query.find("wait");
  if (seen == nullptr && wait == nullptr) return spawn(show_leader(s, std::move(from)));
  fencing_token term;
  const auto text = seen == nullptr ? std::string_view{"0"} : std::string_view{*seen};
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), term.value);
  const auto limit = wait == nullptr ? result<nanoseconds>{nanoseconds{0}} : parse_duration(*wait);
  if (wrong != std::errc{} || end != text.data() + text.size() || !limit ||
      *limit > longest_latch_wait)
    throw refused(bad_request("seen is the term of a leader, and wait a duration of at most 1h"));
  spawn(observe_leader(s, waiting_call_of(s, std::move(from), *limit), term, *limit));
}

}  // namespace

void add_coordination_routes(service& s) {
  using act_type = void (*)(service&, visit);
  const auto add = [&s](std::string_view method, std::string_view pattern, scope needs,
                        act_type act, bool has_query = false) {
    s.routes.add(
        {method, pattern, needs, [&s, act](visit from) { act(s, std::move(from)); }, has_query});
  };
  add("GET", "/v1/latches/{name}", scope::any_key, &show_latch);
  add("POST", "/v1/latches/{name}", scope::acquire,
      [](service& of, visit from) { make_latch(of, std::move(from), false); });
  add("PUT", "/v1/latches/{name}", scope::acquire,
      [](service& of, visit from) { make_latch(of, std::move(from), true); });
  add("DELETE", "/v1/latches/{name}", scope::acquire, &remove_latch);
  add("POST", "/v1/latches/{name}:down", scope::acquire, &count_latch_down);
  add("POST", "/v1/latches/{name}:wait", scope::any_key, &wait_for_latch_route);
  add("GET", "/v1/elections/{name}", scope::any_key, &leader_route, true);
  add(
      "GET", "/v1/latches", scope::inspect,
      [](service& of, visit from) {
        from.query.allow_only({"prefix"});
        auto prefix = narrowed(from);
        spawn(list_latches(of, std::move(from), std::move(prefix)));
      },
      true);
}

}  // namespace holdfast::server
