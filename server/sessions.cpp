#include "sessions.hpp"

#include "body.hpp"
#include "service.hpp"
#include "session.hpp"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>

namespace holdfast::server {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t most_in_line = 8;   // for one that begins, or ends
constexpr std::size_t longest_host = 64;  // HOST_NAME_MAX
constexpr std::chrono::milliseconds shortest_grace{500}, usual_grace{3000},
    longest_grace{3'600'000};

std::array<std::uint64_t, 2> half_in(std::string_view hex) {
  std::array<std::uint64_t, 2> out{};
  for (std::size_t i = 0; i < 2 && hex.size() == 32; ++i) {
    const auto* begin = hex.data() + 16 * i;
    const auto [end, code] = std::from_chars(begin, begin + 16, out[i], 16);
    if (code != std::errc{} || end != begin + 16) return {};
  }
  return out;
}

std::string fresh_id() {
  std::array<std::uint64_t, 2> bits{};
  if (getrandom(bits.data(), sizeof bits, 0) != sizeof bits)
    throw refused({.status = 503,
                   .code = word_of(errc::unavailable),
                   .detail = "the system's random source gave no session id"});
  return hex_of(bits);
}

refused no_session() {
  return refused({.status = 404,
                  .code = "no_session",
                  .detail = "there is no such session (any more): nothing was heard of it for its "
                            "grace, the service was restarted, or it is another key's"});
}

class session_table : public std::enable_shared_from_this<session_table> {
 public:
  explicit session_table(service& of) : service_(of) {}

  void begin(const visit& to);
  void end(const visit& to);
  void listen(const visit& to) { find(to).listen(to); }
  void act(const visit& to, session::verb what) { find(to).act(to, what); }
  void leave_all_behind() {
    const auto all = by_client_;
    for (const auto& [half, one] : all) one->leave_behind();
  }
  // Does one of them hold what the store would end together with it?
  bool is_counted_on() const {
    return std::ranges::any_of(by_client_,
                               [](const auto& each) { return each.second->is_counted_on(); });
  }

 private:
  struct asked {
    visit to;
    std::array<std::uint64_t, 2> client{};
    session::terms how;
  };
  session& find(const visit& to) const;
  void begin(const asked& what);
  void open(const asked& what);
  void open_soon(const asked& what, const std::shared_ptr<session>& made);
  void opened(const asked& what, const std::shared_ptr<session>& made, const result<void>& outcome);
  void admit(const asked& what, const std::shared_ptr<session>& to);
  void forget(const std::string& half);

