// Renewals and presence of the native layout; native.hpp says why there are two.
#include "engines/redis/native.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

namespace holdfast::engines::redis {

namespace {

using std::chrono::milliseconds;

constexpr std::size_t most_per_script = 128;
constexpr std::size_t presence_answers = 2;

std::int64_t ns(steady_time t) { return nanoseconds{t.time_since_epoch()}.count(); }

// The whole ttl, less what two clocks may differ.
nanoseconds trusted(nanoseconds ttl, unsigned ppm) {
  return ttl - ttl / 1'000'000 * static_cast<std::int64_t>(ppm);
}

}  // namespace

// ---- what to believe

// Core renews at a third of the ttl that we report. A third of the grace would be too late: a server that then stands
// still for two thirds of it would cost the lease. So more is reported, and counted from earlier: the end is the same
// (see believed_from), and renewals come every ninth of the grace, so that a pause of five sixths of it is survived.
nanoseconds native::believed_ttl(nanoseconds ttl) const {
  return how_.grace > nanoseconds::zero() ? std::min(ttl, how_.grace + how_.grace / 3) : ttl;
}

// Two ends bound a grant: that of its ttl, and the grace after the last proof of the session on which it counts. The
// earlier one counts.
steady_time native::believed_from(steady_time from, nanoseconds ttl, std::uint64_t session) const {
  if (how_.grace == nanoseconds::zero()) return from;
  const auto believed = believed_ttl(ttl);
  const auto by_ttl = believed == ttl ? from + ttl : from + trusted(ttl, caps_.drift_ppm);
  return std::min(by_ttl, belief_.proven_at(session) + how_.grace) - believed;
}

grant native::believed(std::string_view name, const owner_id& owner, lock_mode mode,
                       std::uint64_t weight, fencing_token token, steady_time from, nanoseconds ttl,
                       std::uint64_t session) const {
  grant out;
  out.name = name;
  out.owner = owner;
  out.mode = mode;
  out.weight = weight;
  out.token = token;
  out.valid_from = believed_from(from, ttl, session);
  out.ttl = believed_ttl(ttl);
  out.handle = pack({from, std::chrono::ceil<milliseconds>(ttl)});
  return out;
}

// 32 bits of milliseconds are 49 days, which is why no ttl is longer; 32 bits of steps of 16 ms are two years of our
// own
// life. Rounded towards the past, and a longer life makes a grant look older than it is: it is renewed too early.
std::uint64_t native::pack(const real_term& term) const {
  const auto since = std::max<nanoseconds>(term.from - born_, nanoseconds::zero());
  const auto steps = static_cast<std::uint64_t>(since / milliseconds{16}) & 0xffffffffU;
  return steps << 32U | (static_cast<std::uint64_t>(term.ttl.count()) & 0xffffffffU);
}

native::real_term native::unpack(std::uint64_t handle) const {
  return {born_ + milliseconds{16} * static_cast<std::int64_t>(handle >> 32U),
          milliseconds{static_cast<std::int64_t>(handle & 0xffffffffU)}};
}

native::real_term native::term_of(const grant& held) const {
  const auto known = renewed_.find(held.owner.sequence);
  return known == renewed_.end() ? unpack(held.handle) : known->second;
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

// The second one is for its error: a server that has become a replica answers TIME as before, but by then another one
// gives the locks away, and nobody listens there. What else refuses a DEL does not matter.
command native::presence_command() const {
  command out({"TIME"});
  out.then({"DEL", key('g', client_)});
  out.keep_errors();
  return out;
}

// An answer on the stream: we were listening when it was asked for, and know the server's clock.
result<void> native::note_presence(const result<answer>& got, steady_time sent,
                                   std::string_view for_lock) {
  if (!got) return got.error();
  const auto& first = got->values.front();
  if (first.is_error()) return reply_error(first.text, for_lock, how_.url);
  if (got->values.size() < presence_answers || first.items.size() != 2)
    return unexpected_reply(for_lock, how_.url);
  if (const auto& second = got->values[1]; is_replica(second))
    return reply_error(second.text, for_lock, how_.url);
  std::int64_t seconds = 0, micros = 0;
  const auto read = [](std::string_view text, std::int64_t& into) {
    std::from_chars(text.data(), text.data() + text.size(), into);
  };
  read(first.items[0].text, seconds);
  read(first.items[1].text, micros);
  note_server_time(seconds * 1'000'000 + micros, {sent, got->generation});
  if (got->generation != 0) belief_.proven(got->generation, sent, clock_.now());
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
    const auto sent = clock_.now();
    const auto got = co_await connections_->ask(connections_->stream(), what, for_lock, how);
    if (auto there = note_presence(got, sent, for_lock); !there) co_return not_sent(there.error());
  }
  if (is_present(clock_.now())) co_return result<void>{};
  co_return comes_and_goes(for_lock, how_.url);
}

// ---- renewal

// Core renews every grant within the grace; the store is asked for those that have used up a third of their real ttl.
// Those that are half-way to it go along, so that all fall into step and cost one command per ttl/3. Those from before
// this connection are asked for at once.
native::indices native::due_for_renewal(std::span<const renewal> batch, steady_time now) {
  indices due;
  bool must = false;
  const auto session = belief_.current();
  const std::lock_guard lock{renewed_guard_};
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const auto [last, ttl] = term_of(*batch[i].held);
    const auto age = now - last;
    const bool at_once = believed_ttl(ttl) == ttl || belief_.covering(last) != session;
    if (at_once || age >= ttl / 6) due.push_back(i);
    must = must || at_once || age >= ttl / 3;
  }
  if (!must) due.clear();
  return due;
}

