// Renewals and presence of the native layout; native.hpp says why there are two.
#include "engines/redis/native.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace holdfast::engines::redis {

namespace {

using std::chrono::milliseconds;

constexpr std::size_t presence_answers = 2;

std::int64_t ns(steady_time t) { return nanoseconds{t.time_since_epoch()}.count(); }

}  // namespace

grant native::make_grant(std::string_view name, const owner_id& owner, lock_mode mode,
                         std::uint64_t weight, fencing_token token, steady_time from,
                         nanoseconds ttl, std::uint64_t session) const {
  grant out;
  out.name = name;
  out.owner = owner;
  out.mode = mode;
  out.weight = weight;
  out.token = token;
  out.valid_from = from;
  out.ttl = ttl;
  out.session = {session, belief_.proven_at(session)};
  return out;
}

// ---- presence

bool native::is_present(steady_time now) const {
  return how_.grace == nanoseconds::zero() ||
         now - belief_.proven_at(belief_.current()) < how_.grace / 2;
}

void native::note_server_time(std::int64_t server_us, const sending& sent) noexcept {
  const std::lock_guard lock{offset_guard_};
  if (sent.session < offset_session_) return;  // a late answer of the server before
  offset_session_ = sent.session;
  server_offset_.store(ns(sent.at) - server_us * 1000, std::memory_order_relaxed);
}

// An instant of the server's clock in our time: never later than now, whatever its clock says. The beginning of time
// as long as we know nothing of that clock.
steady_time native::server_instant(std::int64_t server_us, std::uint64_t session,
                                   steady_time now) const {
  const std::lock_guard lock{offset_guard_};
  if (session == 0 || offset_session_ != session) return steady_time{};
  const auto offset = server_offset_.load(std::memory_order_relaxed);
  return std::min(now, steady_time{nanoseconds{server_us * 1000 + offset}});
}

// DEL is there for its error: a server that has become a replica answers TIME as before, but by then another server
// gives the locks away, and we do not listen there. A master from which its replicas are cut off refuses it, too, where
// min-replicas-to-write says so. With Sentinel that counts, because one of them may have been made the master; else
// what refuses a DEL does not matter.
command native::presence_command() const {
  command out({"TIME"});
  out.then({"DEL", client_key('g')});
  out.keep_errors();
  return out;
}

namespace {

// A server that has no memory left refuses SET, but judges a script by its first write, and refuses no DEL.
constexpr std::string_view something_new =
    "redis.call('DEL', KEYS[1]) return redis.call('SET', KEYS[1], '', 'PX', 60000)";
constexpr milliseconds longest_confirmation{1000};

}  // namespace

// Where a replica may become the master, what was proven or renewed must be there, too. WAIT asks about the last write:
// with Sentinel there is always one, also when nothing is renewed, so that a master which was cut off proves nothing.
std::size_t native::confirmations(bool renews) const {
  if (how_.wait_replicas == 0) return 0;
  if (how_.has_sentinels()) return 2;
  return how_.in_cluster && renews ? 1 : 0;
}

void native::confirm(command& what, bool renews) const {
  const auto answers = confirmations(renews);
  if (answers == 0) return;
  if (answers == 2) what.then({"EVAL", something_new, "1", client_key('a')});
  auto patience = std::min(how_.wait_timeout, longest_confirmation);
  if (how_.grace > nanoseconds::zero())
    patience = std::min(patience, std::chrono::floor<milliseconds>(how_.grace / 3));
  what.then({"WAIT", std::to_string(how_.wait_replicas), std::to_string(patience.count())});
  what.keep_errors();
}

// What the DEL, and the write that replicas should have, say of the server.
result<void> native::check_mastership(const answer& got, bool renews,
                                      std::string_view for_lock) const {
  const auto& refused = got.values[1];
  if (is_replica(refused) ||
      (how_.has_sentinels() && refused.is_error() && refused.text.starts_with("NOREPLICAS")))
    return reply_error(refused.text, for_lock, how_.url);
  const auto answers = confirmations(renews);
  if (answers == 0) return {};
  for (auto i = got.values.size() - answers; i < got.values.size(); ++i)
    if (got.values[i].is_error()) return reply_error(got.values[i].text, for_lock, how_.url);
  const auto confirmed = got.values.back().integer;
  if (confirmed >= how_.wait_replicas) return {};
  return error{errc::unavailable,
               fmt::format("{}: {} replica(s) follow the server, and wait_replicas={} must: it may "
                           "be cut off from a newer master.",
                           how_.url, confirmed, how_.wait_replicas)};
}

