// The pages: the dashboard, its parts, /openapi.json, and what other programs watch: /metrics, /healthz, /readyz.
#include "assets.hpp"
#include "json_text.hpp"
#include "listener.hpp"
#include "locks.hpp"
#include "metrics_text.hpp"

namespace holdfast::server {

namespace {

// Scripts, styles and answers of this service only, in nobody's frame. Should a name find a way to be more than text,
// the browser still runs nothing of it.
constexpr std::string_view page_policy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

void page(service& s, std::string_view path, std::string_view type, std::string_view content) {
  s.routes.add({"GET", path, scope::open, [type, content](const visit& from) {
                  from.answer(response{200,
                                       type,
                                       std::string{content},
                                       {{"Content-Security-Policy", std::string{page_policy}},
                                        {"Referrer-Policy", "no-referrer"},
                                        {"Cross-Origin-Resource-Policy", "same-origin"}}});
                }});
}

// Is the store there? Asked at most once a second, whoever asks.
class readiness {
 public:
  explicit readiness(service& of) : s_(of) {}
  void show(const visit& from) {
    if (s_.is_stopping) return from.refuse(stopping());
    if (s_.is_immediate()) return from.answer(response{200, text, "ready\n", {}});
    if (std::chrono::steady_clock::now() - asked_ < std::chrono::seconds{1}) return tell(from);
    spawn(ask(from));
  }

 private:
  static constexpr std::string_view text = "text/plain; charset=utf-8";
  void tell(const visit& from) const {
    if (answer_) return from.answer(response{200, text, "ready\n", {}});
    from.refuse(problem_of(answer_.error()));
  }
  task<> ask(visit from) {
    asked_ = std::chrono::steady_clock::now();
    result<void> answer;
    store_work asking{s_, *from.who, [&] {
                        if (auto found = s_.store.inspect("holdfast"); !found)
                          answer = std::move(found).error();
                      }};
    const bool done = co_await asking;
    if (done) answer_ = std::move(answer);
    tell(from);
  }

  service& s_;
  std::chrono::steady_clock::time_point asked_{};
  result<void> answer_{};
};

gauges gauges_of(const service& s) {
  gauges now;
  // Of each prefix that was seen there is a line, so that a queue that is gone says 0.
  for (const auto& [prefix, each] : s.counts.by_prefix())
    now.leases[prefix] = now.waiting[prefix] = 0;
  const auto count = [&s](auto& in, std::string_view lock) {
    ++in[std::string{s.counts.prefix_of(lock)}];
  };
  s.leases.for_each([&](const held_lease& each) { count(now.leases, each.name); });
  s.room.for_each([&](const waiting_call& each) { count(now.waiting, each.name); });
  now.watchers = s.events.readers();
  now.connections = s.door.connections();
  return now;
}

}  // namespace

void add_page_routes(service& s) {
  page(s, "/", "text/html; charset=utf-8", assets::page());
  page(s, "/app.js", "text/javascript; charset=utf-8", assets::script());
  page(s, "/app.css", "text/css; charset=utf-8", assets::style());
  page(s, "/openapi.json", "application/json", assets::openapi());
  page(s, "/healthz", "text/plain; charset=utf-8", "alive\n");
  const auto ready = std::make_shared<readiness>(s);
  s.routes.add({"GET", "/readyz", scope::open, [ready](const visit& from) { ready->show(from); },
                false, true});
  s.routes.add({"GET", "/metrics", scope::inspect, [&s](const visit& from) {
                  from.check(scope::inspect, {});  // of all names, or none
                  from.answer(response{200,
                                       "text/plain; version=0.0.4; charset=utf-8",
                                       prometheus_text(s.counts, gauges_of(s), s.store.metrics()),
                                       {}});
                }});
}

}  // namespace holdfast::server
