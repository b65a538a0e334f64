// Acquire, give back, settle, renew: requests, and how their answers are read.
#include "engines/http/http_engine.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace holdfast::engines::http {

namespace {

constexpr std::size_t longest_body = 60'000;  // the service takes 64 KiB
constexpr std::size_t leases_at_once = 100;   // with the longest names they fit

std::string array_of(const std::vector<std::string>& items) {
  return fmt::format("[{}]", fmt::join(items, ","));
}

// A grant of something else than was asked for excludes others than its holder believes. Not for settle, which says
// what there is, whatever it has become.
template <class Grant>
bool fits(const Grant& said, const request& ask) {
  return said.mode == ask.mode && said.weight == ask.weight;
}

}  // namespace

error http_engine::strange(std::string_view name) const {
  return {errc::protocol, fmt::format("Lock {}: the answer of {} makes no sense.",
                                      support::quoted(name), how_.url)};
}

grant http_engine::make_grant(std::string_view name, const grant_record& from,
                              steady_time valid_from, const session_proof& proof) const {
  grant out;
  out.name = name;
  out.owner = {client_, from.owner};
  out.mode = from.mode;
  out.weight = from.weight;
  out.token = from.token;
  out.valid_from = valid_from;
  out.ttl = from.ttl;
  out.session = proof;
  return out;
}

grant http_engine::read_grant_of(const answer& got, const grant_record& from,
                                 std::string_view name) const {
  return make_grant(name, from, before(got.sent, from.age),
                    link_->proof(got.session, from.proof, before(got.sent, from.proof.age)));
}

// `stream`: which one there was before it was asked.
result<entered> http_engine::read_answer_to(const result<answer>& got, const request& ask,
                                            std::uint64_t stream) {
  if (!got) return got.error();
  const auto said = read_entered(got->words);
  if (!said || (said->granted && said->granted->owner != ask.owner.sequence))
    return strange(ask.name);
  entered out;
  out.what = said->what;
  if (said->granted) out.granted = read_grant_of(*got, *said->granted, ask.name);
  if (out.what == entered::kind::waiting) {
    out.waiting.name = ask.name;
    out.waiting.owner = ask.owner;
    out.waiting.handle = stream;
  } else {
    ended(ask.owner);  // what an event may have said of it before
  }
  return out;
}

operation<entered> http_engine::do_enter(const request& ask, invocation how) {
  link_->saw_owner(ask.owner.sequence);
  question what;
  what.verb = "enter";
  what.name = ask.name;
  what.words = ask_to_enter(ask);
  const auto stream = link_->stream();
  const auto got = co_await link_->ask(what, how);
  auto out = read_answer_to(got, ask, stream);
  if (!out || out->what != entered::kind::granted) co_return out;
  if (!fits(out->granted, ask)) co_return strange(ask.name);
  out->granted.ttl = std::min(out->granted.ttl, ask.ttl);  // nobody asked to hold it for longer
  co_return out;
}

operation<entered> http_engine::do_settle(const request& ask, invocation how) {
  link_->saw_owner(ask.owner.sequence);
  question what;
  what.verb = "settle";
  what.name = ask.name;
  what.words = ask_about(ask.name, ask.owner);
  if (ask.replaces != nullptr) what.words.add("replaces", ask.replaces->owner.sequence);
  const auto stream = link_->stream();
  const auto got = co_await link_->ask(what, how);
  co_return read_answer_to(got, ask, stream);
}

operation<void> http_engine::do_leave(const ticket& place, invocation how) {
  question what;
  what.verb = "leave";
  what.name = place.name;
  what.words = ask_about(place.name, place.owner);
  if (place.replacing) what.words.add("replacing", true);
  const auto got = co_await link_->ask(what, how);
  if (!got) co_return got.error();
  if (!place.replacing) ended(place.owner);
  co_return result<void>{};
}

// On its way before this suspends: what is asked about the same name afterwards stands behind it.
operation<void> http_engine::do_release(const grant& held, invocation how) {
  question what;
  what.verb = "release";
  what.name = held.name;
  what.words = ask_about(held.name, held.owner);
  what.at_once = true;
  const auto got = co_await link_->ask(what, how);
  if (!got) co_return got.error();
  ended(held.owner);
  co_return result<void>{};
}