  service& service_;
  std::unordered_map<std::string, std::shared_ptr<session>> by_id_;
  std::unordered_map<std::string, std::shared_ptr<session>> by_client_;
  // Clients that come while their session begins, or ends.
  std::unordered_map<std::string, std::vector<asked>> waiting_;
};

session& session_table::find(const visit& to) const {
  const auto at = by_id_.find(to.parameter);
  if (at == by_id_.end() || &at->second->who() != to.who || !at->second->is_open())
    throw no_session();
  return *at->second;
}

// The half by which the store knows it: nobody can find it out who does not know the secret one, and the service's.
void session_table::begin(const visit& to) {
  fields in{to.asked().body};
  asked what;
  what.to = to;
  const auto secret = in.text("client", 32).value_or("");
  what.how.host = in.text("host", longest_host).value_or("");
  what.how.pid = in.whole("pid", 0, INT32_MAX).value_or(0);
  what.how.grace =
      std::chrono::milliseconds{in.whole("grace_ms", shortest_grace.count(), longest_grace.count())
                                    .value_or(usual_grace.count())};
  what.how.newest = in.natural("newest").value_or(0);
  in.nothing_else();
  if (half_in(secret) == std::array<std::uint64_t, 2>{})
    throw refused(bad_request("\"client\" must be 32 hexadecimal digits, not all zero"));
  if (service_.is_stopping) throw refused(stopping());
  if (has_control(what.how.host)) throw refused(bad_request("\"host\" has control characters"));
  what.client = half_in(service_.state.hash("session", fmt::format("{} {}", to.who->name, secret)));
  begin(what);
}

void session_table::begin(const asked& what) {
  const auto half = hex_of(what.client);
  const auto known = by_client_.find(half);
  if (known == by_client_.end()) return open(what);
  if (!known->second->is_open()) {
    auto& line = waiting_[half];
    std::erase_if(line, [](const asked& each) { return each.to.to->gone().stop_requested(); });
    if (line.size() >= most_in_line)
      return what.to.refuse(
          too_many("too many requests wait for this client's session to begin, or to end"));
    line.push_back(what);
    return;
  }
  const auto one = known->second;
  by_id_.erase(one->id());
  admit(what, one);
}

void session_table::open(const asked& what) {
  if (service_.is_stopping) return what.to.refuse(stopping());
  if (by_client_.size() >= service_.configured.sessions)
    return what.to.refuse(too_many("there are too many sessions; try later"));
  limits::place place;
  try {
    place = service_.bounds.session(*what.to.who);
  } catch (const refused& no) {
    return what.to.refuse(no.why());
  }
  const session::surroundings around{
      service_.loop,
      service_.bounds,
      service_.is_stopping,
      *what.to.who,
      service_.store.url(),
      [&s = service_](const auto& from, const auto& lock, const auto& ended) {
        note_break(s, from, lock, ended);
      }};
  const auto made = std::make_shared<session>(around, what.client, what.how, std::move(place));
  const auto half = hex_of(what.client);
  by_client_.emplace(half, made);
  open_soon(what, made);
}

// All clients of a key may come at once, after a restart of the service, say: they take turns.
void session_table::open_soon(const asked& what, const std::shared_ptr<session>& made) {
  if (service_.is_stopping) {
    what.to.refuse(stopping());
    return forget(hex_of(what.client));
  }
  const auto outcome = std::make_shared<result<void>>();
  const bool begun = made->work(
      [made, outcome, address = service_.configured.store] {
        const auto url = store_url::parse(address);
        *outcome = url ? made->open(*url) : result<void>{url.error()};
      },
      [self = shared_from_this(), what, made, outcome] { self->opened(what, made, *outcome); });
  if (begun) return;
  // It lives in itself until it has run.
  const auto later = std::make_shared<std::unique_ptr<timer>>();
  *later = service_.loop.after(
      until_room, [self = shared_from_this(), what, made, later] { self->open_soon(what, made); });
}

void session_table::opened(const asked& what, const std::shared_ptr<session>& made,
                           const result<void>& outcome) {
  const auto half = hex_of(what.client);
  if (!outcome) {
    auto why = problem_of(outcome.error());
    why.done = false;
    what.to.refuse(why);
    return forget(half);
  }
  made->start([weak = weak_from_this(), half] {
    if (const auto self = weak.lock()) self->forget(half);
  });
  admit(what, made);
  const auto others = std::exchange(waiting_[half], {});
  waiting_.erase(half);
  for (const auto& one : others) begin(one);
}

// The service may have been told to stop while the session began.
void session_table::admit(const asked& what, const std::shared_ptr<session>& to) {
  if (service_.is_stopping) return what.to.refuse(stopping());
  auto id = fresh_id();
  to->begin_anew(id, what.how);
  by_id_[id] = to;
  json_object words;
  words.add("session", id).add("client", hex_of(to->client()));
  words.add("grace_ms", to->grace().count());
  words.add("now_ns", nanoseconds{system_clock().now().time_since_epoch()}.count());
  words.add_json("capabilities", json_of(to->caps()));
  what.to.answer(words.text());
}

void session_table::forget(const std::string& half) {
  const auto at = by_client_.find(half);
  if (at == by_client_.end()) return;
  by_id_.erase(at->second->id());
  by_client_.erase(at);
  const auto others = std::exchange(waiting_[half], {});
  waiting_.erase(half);
  for (const auto& one : others) begin(one);
}

void session_table::end(const visit& to) {
  find(to).end("its client has ended it", [to] { to.answer(response{204, {}, {}, {}}); });
}

struct verb_route {
  std::string_view pattern;
  session::verb what;
};

constexpr std::array verbs{
    verb_route{"/v1/sessions/{session}:enter", &session::enter},
    verb_route{"/v1/sessions/{session}:leave", &session::leave},
    verb_route{"/v1/sessions/{session}:renew", &session::renew},
    verb_route{"/v1/sessions/{session}:release", &session::release},
    verb_route{"/v1/sessions/{session}:downgrade", &session::downgrade},
    verb_route{"/v1/sessions/{session}:settle", &session::settle},
    verb_route{"/v1/sessions/{session}:enter_all", &session::enter_all},
    verb_route{"/v1/sessions/{session}:inspect", &session::inspect},
    verb_route{"/v1/sessions/{session}:list", &session::list},
    verb_route{"/v1/sessions/{session}:list_counters", &session::list_counters},
    verb_route{"/v1/sessions/{session}:revoke", &session::revoke},
    verb_route{"/v1/sessions/{session}:count", &session::count},
    verb_route{"/v1/sessions/{session}:watch", &session::watch},
    verb_route{"/v1/sessions/{session}:unwatch", &session::unwatch},
    verb_route{"/v1/sessions/{session}:diagnose", &session::diagnose},
};

}  // namespace

void add_session_routes(router& to, service& of) {
  const auto table = std::make_shared<session_table>(of);
  of.when_stopping.emplace_back([table] { table->leave_all_behind(); });
  of.is_counted_on.emplace_back([table] { return table->is_counted_on(); });
  to.add(
      {"POST", "/v1/sessions", scope::any_key, [table](const visit& one) { table->begin(one); }});
  to.add({"DELETE", "/v1/sessions/{session}", scope::any_key,
          [table](const visit& one) { table->end(one); }});
  to.add({"GET", "/v1/sessions/{session}/events", scope::any_key,
          [table](const visit& one) { table->listen(one); }});
  for (const auto& each : verbs)
    to.add({"POST", each.pattern, scope::any_key,
            [table, what = each.what](const visit& one) { table->act(one, what); }});
}

}  // namespace holdfast::server
