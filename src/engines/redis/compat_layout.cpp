#include "engines/redis/compat_layout.hpp"

#include "engines/common/sentences.hpp"
#include "engines/common/server_clock.hpp"
#include "engines/redis/diagnose.hpp"
#include "engines/redis/slots.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace holdfast::engines::redis {

namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

constexpr nanoseconds between_looks = 50ms;

// Or may be, for all that the store knows.
bool is_in_use(const lock_info& seen) {
  if (!seen.free_permits) return !seen.holders.empty();
  return seen.capacity == 0 || *seen.free_permits != seen.capacity;
}

}  // namespace

compat_layout::compat_layout(const settings& how, const engine_config& config, capabilities caps)
    : how_(how), clock_(config.clock), caps_(std::move(caps)) {}

capabilities compat_layout::common_caps(const settings& how) {
  capabilities caps;
  caps.engine = fmt::format("{}, layout {}", store_kind(how), how.layout);
  caps.cross_process = true;
  caps.listing = !how.prefix.empty();
  caps.clock = expiry_clock::server;
  caps.fencing = fencing_strength::best_effort;
  caps.min_ttl = 20ms;
  caps.max_ttl = std::chrono::hours{24 * 365};
  caps.drift_ppm = server_drift_ppm;
  caps.margin = server_margin;
  caps.expiry_slack = 100ms;
  return caps;
}

result<void> compat_layout::connect(const std::function<void()>& prepare) {
  if (how_.prefix.size() > 64 || support::has_control(how_.prefix))
    return error{
        errc::misconfigured,
        fmt::format("The prefix in {} must have at most 64 bytes and no control characters.",
                    how_.url)};
  auto opened = connections::start(how_);
  if (!opened) return std::move(opened).error();
  connections_ = std::move(*opened);
  waits_ = std::make_unique<waits>(connections_->driver());
  if (prepare) prepare();
  connections::stream_setup stream;
  stream.listener = this;
  connections_->connect(false, stream, release_scripts());
  if (how_.in_cluster) return {};
  call soon;
  soon.deadline = std::chrono::steady_clock::now() + 5s;
  const auto there = connections_->run(connections_->of({}), {"PING"}, soon);
  if (there) return {};
  // Nothing was asked for yet, so nothing is unknown.
  if (there.error().code() != errc::outcome_unknown) return there.error();
  return error{errc::unavailable, there.error().message()};
}

void compat_layout::disconnect() noexcept {
  if (!connections_) return;
  ending_ = true;
  waits_->look_again_all();
  connections_->drain();
  connections_.reset();
}

error compat_layout::unsupported(std::string_view name, std::string_view what) const {
  return {errc::unsupported, fmt::format("Lock {} on {}: the layout {} has no {}.",
                                         support::quoted(name), how_.url, how_.layout, what)};
}

error compat_layout::cannot_list(std::string_view one, std::string_view all) const {
  return {errc::unsupported,
          fmt::format("{} cannot list its {}: without a prefix they look like any other key. Give "
                      "a prefix with ?prefix=, or name one {}.",
                      how_.url, all, one)};
}

std::string shown_owner(std::string_view written) {
  constexpr std::size_t longest = 64;
  if (!written.empty() && written.size() <= longest && support::is_utf8(written) &&
      !support::has_control(written))
    return std::string{written};
  return support::quoted(written, longest);
}

// ---- what is delivered late

namespace {

constexpr std::string_view mark_word = ":holdfast-over:";

// What the layout keeps beside the locks.
bool is_our_own(std::string_view name) {
  return name == token_counter || name.find(mark_word) != std::string_view::npos ||
         name.ends_with(std::string{"}:"}.append(token_counter));
}

}  // namespace

std::string compat_layout::mark_key(std::string_view name, const owner_id& owner) const {
  if (how_.in_cluster) return after(name, mark_word.substr(1)).append(to_string(owner));
  return key(name).append(mark_word).append(to_string(owner));
}

std::string compat_layout::after(std::string_view name, std::string_view suffix) const {
  const auto full = key(name);
  return full.find('{') == std::string::npos ? fmt::format("{{{}}}:{}", full, suffix)
                                             : fmt::format("{}:{}", full, suffix);
}

