#include "engines/redis/native.hpp"

#include "engines/common/server_clock.hpp"
#include "engines/redis/slots.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace holdfast::engines::redis {

namespace {

using namespace std::chrono_literals;
using resp::value;

std::string limits_of(const settings& how) {
  if (how.grace > 0ns)
    return fmt::format(
        "A client whose connection is gone for {} loses its locks, so a lease is never believed "
        "for longer than that after the server last answered: a pause or a network fault of that "
        "length costs the lease. ?grace=0 turns this off, and then a dead holder is noticed after "
        "its ttl.",
        format_duration(how.grace));
  if (how.is_cluster())
    return "Dead holders are noticed after their ttl. Several locks are taken in one step only "
           "where their names have one slot: name them with the same text between braces. While a "
           "slot is being moved to another node its locks are unavailable; leases that end before "
           "it has arrived are lost.";
  return "Dead holders are noticed after their ttl (?grace=0).";
}

capabilities describe(const settings& how) {
  capabilities caps;
  caps.engine = store_kind(how);
  caps.fifo = caps.priorities = caps.shared = caps.upgrade = caps.permits = true;
  caps.counters = caps.observe = caps.listing = caps.atomic_multi = caps.cross_process = true;
  caps.wakeup = wakeup_kind::push;
  caps.clock = expiry_clock::server;
  caps.token = token_origin::server_time;
  caps.fencing = fencing_strength::best_effort;
  caps.min_ttl = 20ms;
  caps.max_ttl = std::chrono::hours{24 * 30};
  caps.drift_ppm = server_drift_ppm;
  caps.margin = server_margin;
  caps.expiry_slack = 50ms;
  if (how.grace > 0ns) {
    caps.dead_holder_bound = how.grace + how.grace / 4 + 250ms;
    caps.longest_validity = how.grace;
    caps.validity_setting =
        fmt::format("grace={} in the store's address", format_duration(how.grace));
  }
  caps.exclusion =
      "While the server keeps its data and its clock neither jumps nor runs more than 1 % apart "
      "from ours. A server that loses data (restart without persistence, eviction, fail-over to a "
      "replica that lagged) may grant a lock twice; the tokens tell the two apart.";
  if (how.wait_replicas > 0)
    caps.exclusion +=
        fmt::format(" A grant counts only once {} replica(s) have it.", how.wait_replicas);
  caps.exclusion += failover_words(how);
  caps.token_scope =
      "Strictly rising over all names, above the server's clock in microseconds whenever a "
      "connection begins: also after a restart without data, as long as the clock goes forward.";
  if (how.is_cluster())
    caps.token_scope =
        "Strictly rising over all names of a slot, each above the server's clock in microseconds: "
        "also after a restart without data or a fail-over, as long as the clock goes forward and "
        "that of the next master is not behind.";
  caps.limits = limits_of(how);
  caps.limits +=
      " A request that was given up and is delivered within ten minutes has no effect; one that a "
      "proxy delivers still later may take the lock for the length of its ttl.";
  return caps;
}

std::string one_word(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char c) { return c <= ' ' || c == 0x7f; }, '_');
  return text.empty() ? "-" : text.substr(0, 64);
}

}  // namespace

native::native(const settings& how, const engine_config& config)
    : how_(how),
      clock_(config.clock),
      listener_(config.listener),
      client_(to_string(owner_id{config.client, 0}).substr(0, 32)),
      host_and_pid_(fmt::format("{} {} ", one_word(config.host), config.pid)),
      caps_(describe(how)) {
  if (how_.in_cluster) tags_ = how_.in_cluster->tags;
}