// An answer on the stream: we were listening when it was asked for, and know the server's clock.
result<void> native::note_presence(const result<answer>& got, steady_time sent, bool renews,
                                   std::string_view for_lock) {
  if (!got) return got.error();
  const auto& first = got->values.front();
  if (first.is_error()) return reply_error(first.text, for_lock, how_.url);
  if (got->values.size() < presence_answers + confirmations(renews) || first.items.size() != 2)
    return unexpected_reply(for_lock, how_.url);
  if (auto ok = check_mastership(*got, renews, for_lock); !ok) return ok;
  std::int64_t seconds = 0, micros = 0;
  const auto read = [](std::string_view text, std::int64_t& into) {
    std::from_chars(text.data(), text.data() + text.size(), into);
  };
  read(first.items[0].text, seconds);
  read(first.items[1].text, micros);
  note_server_time(seconds * 1'000'000 + micros, {sent, got->generation});
  if (got->generation != 0) belief_.proven(got->generation, sent);
  return {};
}

namespace {

// What was asked for was not sent, whatever became of the question about the presence.
error not_sent(const error& why) {
  return not_done{why.code() == errc::outcome_unknown ? errc::unavailable : why.code(),
                  why.message()};
}

error comes_and_goes(std::string_view name, std::string_view store) {
  return {errc::unavailable,
          fmt::format("Lock {} on {}: the connection for messages is lost again and again.",
                      support::quoted(name), store)};
}

constexpr int most_proofs = 3;  // a connection may be lost right after its answer

}  // namespace

operation<void> native::prove_presence(std::string_view for_lock, invocation how) {
  for (int i = 0; i < most_proofs; ++i) {
    if (has_presence()) co_return result<void>{};
    auto what = presence_command();
    confirm(what, false);
    const auto sent = clock_.now();
    const auto got = co_await connections_->ask(connections_->stream(), what, for_lock, how);
    if (auto there = note_presence(got, sent, false, for_lock); !there)
      co_return not_sent(there.error());
  }
  if (is_present(clock_.now())) co_return result<void>{};
  co_return comes_and_goes(for_lock, how_.url);
}

// ---- renewal

// The presence first, then the scripts: so many grants each that the server can serve others in between.
command native::renew_command(std::span<const renewal> batch) const {
  auto presence = presence_command();
  std::optional<command> out;
  const auto length = grants_per_script(how_);
  for (std::size_t at = 0; at < batch.size(); at += length) {
    const auto some = batch.subspan(at, std::min(length, batch.size() - at));
    command renews{scripts::renew(), some.size() + 1, 2 * some.size()};
    renews << token_key(some.front().held->name);
    for (const auto& asked : some) renews << key('l', asked.held->name);
    for (const auto& asked : some)
      renews << owner_text(asked.held->owner)
             << std::chrono::ceil<milliseconds>(asked.held->ttl).count();
    if (out) {
      out->then(renews);
    } else {
      out.emplace(std::move(renews));
    }
  }
  if (!out) return presence;
  out->before(presence);
  out->keep_errors();
  return std::move(*out);
}

// Over the connection that listens, so that the answer proves the session. A script that was refused costs only its own
// grants their verdicts.
operation<session_proof> native::do_renew(std::span<renewal> batch, invocation how) {
  auto what = renew_command(batch);
  confirm(what, !batch.empty());
  const auto sent = clock_.now();
  const auto got = co_await connections_->ask(connections_->stream(), what, {}, how);
  if (auto there = note_presence(got, sent, !batch.empty()); !there)
    co_return std::move(there).error();
  const session_proof proof{got->generation, sent};
  for (std::size_t i = 0; i < batch.size(); ++i) {
    batch[i].answer = renewal_verdict(*got, presence_answers, i, grants_per_script(how_));
    batch[i].valid_from = sent;
    batch[i].session = proof;
  }
  co_return proof;
}

}  // namespace holdfast::engines::redis
