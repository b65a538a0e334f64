// What operators see and do: list, show, break, the store itself, numbers, events, who waits for whom.
#include "json_text.hpp"
#include "listener.hpp"
#include "locks.hpp"
#include "waits.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>

namespace holdfast::server {

namespace {

using locks_found = result<std::vector<lock_info>>;
using client_half = std::array<std::uint64_t, 2>;

constexpr std::size_t usual_limit = 1'000;
constexpr std::size_t largest_limit = 10'000;
constexpr std::size_t most_long_lists = 16;

// `text` without its line end, and one more field.
std::string with_field(std::string_view object, std::string_view name, std::string_view json) {
  const auto end = object.rfind('}');
  std::string out{object.substr(0, end)};
  while (!out.empty() && (out.back() == '\n' || out.back() == ' ')) out.pop_back();
  return out + ", " + json_string(name) + ": " + std::string{json} + "}\n";
}

std::size_t limit_of(const visit& from) {
  const auto* given = from.query.find("limit");
  if (given == nullptr) return usual_limit;
  std::size_t out = 0;
  const auto [end, wrong] = std::from_chars(given->data(), given->data() + given->size(), out);
  if (wrong != std::errc{} || end != given->data() + given->size() || out < 1 ||
      out > largest_limit)
    throw refused(bad_request("limit is a number from 1 to 10000"));
  return out;
}

// Lists, adds what waits in this process only, and makes a text of it, all but the second on a thread of the pool.
task<> list_locks(service& s, visit from, std::string prefix, std::size_t limit,
                  std::string (*show)(const service&, const std::vector<lock_info>&,
                                      const client_half& own)) {
  // Each keeps its list until it is sent, and a list may be long.
  if (s.long_lists >= most_long_lists) co_return from.refuse(pool_is_full());
  ++s.long_lists;
  const std::unique_ptr<service, void (*)(service*)> counted{&s,
                                                             [](service* of) { --of->long_lists; }};
  locks_found found = std::vector<lock_info>{};
  store_work asking{s, *from.who, [&] { found = s.store.list(prefix, limit); },
                    store_work::length::long_list};
  bool done = co_await asking;
  if (!done) co_return from.refuse(pool_is_full());
  if (!found) co_return from.refuse(problem_of(found.error()));
  const auto own = s.leases.own();
  s.room.add_to(*found, own);
  std::string text;
  store_work writing{s, *from.who, [&] { text = show(s, *found, own); },
                     store_work::length::long_list};
  done = co_await writing;
  if (!done) co_return from.refuse(pool_is_full());
  from.answer(std::move(text));
}

std::string listed(const service& s, const std::vector<lock_info>& locks, const client_half&) {
  return "{\"locks\": " + s.configured.show.locks(locks) + "}";
}

std::string waits_text(const service&, const std::vector<lock_info>& locks,
                       const client_half& own) {
  return json_of(waits_of(locks, own));
}

task<> show_lock(service& s, visit from) {
  result<lock_info> found = lock_info{};
  store_work asking{s, *from.who, [&] { found = s.store.inspect(from.parameter); }};
  const bool done = co_await asking;
  if (!done) co_return from.refuse(pool_is_full());
  if (!found) co_return from.refuse(problem_of(found.error()));
  std::vector<lock_info> one;
  one.push_back(std::move(*found));
  s.room.add_to(one, s.leases.own());
  from.answer(
      with_field(s.configured.show.lock(one.front()), "history", s.events.history(from.parameter)));
}

task<> break_lock(service& s, visit from) {
  result<std::size_t> ended = std::size_t{0};
  store_work asking{s, *from.who, [&] { ended = s.store.revoke(from.parameter); }};
  const bool done = co_await asking;
  if (!done) co_return from.refuse(pool_is_full());
  note_break(s, from, from.parameter, ended);
  if (!ended) co_return from.refuse(problem_of(ended.error()));
  from.answer(json_object{}.add("name", from.parameter).add("holders_ended", *ended).text());
}

void break_route(service& s, visit from) {
  // No page of somebody else can send it without being asked for permission first, which it does not get.
  if (from.asked().header("x-holdfast-intent") != "break")
    throw refused({.status = 403,
                   .code = "denied",
                   .detail = "to break a lock send the header X-Holdfast-Intent: break"});
  spawn(break_lock(s, std::move(from)));
}

task<> show_findings(service& s, visit from) {
  result<std::vector<finding>> found = std::vector<finding>{};
  store_work asking{s, *from.who, [&] { found = s.store.diagnose(); },
                    store_work::length::long_list};
  const bool done = co_await asking;
  if (!done) co_return from.refuse(pool_is_full());
  if (!found) co_return from.refuse(problem_of(found.error()));
  std::ranges::stable_sort(*found, std::ranges::greater{}, &finding::how);
  from.answer(s.configured.show.findings(s.store.url(), s.store.capabilities().engine, *found));
}

std::int64_t ms_since(std::chrono::steady_clock::time_point then) {
  const auto passed = std::chrono::steady_clock::now() - then;
  return std::chrono::duration_cast<std::chrono::milliseconds>(passed).count();
}

void show_stats(service& s, const visit& from) {
  const auto total = s.counts.total();
  json_object events;
  for (std::size_t i = 0; i < outcomes; ++i)
    events.add(to_string(static_cast<outcome>(i)), total.events[i]);
  const auto times = [](const time_buckets& of) {
    return json_object{}
        .add("count", of.count)
        .add("sum_seconds", of.sum)
        .add("p50_seconds", of.quantile(0.5))
        .add("p99_seconds", of.quantile(0.99))
        .text();
  };
  from.answer(json_object{}
                  .add("version", s.configured.version)
                  .add("store", s.store.url())
                  .add("engine", s.store.capabilities().engine)
                  .add("host", s.host)
                  .add("pid", s.pid)
                  .add("uptime_ms", ms_since(s.began))
                  .add("leases", s.leases.size())
                  .add("waiting", s.room.size())
                  .add("watchers", s.events.readers())
                  .add("connections", s.door.connections())
                  .add("renewed", total.renewed)
                  .add_json("totals", events.text())
                  .add_json("wait", times(total.waits))
                  .add_json("hold", times(total.holds))
                  .text());
}

void watch_events(service& s, visit from) {
  s.refuse_when_stopping();
  from.query.allow_only({"prefix"});
  auto place = s.bounds.watcher();
  s.events.watch(from.to, {}, narrowed(from), std::move(place));
}

}  // namespace

void add_operator_routes(service& s) {
  using act_type = void (*)(service&, visit);
  const auto add = [&s](std::string_view method, std::string_view pattern, scope needs,
                        act_type act, bool has_query = false) {
    s.routes.add(
        {method, pattern, needs, [&s, act](visit from) { act(s, std::move(from)); }, has_query});
  };
  add(
      "GET", "/v1/locks", scope::inspect,
      [](service& of, visit from) {
        from.query.allow_only({"prefix", "limit"});
        auto prefix = narrowed(from);
        const auto limit = limit_of(from);
        spawn(list_locks(of, std::move(from), std::move(prefix), limit, &listed));
      },
      true);
  add(
      "GET", "/v1/waits", scope::inspect,
      [](service& of, visit from) {
        from.query.allow_only({"prefix"});
        auto prefix = narrowed(from);
        spawn(list_locks(of, std::move(from), std::move(prefix), largest_limit, &waits_text));
      },
      true);
  add("GET", "/v1/locks/{name}", scope::inspect,
      [](service& of, visit from) { spawn(show_lock(of, std::move(from))); });
  add("DELETE", "/v1/locks/{name}", scope::break_locks, &break_route);
  add("GET", "/v1/events", scope::inspect, &watch_events, true);
  add("GET", "/v1/store", scope::inspect, [](service& of, visit from) {
    from.answer(of.configured.show.promises(of.store.url(), of.store.capabilities()));
  });
  add("GET", "/v1/doctor", scope::inspect,
      [](service& of, visit from) { spawn(show_findings(of, std::move(from))); });
  add("GET", "/v1/stats", scope::inspect, [](service& of, visit from) { show_stats(of, from); });
}

}  // namespace holdfast::server