result<std::unique_ptr<cluster_part>> native::open(const settings& how,
                                                   const engine_config& config) {
  if (how.prefix.empty() || how.prefix.size() > 64 || support::has_control(how.prefix))
    return error{errc::misconfigured,
                 fmt::format("The prefix in {} must have 1 to 64 bytes and no control characters.",
                             how.url)};
  std::unique_ptr<native> self{new native{how, config}};
  // First listen, then say that we are not gone: from then on no waiter can find us absent without it being true.
  connections::stream_setup stream;
  stream.listener = self.get();
  if (how.in_cluster) {
    stream.make_commands = [&made = *self] { return made.listening(); };
    stream.replies = 1;
    stream.ready = {
        &scripts::
            renew()};  // one per lock: the first may be refused before the server has learnt it
  } else {
    stream.topic = self->client_key('c');
    resp::append_command(stream.commands, {"SUBSCRIBE", stream.topic});
    resp::append_command(stream.commands, {"DEL", self->client_key('g')});
    stream.replies = 1;
  }
  auto opened = connections::start(how);
  if (!opened) return std::move(opened).error();
  self->connections_ = std::move(*opened);
  self->waits_ = std::make_shared<waits>(self->connections_->driver());
  std::vector ready{&scripts::release()};
  // The WAIT behind an enter that is not known would be waited for all the same.
  if (how.wait_replicas > 0) ready.push_back(&scripts::enter());
  // In a cluster a counter is brought up to the clock with every token, because there are many.
  self->connections_->connect(!how.in_cluster, stream, ready);
  if (how.in_cluster) return std::unique_ptr<cluster_part>{std::move(self)};
  call soon;
  soon.deadline = std::chrono::steady_clock::now() + 5s;
  if (auto there = self->prove_presence({}, {soon, true}).run(); !there)
    return std::move(there).error();
  return std::unique_ptr<cluster_part>{std::move(self)};
}

// Messages of one slot come over the bus of the cluster to all nodes; so there is a channel for each tag, and we listen
// to it where its slot is.
std::string native::listening() const {
  const std::lock_guard lock{tags_guard_};
  std::string out;
  if (!tags_.empty()) {
    resp::append_head(out, tags_.size() + 1);
    resp::append_word(out, "SUBSCRIBE");
  }
  for (const auto tag : tags_)
    resp::append_word(out, fmt::format("{}{}c:{}", how_.prefix, tag_text(tag), client_));
  resp::append_command(out, {"PING"});  // its answer says that all of them are listened to
  return out;
}

// The connection that listens begins anew, with other channels.
void native::serve(std::vector<unsigned> tags) {
  {
    const std::lock_guard lock{tags_guard_};
    if (tags_ == tags) return;
    tags_ = std::move(tags);
  }
  connections_->stream().drop({errc::unavailable, "the shard has other slots now"});
}

// First the watches: they would look again over connections that go.
native::~native() {
  ending_ = true;
  if (waits_) waits_->look_again_all();
  if (connections_) connections_->drain();
}

// ---- asking

operation<entered> native::do_enter(const request& ask, invocation how) {
  if (!has_presence()) {
    auto there = co_await prove_presence(ask.name, how);
    if (!there) co_return std::move(there).error();
  }
  auto what = enter_command(ask);
  const auto sent = send_now();
  auto came = co_await connections_->ask(connections_->of(ask.name), what, ask.name, how);
  const auto got = unless_refused(std::move(came), ask.name);
  auto out = read_entered(got, ask, sent);
  if (!out || out->what != entered::kind::granted || enough_replicas(*got)) co_return out;
  co_return co_await undo(ask, not_replicated(*got, ask.name), how);
}

bool native::enough_replicas(const answer& got) const {
  return how_.wait_replicas == 0 || (got.values.size() > 1 && !got.values[1].is_error() &&
                                     got.values[1].integer >= how_.wait_replicas);
}

// What to say of a grant that was taken back because too few replicas have it, or none can be asked about it.
error native::not_replicated(const answer& got, std::string_view name) const {
  if (got.values.size() > 1 && got.values[1].is_error()) {
    const auto refused = reply_error(got.values[1].text, name, how_.url);
    return not_done{refused.code() == errc::outcome_unknown ? errc::protocol : refused.code(),
                    fmt::format("{} That was the command WAIT, which wait_replicas={} needs, so "
                                "the lock was not taken.",
                                refused.message(), how_.wait_replicas)};
  }
  return {errc::unavailable,
          fmt::format("Lock {} on {} was not taken: fewer than {} replica(s) confirmed it in time "
                      "(wait_replicas, wait_timeout).",
                      support::quoted(name), how_.url, how_.wait_replicas)};
}