// First the mark, then what ends the owner: from the first on no request of it has an effect. A server that has no
// memory left refuses SET, but judges a script by its first write, and refuses no DEL.
command compat_layout::marked(command what, std::string_view name, const owner_id& owner) const {
  what.before(command(
      {"EVAL", "redis.call('DEL', KEYS[1]) return redis.call('SET', KEYS[1], '', 'PX', ARGV[1])",
       "1", mark_key(name, owner), std::to_string(late_requests::mark_kept.count())}));
  what.keep_errors();
  return what;
}

command compat_layout::marked_in_doubt(command what, std::string_view name,
                                       const owner_id& owner) const {
  return late_requests_.has(owner) ? marked(std::move(what), name, owner) : what;
}

// The answer to what ends an owner is the last one. Without the mark a late request may still have an effect: core then
// settles, which makes the mark or says that it cannot.
result<void> compat_layout::read_ended(const result<answer>& got, std::string_view name,
                                       const owner_id& owner) {
  if (!got) return got.error();
  if (got->values.back().is_error()) return connections_->refusal(got->values.back().text, name);
  if (const auto& mark = got->values.front(); mark.is_error())
    return error{errc::outcome_unknown, reply_error(mark.text, name, how_.url).message()};
  late_requests_.forget(owner);
  return {};
}

// A brace that closes nothing: what is kept beside the lock would be in another slot.
result<void> compat_layout::check_slot(std::string_view name) const {
  if (!how_.in_cluster || slot_of(key(name)) == slot_of(after(name, mark_word))) return {};
  return not_done{errc::misconfigured,
                  fmt::format("Lock {} on {}: on a cluster a brace in a name must have text and a "
                              "closing brace behind it, as in {{order-7}}/stock; choose another.",
                              support::quoted(name), how_.url)};
}

// ---- asking

result<entered> compat_layout::read_entered(const result<answer>& got, const request& ask,
                                            steady_time sent, std::uint64_t heard) {
  late_requests_.note(ask.owner, got);
  if (!got) return got.error();
  const auto& items = got->values.back().items;
  if (items.size() < 2) return unexpected_reply(ask.name, how_.url);
  entered out;
  if (number_in(items[0]) == 1) {
    if (items.size() < 3) return unexpected_reply(ask.name, how_.url);
    const auto left = milliseconds{number_in(items[2])};
    const auto ttl = ask.ttl > nanoseconds::zero() ? ask.ttl : nanoseconds{left};
    out.what = entered::kind::granted;
    out.granted.name = ask.name;
    out.granted.owner = ask.owner;
    const bool permits = items.size() > 3;  // settle asks whatever the mode
    out.granted.mode = permits ? lock_mode::permits : ask.mode;
    out.granted.weight = permits ? static_cast<std::uint64_t>(number_in(items[3])) : ask.weight;
    out.granted.token.value = static_cast<std::uint64_t>(number_in(items[1]));
    out.granted.valid_from = sent + std::min<nanoseconds>(left, ttl) - ttl;
    out.granted.ttl = ttl;
    note_granted(ask);
  } else if (ask.wait) {
    const auto left = milliseconds{number_in(items[1])};
    out.what = entered::kind::waiting;
    out.waiting = ticket{ask.name, ask.owner, heard};
    out.waiting.recheck_at =
        clock_.now() + patience(left.count() < 0 ? std::nullopt : std::optional{left});
  }
  return out;
}

operation<entered> compat_layout::do_enter(const request& ask, invocation how) {
  if (auto ok = check(ask); !ok) co_return std::move(ok).error();
  if (auto ok = check_slot(ask.name); !ok) co_return std::move(ok).error();
  const auto before = messages_before(ask);
  const auto sent = clock_.now();  // first: one recipe writes down a time of its own
  auto what = enter_command(ask);
  const auto got = co_await connections_->ask(connections_->of(ask.name), what, ask.name, how);
  co_return read_entered(got, ask, sent, before);
}

