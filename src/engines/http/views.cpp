// What operators ask, and counters.
#include "engines/common/doctor_checks.hpp"
#include "engines/common/sentences.hpp"
#include "engines/common/store_address.hpp"
#include "engines/http/http_engine.hpp"

#include <fmt/format.h>

#include <utility>

namespace holdfast::engines::http {

operation<counter> http_engine::do_count(const counter_request& ask, invocation how) {
  question what;
  what.verb = "count";
  what.name = ask.name;
  what.words = ask_to_count(ask);
  const auto got = co_await link_->ask(what, how);
  if (!got && ask.op == counter_op::read) co_return as_reading(got.error());
  if (!got) co_return got.error();
  const auto out = read_counter(got->words);
  if (!out) co_return strange(ask.name);
  co_return *out;
}

operation<lock_info> http_engine::do_inspect(std::string_view name, invocation how) {
  question what;
  what.verb = "inspect";
  what.name = name;
  what.words.add("name", name);
  const auto got = co_await link_->ask(what, how);
  if (!got) co_return as_reading(got.error());
  const auto inner = got->words.object("lock");
  auto out = inner ? read_lock(*inner, link_->who()) : std::nullopt;
  if (!out) co_return strange(name);
  co_return std::move(*out);
}

operation<std::vector<lock_info>> http_engine::do_list(std::string_view prefix, std::size_t limit,
                                                       invocation how) {
  question what;
  what.verb = "list";
  what.over = line::views;
  what.words.add("prefix", prefix).add("limit", static_cast<std::uint64_t>(limit));
  const auto got = co_await link_->ask(what, how);
  if (!got) co_return as_reading(got.error());
  const auto all = got->words.objects("locks");
  if (!all) co_return strange(prefix);
  std::vector<lock_info> out;
  for (const auto& one : *all) {
    auto lock = read_lock(one, link_->who());
    if (!lock) co_return strange(prefix);
    out.push_back(std::move(*lock));
  }
  co_return out;
}

operation<std::vector<counter_info>> http_engine::do_list_counters(std::string_view prefix,
                                                                   std::size_t limit,
                                                                   invocation how) {
  question what;
  what.verb = "list_counters";
  what.over = line::views;
  what.words.add("prefix", prefix).add("limit", static_cast<std::uint64_t>(limit));
  const auto got = co_await link_->ask(what, how);
  if (!got) co_return as_reading(got.error());
  const auto all = got->words.objects("counters");
  if (!all) co_return strange(prefix);
  std::vector<counter_info> out;
  for (const auto& one : *all) {
    auto each = read_counter_info(one);
    if (!each) co_return strange(prefix);
    out.push_back(std::move(*each));
  }
  co_return out;
}

operation<std::size_t> http_engine::do_revoke(std::string_view name, invocation how) {
  question what;
  what.verb = "revoke";
  what.name = name;
  what.words.add("name", name);
  const auto got = co_await link_->ask(what, how);
  if (!got) co_return got.error();
  const auto ended = got->words.natural("holders_ended");
  if (!ended) co_return strange(name);
  co_return static_cast<std::size_t>(*ended);
}

// ---- doctor

namespace {

constexpr int round_trips = 9;

finding of_the_service(finding one) {
  one.about = "service: " + one.about;
  return one;
}

}  // namespace

result<std::vector<finding>> http_engine::diagnose(const call& limits) {
  const invocation how{limits, true};
  std::vector<nanoseconds> took;
  question beat;
  beat.verb = "renew";
  beat.over = line::control;
  beat.words.add_json("leases", "[]");
  for (int i = 0; i < round_trips; ++i) {
    const auto since = std::chrono::steady_clock::now();
    const auto got = link_->ask(beat, how).run();
    if (!got) return as_reading(got.error());
    took.push_back(std::chrono::steady_clock::now() - since);
  }
  std::vector<finding> out;
  encryption on_the_way;
  on_the_way.is_on = how_.where.use_tls;
  on_the_way.is_local = is_this_machine(how_.where.host);
  on_the_way.to_turn_on = "https://";
  out.push_back(check_encryption(on_the_way));
  round_trip_limits bearable;
  bearable.bearable = how_.grace / 3;
  bearable.setting = "grace";
  bearable.length = how_.grace;
  out.push_back(check_round_trips(std::move(took), bearable));

  question what;
  what.verb = "diagnose";
  what.over = line::views;
  const auto got = link_->ask(what, how).run();
  if (!got && got.error().code() != errc::denied) return as_reading(got.error());
  if (!got) {
    out.push_back(not_allowed_to_look("the service's store", "the key has not the scope inspect",
                                      "Ask where the service runs: holdfast doctor."));
    return out;
  }
  const auto all = got->words.objects("findings");
  if (!all) return strange("doctor");
  for (const auto& one : *all)
    if (auto read = read_finding(one)) out.push_back(of_the_service(std::move(*read)));
  return out;
}

}  // namespace holdfast::engines::http