operation<entered> native::undo(const request& ask, error why, invocation how) {
  auto what = leave_command(ask.name, ask.owner, false);
  auto& over = connections_->of(ask.name);
  const auto master = connections_->master();
  const auto gone = co_await connections_->ask(over, what, ask.name, how);
  if (gone) connections_->note_end(master, over, std::move(what));
  if (!gone) co_return error{errc::outcome_unknown, gone.error().message()};
  // This leave may be said again to the next master (lately_ended), so nobody may be this owner from now on.
  co_return taken_back{why.code(), why.message()};
}

// Not with wait_replicas: then each goes its own way, one after the other.
operation<std::vector<grant>> native::do_enter_all(std::span<const request> asks, invocation how) {
  if (how_.wait_replicas > 0) co_return std::vector<grant>{};
  const auto name = asks.front().name;
  if (!has_presence()) {
    auto there = co_await prove_presence(name, how);
    if (!there) co_return std::move(there).error();
  }
  auto on = releasing(asks);
  if (!on.empty()) {
    // A connection has failed, perhaps because we are closing: core takes them one after the other, if it still wants.
    auto passed = connections_->pass(std::move(on), how);
    if (!co_await passed) co_return std::vector<grant>{};
  }
  auto what = enter_all_command(asks);
  const auto sent = send_now();
  const auto got = co_await connections_->ask(connections_->of(name), what, name, how);
  auto out = read_all(got, asks, sent);
  for (const auto& ask : asks) late_requests_.note(ask.owner, out);
  co_return out;
}

// One script takes all names, over one connection; but releases of them may be under way on the others.
std::set<tracked_channel*> native::releasing(std::span<const request> asks) const {
  std::set<tracked_channel*> out;
  if (releases_sent_.load(std::memory_order_relaxed) == 0) return out;
  for (const auto& ask : asks) out.insert(&connections_->of(ask.name));
  return out;
}

// With wait_replicas a grant whose answer was lost is not yet one, and the leave that undoes it may be on its way: so
// it is said to be over, and core gives it back and asks as a new owner.
result<entered> native::read_settled(const result<answer>& got, const request& ask,
                                     const sending& sent) {
  auto out = read_entered(got, ask, sent);
  if (out && out->what == entered::kind::busy) forget(ask.owner);
  if (how_.wait_replicas == 0 || !out || out->what != entered::kind::granted) return out;
  out->granted.valid_from = steady_time{};
  return out;
}

operation<entered> native::do_settle(const request& ask, invocation how) {
  auto what = settle_command(ask);
  const auto sent = send_now();
  const auto got = co_await connections_->ask(connections_->of(ask.name), what, ask.name, how);
  co_return read_settled(got, ask, sent);
}

// ---- waiting

progress native::read_push(const std::optional<pushed_grant>& news, const ticket& place) const {
  progress out;
  // With wait_replicas a grant by message is not yet a grant: asking again makes it one, or not. Neither is one of
  // which we cannot say when it began; nor one in a cluster, whose nodes pass messages on: while a slot moves we may
  // hear it over a node that is not the one which counted no listener, and therefore has not let us in.
  if (!news || how_.wait_replicas > 0 || how_.in_cluster || news->from == steady_time{}) return out;
  out.is_granted = true;
  out.granted = make_grant(place.name, place.owner, news->mode, news->weight, news->token,
                           news->from, news->ttl, news->session);
  return out;
}

// The store said "waiting" when its last token was the handle, so an older grant answers something else.
waits::judge native::news_for(const ticket& place) {
  return [after = place.handle](const pushed_grant& news) { return news.token.value > after; };
}

void native::start_await(const ticket& place, const call& limits,
                         completion<progress>& done) noexcept {
  waits_->for_grant(
      place.owner.sequence, limits,
      [this, &place, &done](const std::optional<pushed_grant>& news) {
        done.complete(read_push(news, place));
      },
      news_for(place));
}