// A waiter leaves nothing in the store, so what is not granted is not known there. Without the mark there is no
// answer: a late request could still take the lock.
result<entered> compat_layout::read_settled(const result<answer>& got, const request& ask,
                                            steady_time sent) {
  if (got)
    for (const auto& reply : got->values)
      if (reply.is_error()) return reply_error(reply.text, ask.name, how_.url);
  auto out = read_entered(got, ask, sent, 0);
  if (out) late_requests_.forget(ask.owner);
  if (out && out->what == entered::kind::waiting) out->what = entered::kind::busy;
  return out;
}

operation<entered> compat_layout::do_settle(const request& ask, invocation how) {
  const auto sent = clock_.now();
  auto what = marked(settle_command(ask), ask.name, ask.owner);
  const auto got = co_await connections_->ask(connections_->of(ask.name), what, ask.name, how);
  co_return read_settled(got, ask, sent);
}

operation<void> compat_layout::do_leave(const ticket& place, invocation how) {
  auto leaves = leave_command(place);
  if (!leaves) co_return result<void>{};
  auto what = marked_in_doubt(std::move(*leaves), place.name, place.owner);
  auto& over = connections_->of(place.name);
  const auto master = connections_->master();
  const auto got = co_await connections_->ask(over, what, place.name, how);
  auto outcome = read_ended(got, place.name, place.owner);
  if (outcome) connections_->note_end(master, over, std::move(what));
  co_return std::move(outcome);
}

// ---- keeping and giving back

result<void> compat_layout::read_released(const result<answer>& got, const grant& held) {
  auto outcome = read_ended(got, held.name, held.owner);
  if (outcome && number_in(got->values.back()) != 1)
    outcome = lock_not_held(held.name, how_.url, held.owner);
  note_released(held, outcome);
  return outcome;
}

// On its way before this suspends: what is asked about the same name afterwards stands behind it on the same
// connection.
operation<void> compat_layout::do_release(const grant& held, invocation how) {
  auto what = marked_in_doubt(release_command(held), held.name, held.owner);
  auto& over = connections_->of(held.name);
  const auto master = connections_->master();
  const auto got = co_await connections_->ask(over, what, held.name, how, connections::sends::now);
  if (got && names_owner(held)) connections_->note_end(master, over, std::move(what));
  co_return read_released(got, held);
}

command compat_layout::renew_in_parts(std::span<const renewal> batch) const {
  const auto length = grants_per_script(how_);
  auto out = renew_command(batch.first(std::min(length, batch.size())));
  for (auto at = length; at < batch.size(); at += length)
    out.then(renew_command(batch.subspan(at, std::min(length, batch.size() - at))));
  out.keep_errors();
  return out;
}

operation<session_proof> compat_layout::do_renew(std::span<renewal> batch, invocation how) {
  const auto sent = clock_.now();
  auto what = renew_in_parts(batch);
  const auto got = co_await connections_->ask(connections_->stream(), what, {}, how);
  if (!got) co_return got.error();
  const auto& first = got->values.front();
  if (got->values.size() == 1 && first.is_error())
    co_return connections_->refusal(first.text, batch.empty() ? "" : batch.front().held->name);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    batch[i].answer = renewal_verdict(*got, 0, i, grants_per_script(how_));
    batch[i].valid_from = sent;
  }
  co_return session_proof{};  // there is none
}

operation<grant> compat_layout::do_downgrade(const grant& held, lock_mode, invocation) {
  co_return unsupported(held.name, "readers, so there is nothing to downgrade to");
}

// ---- operators

operation<lock_info> compat_layout::do_inspect(std::string_view name, invocation how) {
  auto what = inspect_command(name);
  const auto got = co_await connections_->ask(connections_->of(name), what, name, how);
  if (!got) co_return got.error();
  co_return read_info(got->values.front(), name);
}

result<std::vector<finding>> compat_layout::diagnose(const call& limits) {
  return redis::diagnose(*connections_, how_, limits);
}

