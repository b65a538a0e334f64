// Renewals and presence of the native layout; native.hpp says why there are two.
#include "engines/redis/native.hpp"

#include <algorithm>
#include <charconv>

namespace holdfast::engines::redis {

namespace {

using std::chrono::milliseconds;

std::int64_t ns(steady_time t) { return nanoseconds{t.time_since_epoch()}.count(); }
steady_time instant(std::int64_t ns) { return steady_time{nanoseconds{ns}}; }

// The whole ttl, less what two clocks may differ.
nanoseconds trusted(nanoseconds ttl, unsigned ppm) {
  return ttl - ttl / 1'000'000 * static_cast<std::int64_t>(ppm);
}

}  // namespace

// ---- what to believe

nanoseconds native::believed_ttl(nanoseconds ttl) const {
  return how_.grace > nanoseconds::zero() ? std::min(ttl, how_.grace) : ttl;
}

// Two ends bound a grant: that of its ttl, and the grace after the last proof of presence. The earlier one counts.
steady_time native::believed_from(steady_time from, nanoseconds ttl) const {
  if (how_.grace == nanoseconds::zero()) return from;
  const auto believed = believed_ttl(ttl);
  const auto by_ttl = believed == ttl ? from + ttl : from + trusted(ttl, caps_.drift_ppm);
  const auto by_presence = instant(present_at_.load(std::memory_order_relaxed)) + how_.grace;
  return std::min(by_ttl, by_presence) - believed;
}

grant native::believed(std::string_view name, const owner_id& owner, lock_mode mode,
                       std::uint64_t weight, fencing_token token, steady_time from,
                       nanoseconds ttl) const {
  grant out;
  out.name = name;
  out.owner = owner;
  out.mode = mode;
  out.weight = weight;
  out.token = token;
  out.valid_from = believed_from(from, ttl);
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

// ---- presence

bool native::is_present(steady_time now) const noexcept {
  return how_.grace == nanoseconds::zero() ||
         now - instant(present_at_.load(std::memory_order_relaxed)) < how_.grace / 2;
}

void native::note_server_time(std::int64_t server_us, steady_time sent) noexcept {
  server_offset_.store(ns(sent) - server_us * 1000, std::memory_order_relaxed);
}

void native::rise_presence(steady_time to) noexcept {
  const auto value = ns(to);
  auto now = present_at_.load(std::memory_order_relaxed);
  while (now < value && !present_at_.compare_exchange_weak(now, value, std::memory_order_relaxed)) {
  }
}

command native::time_command() const { return command{"TIME"}; }

// An answer to TIME on the stream: we were listening when it was sent, and know the server's clock.
result<void> native::note_presence(const result<answer>& got, steady_time sent) {
  if (!got) return got.error();
  const auto& time = got->values.front().items;
  if (time.size() != 2) return unexpected_reply({}, how_.url);
  std::int64_t seconds = 0, micros = 0;
  const auto read = [](std::string_view text, std::int64_t& into) {
    std::from_chars(text.data(), text.data() + text.size(), into);
  };
  read(time[0].text, seconds);
  read(time[1].text, micros);
  note_server_time(seconds * 1'000'000 + micros, sent);
  rise_presence(sent);
  return {};
}

result<void> native::prove_presence(const call& limits, std::string_view for_lock) {
  auto what = time_command();
  const auto sent = clock_.now();
  return note_presence(link_->run(link_->stream(), what, limits, for_lock), sent);
}

// ---- renewal

// Core renews every grant within the grace; the store is asked for those that have used up a third of their real ttl.
// Those that are half-way to it go along, so that all fall into step and cost one command per ttl/3. Those from before
// this connection are asked for at once.
std::vector<std::size_t> native::due_for_renewal(std::span<const renewal> batch, steady_time now) {
  std::vector<std::size_t> due;
  bool must = false;
  const std::lock_guard lock{renewed_guard_};
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const auto& held = *batch[i].held;
    const auto known = renewed_at_.find(held.owner.sequence);
    const auto [granted, ttl] = unpack(held.handle);
    const auto last = known == renewed_at_.end() ? granted : known->second;
    const auto age = now - last;
    const bool at_once = believed_ttl(ttl) == ttl || last < up_since_.load();  // or as core says
    if (at_once || age >= ttl / 6) due.push_back(i);
    must = must || at_once || age >= ttl / 3;
  }
  if (!must) due.clear();
  return due;
}

command native::renew_command(std::span<const renewal> batch,
                              const std::vector<std::size_t>& due) const {
  auto out = time_command();
  if (due.empty()) return out;
  command renews{scripts::renew(), due.size() + 1, 2 * due.size()};
  renews << how_.prefix + "t";
  for (const auto i : due) renews << key('l', batch[i].held->name);
  for (const auto i : due)
    renews << owner_text(batch[i].held->owner) << unpack(batch[i].held->handle).ttl.count();
  renews.before(out);
  return renews;
}

result<void> native::renew(std::span<renewal> batch, const call& limits) {
  const auto sent = clock_.now();
  const auto due = due_for_renewal(batch, sent);
  auto what = renew_command(batch, due);
  return conclude_renewal(batch, due, link_->run(link_->stream(), what, limits, {}), sent);
}

void native::start_renew(std::span<renewal> batch, const call& limits,
                         completion<void>& done) noexcept {
  const auto sent = clock_.now();
  auto due = due_for_renewal(batch, sent);
  auto what = renew_command(batch, due);
  link_->post(link_->stream(), std::move(what), limits, {},
              [this, batch, due = std::move(due), &done, sent](const result<answer>& got) {
                done.complete(conclude_renewal(batch, due, got, sent));
              });
}

result<void> native::conclude_renewal(std::span<renewal> batch, const std::vector<std::size_t>& due,
                                      const result<answer>& got, steady_time sent) {
  if (auto there = note_presence(got, sent); !there) return there;
  std::string_view verdicts;
  if (!due.empty()) {
    verdicts = got->values.back().text;
    if (got->values.size() != 2 || verdicts.size() != due.size())
      return unexpected_reply(batch.front().held->name, how_.url);
  }
  const std::lock_guard lock{renewed_guard_};
  for (std::size_t i = 0; i < due.size(); ++i) {
    auto& one = batch[due[i]];
    const auto sequence = one.held->owner.sequence;
    if (verdicts[i] == '1') {
      renewed_at_[sequence] = sent;
    } else {
      renewed_at_.erase(sequence);
      one.answer = renewal::verdict::lost;
    }
  }
  for (auto& one : batch) {
    if (one.answer == renewal::verdict::lost) continue;
    const auto known = renewed_at_.find(one.held->owner.sequence);
    const auto [granted, ttl] = unpack(one.held->handle);
    one.answer = renewal::verdict::held;
    one.valid_from = believed_from(known == renewed_at_.end() ? granted : known->second, ttl);
  }
  // What is no longer renewed is no longer held.
  if (renewed_at_.size() > 2 * batch.size() + 64)
    std::erase_if(renewed_at_, [&](const auto& one) {
      return sent - one.second > std::chrono::minutes{1} &&
             std::ranges::none_of(
                 batch, [&](const renewal& r) { return r.held->owner.sequence == one.first; });
    });
  return {};
}

}  // namespace holdfast::engines::redis