operation<grant> http_engine::do_downgrade(const grant& held, lock_mode to, invocation how) {
  question what;
  what.verb = "downgrade";
  what.name = held.name;
  what.words = ask_about(held.name, held.owner);
  what.words.add("to", to_string(to));
  const auto got = co_await link_->ask(what, how);
  if (!got) co_return got.error();
  const auto inner = got->words.object("grant");
  const auto now = inner ? read_grant(*inner) : std::nullopt;
  if (!now || now->owner != held.owner.sequence || now->mode != to) co_return strange(held.name);
  co_return read_grant_of(*got, *now, held.name);
}

operation<std::vector<grant>> http_engine::do_enter_all(std::span<const request> asks,
                                                        invocation how) {
  std::vector<std::string> each;
  std::size_t bytes = 0;
  for (const auto& ask : asks) {
    link_->saw_owner(ask.owner.sequence);
    bytes += each.emplace_back(ask_to_enter(ask).text()).size() + 1;
  }
  if (bytes > longest_body) co_return std::vector<grant>{};
  question what;
  what.verb = "enter_all";
  what.name = asks.front().name;
  what.words.add_json("asks", array_of(each));
  const auto got = co_await link_->ask(what, how);
  if (!got) co_return got.error();
  const auto said = got->words.objects("grants");
  if (!said || (!said->empty() && said->size() != asks.size())) co_return strange(what.name);
  std::vector<grant> out;
  for (std::size_t i = 0; i < said->size(); ++i) {
    const auto one = read_grant((*said)[i]);
    if (!one || one->owner != asks[i].owner.sequence || !fits(*one, asks[i]))
      co_return strange(asks[i].name);
    out.push_back(read_grant_of(*got, *one, asks[i].name));
  }
  co_return out;
}

// ---- renewal

operation<session_proof> http_engine::do_renew(std::span<renewal> batch, invocation how) {
  return renew_all(batch, true, how);
}

void http_engine::start_renew(std::span<renewal> batch, const call& limits,
                              completion<session_proof>& done) noexcept {
  renew_all(batch, false, {limits, false}).start(done);
}

// A part that fails costs only its own grants their verdicts.
operation<session_proof> http_engine::renew_all(std::span<renewal> batch, bool must_ask,
                                                invocation how) {
  if (batch.empty()) co_return co_await renew_some(batch, must_ask, how);
  std::optional<result<session_proof>> out;
  for (std::size_t at = 0; at < batch.size(); at += leases_at_once) {
    const auto part = batch.subspan(at, std::min(leases_at_once, batch.size() - at));
    auto proof = co_await renew_some(part, must_ask, how);
    if (proof || !out) out = std::move(proof);
    if (!*out) break;
  }
  co_return std::move(*out);
}

operation<session_proof> http_engine::renew_some(std::span<renewal> batch, bool must_ask,
                                                 invocation how) {
  std::vector<std::string> leases;
  for (const auto& one : batch) {
    auto words = ask_about(one.held->name, one.held->owner);
    if (must_ask || one.must_ask) words.add("must_ask", true);
    leases.push_back(words.text());
  }
  question what;
  what.verb = "renew";
  what.over = line::control;
  what.repeats = true;
  what.words.add_json("leases", array_of(leases));
  const auto got = co_await link_->ask(what, how);
  if (!got) co_return got.error();
  const auto said = got->words.objects("leases");
  if (!said || said->size() != batch.size())
    co_return error{
        errc::protocol,
        fmt::format("{} did not answer for each lease that it was asked about.", how_.url)};
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const auto& one = (*said)[i];
    const auto verdict = one.text("verdict");
    const auto age = one.length("age_ns");
    batch[i].answer = renewal::verdict::unknown;
    if (verdict == "lost") batch[i].answer = renewal::verdict::lost;
    if (verdict != "held" || !age) continue;
    const auto proof = read_proof(one);
    batch[i].answer = renewal::verdict::held;
    batch[i].valid_from = before(got->sent, *age);
    batch[i].session = link_->proof(got->session, proof, before(got->sent, proof.age));
  }
  const auto proof = read_proof(got->words);
  co_return link_->proof(got->session, proof, before(got->sent, proof.age));
}

}  // namespace holdfast::engines::http