// The presence first, then the scripts: so many grants each that the server can serve others in between.
command native::renew_command(std::span<const renewal> batch, const indices& due) const {
  auto presence = presence_command();
  std::optional<command> out;
  for (std::size_t at = 0; at < due.size(); at += most_per_script) {
    const auto some = std::span{due}.subspan(at, std::min(most_per_script, due.size() - at));
    command renews{scripts::renew(), some.size() + 1, 2 * some.size()};
    renews << how_.prefix + "t";
    for (const auto i : some) renews << key('l', batch[i].held->name);
    for (const auto i : some)
      renews << owner_text(batch[i].held->owner) << unpack(batch[i].held->handle).ttl.count();
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

// Proof: the store is asked about every grant.
operation<void> native::do_renew(std::span<renewal> batch, invocation how) {
  indices all(batch.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return renew_due(batch, std::move(all), how);
}

void native::start_renew(std::span<renewal> batch, const call& limits,
                         completion<void>& done) noexcept {
  renew_due(batch, due_for_renewal(batch, clock_.now()), {limits, false}).start(done);
}

operation<void> native::renew_due(std::span<renewal> batch, indices due, invocation how) {
  auto what = renew_command(batch, due);
  const auto sent = clock_.now();
  const auto got = co_await connections_->ask(connections_->stream(), what, {}, how);
  co_return conclude_renewal(batch, due, got, sent);
}

result<void> native::conclude_renewal(std::span<renewal> batch, const indices& due,
                                      const result<answer>& got, steady_time sent) {
  if (auto there = note_presence(got, sent); !there) return there;
  conclude_asked(batch, due, *got, sent);
  conclude_unasked(batch, due, got->generation);
  const std::lock_guard lock{renewed_guard_};
  if (renewed_.size() > 2 * batch.size() + 64)
    std::erase_if(renewed_, [sent](const auto& one) {
      return one.second.from + one.second.ttl < sent;  // not renewed for a ttl is not held any more
    });
  return {};
}

// Whoever was asked about counts on the session that answered. A script that was refused costs only its own grants.
void native::conclude_asked(std::span<renewal> batch, const indices& due, const answer& got,
                            steady_time sent) {
  const std::lock_guard lock{renewed_guard_};
  for (std::size_t i = 0; i < due.size(); ++i) {
    auto& one = batch[due[i]];
    const auto script = presence_answers + i / most_per_script;
    const auto verdicts = script < got.values.size() && !got.values[script].is_error()
                              ? got.values[script].text
                              : std::string_view{};
    const auto verdict =
        i % most_per_script < verdicts.size() ? verdicts[i % most_per_script] : '?';
    const auto sequence = one.held->owner.sequence;
    one.answer = renewal::verdict::unknown;
    if (verdict == '1') {
      const auto ttl = unpack(one.held->handle).ttl;
      renewed_[sequence] = {sent, ttl};
      one.answer = renewal::verdict::held;
      one.valid_from = believed_from(sent, ttl, got.generation);
    } else if (verdict == '0') {
      renewed_.erase(sequence);
      one.answer = renewal::verdict::lost;
    }
  }
}

// The others live by the session alone, if it is theirs: that it was proven is news to them.
void native::conclude_unasked(std::span<renewal> batch, const indices& due, std::uint64_t session) {
  if (due.size() == batch.size()) return;
  std::vector<bool> asked(batch.size());
  for (const auto i : due) asked[i] = true;
  const std::lock_guard lock{renewed_guard_};
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (asked[i]) continue;
    const auto [last, ttl] = term_of(*batch[i].held);
    const bool covered = session != 0 && belief_.covering(last) == session;
    batch[i].answer = covered ? renewal::verdict::held : renewal::verdict::unknown;
    batch[i].valid_from = believed_from(last, ttl, session);
  }
}

}  // namespace holdfast::engines::redis