operation<std::vector<lock_info>> compat_layout::do_list(std::string_view prefix, std::size_t limit,
                                                         invocation how) {
  if (!caps_.listing) co_return cannot_list("lock", "locks");
  auto names = co_await connections_->scan(how_.prefix, prefix, how);
  if (!names) co_return std::move(names).error();
  std::vector<lock_info> out;
  for (const auto& name : *names) {
    if (out.size() >= limit) break;
    if (is_our_own(name)) continue;
    auto info = co_await do_inspect(name, how);
    // Something else may have the prefix, too.
    if (!info && info.error().code() == errc::misconfigured) continue;
    if (!info) co_return std::move(info).error();
    if (is_in_use(*info)) out.push_back(std::move(*info));
  }
  co_return out;
}

operation<std::size_t> compat_layout::do_revoke(std::string_view name, invocation how) {
  if (is_our_own(name))
    co_return error{errc::misconfigured,
                    fmt::format("{} on {} is no lock but what the layout itself keeps.",
                                support::quoted(name), how_.url)};
  auto what = revoke_command(name);
  const auto got = co_await connections_->ask(connections_->of(name), what, name, how);
  if (!got) co_return got.error();
  co_return static_cast<std::size_t>(number_in(got->values.front()));
}

// ---- counters and watching

operation<counter> compat_layout::do_count(const counter_request& ask, invocation) {
  co_return unsupported(ask.name, "counters");
}

operation<std::vector<counter_info>> compat_layout::do_list_counters(std::string_view, std::size_t,
                                                                     invocation) {
  co_return error{errc::unsupported,
                  fmt::format("{} has no latches: the layout {} has no counters. Use the layout "
                              "native or redisson for them.",
                              how_.url, how_.layout)};
}

std::uint64_t compat_layout::messages_so_far(watch_kind, std::string_view) const { return 0; }

void compat_layout::look(watch_kind, std::string_view name, const call& limits, on_version done) {
  connections_->post(connections_->of(name), inspect_command(name), limits, name,
                     [this, name, done = std::move(done)](const result<answer>& got) {
                       if (!got) return done(got.error());
                       done(read_info(got->values.front(), name).version);
                     });
}

void compat_layout::wait_for_change(watch_kind, std::string_view, std::uint64_t, const call& limits,
                                    on_wait_over done) {
  call until = limits;
  until.deadline = std::min(limits.deadline, std::chrono::steady_clock::now() + between_looks);
  waits_->for_change({}, until,
                     [done = std::move(done)](const std::optional<pushed_grant>&) { done({}); });
}

class compat_layout::watching {
 public:
  watching(compat_layout& in, watch_kind kind, std::string_view name, std::uint64_t seen,
           const call& limits, completion<void>& done)
      : in_(in), kind_(kind), name_(name), seen_(seen), limits_(limits), done_(done) {}

  void look() {
    if (is_over()) return finish({});
    messages_ = in_.messages_so_far(kind_, name_);
    call until = limits_;
    until.deadline = std::min(limits_.deadline, in_.clock_.local().now() + 5s);
    in_.look(kind_, name_, until,
             [this](const result<std::uint64_t>& version) { looked(version); });
  }

 private:
  bool is_over() const {
    return in_.ending_ || limits_.stop.stop_requested() ||
           in_.clock_.local().now() >= limits_.deadline;
  }
  void looked(const result<std::uint64_t>& version) {
    if (is_over() || (version && *version != seen_)) return finish({});
    // No answer to a question that changes nothing: it is asked again.
    if (!version && version.error().code() != errc::outcome_unknown) return finish(version.error());
    in_.wait_for_change(kind_, name_, messages_, limits_, [this](const result<void>& waited) {
      if (!waited) return finish(waited.error());
      look();
    });
  }
  void finish(result<void> outcome) {
    auto& done = done_;
    delete this;
    done.complete(std::move(outcome));
  }

  compat_layout& in_;
  const watch_kind kind_;
  const std::string_view name_;
  const std::uint64_t seen_;
  const call& limits_;
  completion<void>& done_;
  std::uint64_t messages_ = 0;
};

void compat_layout::start_watch(watch_kind kind, std::string_view name, std::uint64_t seen,
                                const call& limits, completion<void>& done) noexcept {
  if (kind == watch_kind::counter && !caps_.counters)
    return done.complete(unsupported(name, "counters"));
  (new watching{*this, kind, name, seen, limits, done})->look();
}

}  // namespace holdfast::engines::redis