operation<void> native::do_leave(const ticket& place, invocation how) {
  auto what = leave_command(place.name, place.owner, place.replacing);
  auto& over = connections_->of(place.name);
  const auto master = connections_->master();
  const auto got = co_await connections_->ask(over, what, place.name, how);
  if (got) connections_->note_end(master, over, std::move(what));
  co_return read_left(got, place);
}

// ---- giving back

// On its way before this suspends: what is asked about the same name afterwards stands behind it on the same
// connection, and do_enter_all() looks at how many there are.
operation<void> native::do_release(const grant& held, invocation how) {
  auto what = release_command(held.name, held.owner);
  auto& over = connections_->of(held.name);
  const auto master = connections_->master();
  if (!how.blocks) releases_sent_.fetch_add(1, std::memory_order_relaxed);
  const auto got = co_await connections_->ask(over, what, held.name, how, connections::sends::now);
  if (!how.blocks) releases_sent_.fetch_sub(1, std::memory_order_relaxed);
  if (got) connections_->note_end(master, over, std::move(what));
  co_return read_released(got, held);
}

operation<grant> native::do_downgrade(const grant& held, lock_mode to, invocation how) {
  command what{scripts::downgrade(), 2, 3};
  what << key('l', held.name) << token_key(held.name) << owner_text(held.owner)
       << std::string(1, letter_of(to)) << std::to_string(weight_of(to));
  const auto sent = send_now();
  const auto got = co_await connections_->ask(connections_->of(held.name), what, held.name, how);
  if (!got) co_return got.error();
  const auto& items = got->values.front().items;
  if (items.size() != 2) co_return read_released(got, held).error();
  co_return make_grant(held.name, held.owner, to, weight_of(to), held.token,
                       sent.at + std::chrono::milliseconds{items[1].integer} - held.ttl, held.ttl,
                       sent.session);
}

// ---- messages

void native::on_push(std::string_view frame) noexcept {
  const auto push = resp::take(frame);
  if (!push || push->items.size() != 3 || push->items[0].text != "message") return;
  on_message(push->items[2].text);
}

namespace {

std::string_view next_word(std::string_view& text) {
  const auto end = std::min(text.find(' '), text.size());
  const auto out = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return out;
}

template <class N>
N next_number(std::string_view& text) {
  const auto digits = next_word(text);
  N out{};
  std::from_chars(digits.data(), digits.data() + digits.size(), out);
  return out;
}

}  // namespace

// See scripts.hpp for the messages. Anything else is not for us.
void native::on_message(std::string_view text) {
  const auto kind = next_word(text);
  if (kind == "o" || kind == "p") return waits_->changed(std::string{kind}.append(text));
  const auto owner = parse_owner(next_word(text));
  if (!owner) return;
  if (kind == "n") return waits_->look_again(owner->sequence);
  if (kind == "l") {
    forget(*owner);
    listener_.on_lost(*owner,
                      text == "revoked" ? "it was revoked" : "its ttl passed without a renewal");
    return;
  }
  if (kind != "g") return;
  pushed_grant won;
  won.token.value = next_number<std::uint64_t>(text);
  won.ttl = std::chrono::milliseconds{next_number<std::int64_t>(text)};
  const auto server_us = next_number<std::int64_t>(text);
  won.mode = mode_in(next_word(text));
  won.weight = next_number<std::uint64_t>(text);
  won.session = message_session_;
  // That the message reached us proves that we were listening when it was sent.
  const auto now = clock_.now();
  won.from = server_instant(server_us, won.session, now);
  belief_.proven(won.session, won.from);
  waits_->granted(owner->sequence, won);
}

// This may be another server, or the same without its data: the next renewal asks about every grant.
void native::on_up(std::uint64_t generation) noexcept {
  message_session_ = generation;
  belief_.begin(generation);
  // Waiters that asked while no connection listened may have been let in, or passed over, without a word.
  waits_->look_again_all();
}

// Messages may be lost from now on until we listen again, so no waiter relies on them: all look for themselves.
void native::on_down(const error&) noexcept { waits_->look_again_all(); }

}  // namespace holdfast::engines::redis
