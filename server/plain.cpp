// The two calls that people write first, with answers that a shell can read.
#include "locks.hpp"

#include <holdfast/url.hpp>

#include <fmt/format.h>

namespace holdfast::server {

namespace {

using namespace std::chrono_literals;

constexpr std::string_view text_type = "text/plain; charset=utf-8";

std::optional<std::chrono::nanoseconds> duration_of(const visit& from, std::string_view name,
                                                    std::chrono::nanoseconds most) {
  const auto* given = from.query.find(name);
  if (given == nullptr) return std::nullopt;
  const auto parsed = parse_duration(*given);
  if (!parsed || *parsed > most)
    throw refused(bad_request(
        fmt::format("{} is a duration such as 10s, at most {}", name, format_duration(most))));
  return *parsed;
}

void lock(service& s, visit from) {
  from.query.allow_only({"name", "ttl", "wait", "label"});
  const auto* name = from.query.find("name");
  if (name == nullptr) throw refused(bad_request("say which lock: POST /lock?name=NAME"));
  check_name_or_refuse(*name);
  from.check(scope::acquire, *name);
  ask wanted;
  wanted.names = {*name};
  wanted.ttl = checked_ttl(s, duration_of(from, "ttl", std::chrono::nanoseconds::max()));
  wanted.wait = duration_of(from, "wait", 1h).value_or(0ns);
  if (const auto* label = from.query.find("label")) wanted.label = *label;
  acquire(s, std::move(from), std::move(wanted),
          [](service&, const std::vector<lease_ptr>& got, auto, auto) {
            const auto& one = *got.front();
            return response{
                200, text_type, fmt::format("{}\n{}\n", one.id, one.grant.token().value), {}};
          });
}

task<> unlock_one(service& s, visit from, std::string id) {
  auto done = co_await give_up(s, from, std::move(id));
  if (!done) co_return from.refuse(not_given_back(s, done.error()));
  from.answer(response{200, text_type, "released\n", {}});
}

void unlock(service& s, visit from) {
  from.query.allow_only({"lease"});
  const auto* id = from.query.find("lease");
  if (id == nullptr) throw refused(bad_request("say which lease: POST /unlock?lease=LEASE"));
  check_release(s, from, *id);
  auto which = *id;
  spawn(unlock_one(s, std::move(from), std::move(which)));
}

}  // namespace

void add_plain_routes(service& s) {
  s.routes.add({"POST", "/lock", scope::acquire, [&s](visit from) { lock(s, std::move(from)); },
                true, true});
  s.routes.add({"POST", "/unlock", scope::acquire, [&s](visit from) { unlock(s, std::move(from)); },
                true, true});
}

}  // namespace holdfast::server
