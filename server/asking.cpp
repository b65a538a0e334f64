#include "asking.hpp"

#include "json_text.hpp"

#include <holdfast/counting_semaphore.hpp>
#include <holdfast/election.hpp>
#include <holdfast/lock_all.hpp>
#include <holdfast/mutex.hpp>
#include <holdfast/shared_mutex.hpp>
#include <holdfast/url.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace holdfast::server {

namespace {

using namespace std::chrono_literals;

constexpr auto longest_wait = std::chrono::nanoseconds{1h};
constexpr std::size_t most_names_at_once = 64;
constexpr std::size_t longest_text = 4096;  // the library judges what is in it

std::int64_t milliseconds(std::chrono::nanoseconds duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

void read_kind(ask& into, fields& in, asked_at where) {
  const auto mode =
      where == asked_at::lock || where == asked_at::hold ? in.text("mode", 20) : std::nullopt;
  constexpr std::int64_t most = 1'000'000;
  if (where == asked_at::election) into.kind = lock_kind::election;
  if (where == asked_at::locks || where == asked_at::election) return;
  const auto of = in.whole("of", 1, most);
  const auto permits = in.whole("permits", 1, most);
  if (mode && (of || permits))
    throw refused(bad_request("\"mode\" is for locks, \"permits\" and \"of\" are for semaphores"));
  if (where == asked_at::semaphore && !of)
    throw refused(bad_request("\"of\" is missing: how many permits there are in all"));
  if (permits && !of)
    throw refused(bad_request("\"permits\" needs \"of\": how many there are in all"));
  if (of) {
    into.kind = lock_kind::permits;
    into.of = static_cast<std::uint64_t>(*of);
    into.permits = static_cast<std::uint64_t>(permits.value_or(1));
    if (into.permits > into.of) throw refused(bad_request("\"permits\" is more than \"of\""));
    return;
  }
  if (!mode || *mode == "exclusive") return;
  if (*mode != "shared" && *mode != "upgradeable")
    throw refused(bad_request("\"mode\" is exclusive, shared or upgradeable"));
  into.kind = *mode == "shared" ? lock_kind::shared : lock_kind::upgradeable;
}

std::string read_request_id(fields& in) {
  auto id = in.text("request_id", 128).value_or("");
  const bool is_fine = std::ranges::all_of(id, [](unsigned char c) { return c > ' ' && c < 0x7F; });
  if (!is_fine || (id.empty() && in.has("request_id")))
    throw refused(bad_request("\"request_id\" is 1 to 128 printable ASCII characters"));
  return id;
}

void read_pid(ask& into, fields& in) {
  const auto pid = in.whole("pid", 1, INT32_MAX);
  if (!pid) return;
  into.pid = static_cast<pid_t>(*pid);
  into.by = kept_by::process;
}

acquire_options options_of(const service& s, const ask& wanted, std::chrono::nanoseconds wait,
                           std::stop_token stop) {
  acquire_options out;
  out.wait = wait;
  out.ttl = wanted.ttl;
  out.order = wanted.order;
  out.priority = wanted.priority;
  out.own_token = true;
  out.outlives_client = wanted.by != kept_by::connection && s.store.capabilities().outlives_client;
  out.stop = std::move(stop);
  out.label = wanted.label;
  return out;
}

result<std::vector<lease>> as_list(result<lease> one) {
  if (!one) return std::move(one).error();
  std::vector<lease> out;
  out.push_back(std::move(*one));
  return out;
}

task<result<lease>> take_one(service& s, const ask& wanted, const acquire_options& how) {
  switch (wanted.kind) {
    case lock_kind::exclusive: {
      mutex lock{s.store, wanted.name()};
      auto got = co_await lock.async_acquire(how);
      co_return got;
    }
    case lock_kind::shared: {
      shared_mutex lock{s.store, wanted.name()};
      auto got = co_await lock.async_acquire_shared(how);
      co_return got;
    }
    case lock_kind::upgradeable: {
      shared_mutex lock{s.store, wanted.name()};
      auto got = co_await lock.async_acquire_upgradeable(how);
      co_return got;
    }
    case lock_kind::permits: {
      counting_semaphore permits{s.store, wanted.name(), wanted.of};
      auto got = co_await permits.async_acquire_permits(wanted.permits, how);
      co_return got;
    }
    case lock_kind::election: {
      election seat{s.store, wanted.name(), wanted.label};
      auto got = co_await seat.async_campaign(how);
      co_return got;
    }
  }
  co_return error{errc::misconfigured, "there is no such kind of lock"};
}

}  // namespace

lock_mode ask::mode() const noexcept {
  switch (kind) {
    case lock_kind::shared:
      return lock_mode::shared;
    case lock_kind::upgradeable:
      return lock_mode::upgradeable;
    case lock_kind::permits:
      return lock_mode::permits;
    case lock_kind::exclusive:
    case lock_kind::election:
      break;
  }
  return lock_mode::exclusive;
}

std::chrono::nanoseconds checked_ttl(const service& s,
                                     std::optional<std::chrono::nanoseconds> given) {
  const auto& can = s.store.capabilities();
  const auto ttl =
      given.value_or(std::clamp<std::chrono::nanoseconds>(10s, can.min_ttl, can.max_ttl));
  if (ttl < can.min_ttl || ttl > can.max_ttl)
    throw refused(
        bad_request(fmt::format("the ttl must be from {} to {} with this store",
                                format_duration(can.min_ttl), format_duration(can.max_ttl))));
  return ttl;
}

ask read_ask(const service& s, fields& in, asked_at where, std::string name) {
  ask out;
  if (where == asked_at::locks) {
    out.several = true;
    out.names = in.texts("names", most_names_at_once, longest_text);
    if (out.names.empty())
      throw refused(bad_request("\"names\" is missing: a list of 1 to 64 lock names"));
  } else {
    out.names = {std::move(name)};
  }
  for (const auto& each : out.names) check_name_or_refuse(each);
  read_kind(out, in, where);
  out.ttl = checked_ttl(s, in.duration("ttl", 0ns, std::chrono::nanoseconds::max()));
  const auto patience = where == asked_at::hold ? std::chrono::nanoseconds::max() : longest_wait;
  out.wait = in.duration("wait", 0ns, patience).value_or(0ns);
  const auto order = in.text("order", 20).value_or("fifo");
  if (order != "fifo" && order != "barging")
    throw refused(bad_request("\"order\" is fifo or barging"));
  out.order = order == "fifo" ? queue_order::fifo : queue_order::barging;
  out.priority = static_cast<int>(in.whole("priority", INT32_MIN, INT32_MAX).value_or(0));
  out.label = in.text(where == asked_at::election ? "value" : "label", longest_text).value_or("");
  if (where == asked_at::hold) {
    out.by = kept_by::connection;
  } else {
    out.request_id = read_request_id(in);
    if (where != asked_at::locks) read_pid(out, in);
  }
  in.nothing_else();
  return out;
}

task<result<std::vector<lease>>> take(service& s, const ask& wanted, std::chrono::nanoseconds wait,
                                      std::stop_token stop) {
  const auto how = options_of(s, wanted, wait, std::move(stop));
  try {
    if (wanted.several) {
      auto all = co_await async_lock_all(s.store, wanted.names, how);
      co_return all;
    }
    auto one = co_await take_one(s, wanted, how);
    co_return as_list(std::move(one));
  } catch (const lock_error& wrong) {
    co_return error{wrong.reason(), wrong.what()};
  }
}

std::string json_of(const service& s, const held_lease& which,
                    std::chrono::steady_clock::time_point asked, std::chrono::nanoseconds waited) {
  const auto token = which.grant.token().value;
  json_object out;
  out.add("lease", which.id)
      .add("name", which.name)
      .add("token", token)
      .add("token_text", std::to_string(token))
      .add("mode", to_string(which.grant.mode()));
  if (which.terms.permits != 0)
    out.add("permits", which.terms.permits);
  else
    out.add_json("permits", "null");
  return out.add("ttl_ms", milliseconds(which.terms.ttl))
      .add("valid_ms", milliseconds(s.leases.valid(which, asked)))
      .add("waited_ms", milliseconds(waited))
      .text();
}

std::string holders_json(const lock_info& lock) {
  json_array out;
  for (const auto& each : lock.holders)
    out.add_json(json_object{}
                     .add("host", each.host)
                     .add("pid", each.pid)
                     .add("label", each.label)
                     .add("mode", to_string(each.mode))
                     .add("token", each.token.value)
                     .text());
  return out.text();
}

}  // namespace holdfast::server
