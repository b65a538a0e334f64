#include "core/client_core.hpp"

#include "core/acquire_machine.hpp"
#include "core/gate.hpp"
#include "core/renewal.hpp"
#include "support/reaper.hpp"
#include "support/text.hpp"

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

namespace holdfast::core {

namespace {

constexpr std::uint64_t sequences_at_once = 1024;
constexpr std::size_t label_limit = 64;

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

error bad(std::string sentence) { return {errc::misconfigured, std::move(sentence)}; }

result<void> check_client_options(const client_options& o, const capabilities& caps) {
  if (o.ttl < caps.min_ttl || o.ttl > caps.max_ttl)
    return bad(fmt::format("client_options.ttl is {}, but this store takes {} to {}",
                           format_duration(o.ttl), format_duration(caps.min_ttl),
                           format_duration(caps.max_ttl)));
  if (o.call_timeout <= nanoseconds::zero() || o.call_timeout > std::chrono::hours{1})
    return bad(fmt::format("client_options.call_timeout is {}, but must be above 0 and at most 1h",
                           format_duration(o.call_timeout)));
  if (o.handoff_time < nanoseconds::zero())
    return bad("client_options.handoff_time must not be negative");
  return {};
}

std::string why_validity_ends(const capabilities& caps) {
  std::string out = "no renewal was confirmed before its validity ended";
  if (!caps.validity_setting.empty())
    out += fmt::format(" (decided by {}, however long the ttl)", caps.validity_setting);
  return out;
}

}  // namespace

const call client_core::unbounded{};

int& background_thread::depth() noexcept {
  thread_local int nested = 0;
  return nested;
}

client_core::client_core(client_options options, std::string url)
    : options_(std::move(options)),
      url_(std::move(url)),
      clock_(options_.clock ? options_.clock : &system_clock()),
      real_time_(options_.clock == nullptr),
      born_(support::fork_generation()),
      shortest_ttl_(options_.ttl.count()),
      driver_(*this) {}

result<std::shared_ptr<client_core>> client_core::open(const client::engine_factory& make,
                                                       std::string_view text,
                                                       client_options options) {
  auto url = store_url::parse(text);
  if (!url) return std::move(url).error();
  std::shared_ptr<client_core> self{new client_core{std::move(options), url->str()},
                                    &client_core::destroy};
  if (getrandom(self->nonce_.data(), sizeof self->nonce_, 0) != sizeof self->nonce_)
    return error{errc::unavailable,
                 "the system's random source gave no owner id; is getrandom(2) blocked?"};
  auto made = make({*url, self->nonce_, *self->clock_, *self, host_name(), getpid()});
  if (!made) return std::move(made).error();
  self->engine_ = std::move(*made);
  self->caps_ = &self->engine_->caps();
  // Where the store sleeps when this machine sleeps, so does the ttl.
  if (self->caps_->clock == expiry_clock::local_steady) self->clock_ = &self->clock_->local();
  self->why_it_ended_ = why_validity_ends(*self->caps_);
  if (auto ok = check_client_options(self->options_, *self->caps_); !ok)
    return std::move(ok).error();
  try {
    self->driver_.start();
  } catch (const std::system_error& e) {
    return error{errc::unavailable,
                 fmt::format("no thread could be started for {}: {}", self->url_, e.what())};
  }
  return self->make_handle(self);
}

// The engine completes what is in flight as it goes, and those completions want the driver: so its thread ends first,
// and it goes last. Then the hooks have their say.
client_core::~client_core() {
  retries_.stop(overtime(options_.call_timeout));
  driver_.stop();
  engine_.reset();
  resumer_.stop();
  losses_.stop();
  hooks_.stop();
}

void client_core::destroy(client_core* self) noexcept {
  // In a forked child the threads are not there, mutexes may be locked for good, and the session is the
  // parent's: leave all of it alone. The child's copy of the memory goes with the child.
  if (!self->usable_here()) return;
  const auto end = [self] {
    const auto told = self->ending_;
    delete self;
    const std::lock_guard locked{told->guard};
    told->over = true;
    told->changed.notify_all();
  };
  if (background_thread::here()) {
    support::run_elsewhere(end);
  } else {
    end();
  }
}

// The deleter of a handle.
template <class T>
class client_core::handle {
 public:
  handle(std::shared_ptr<client_core> core, std::shared_ptr<T> inner)
      : core_(std::move(core)), inner_(std::move(inner)) {
    core_->handles_.fetch_add(1, std::memory_order_relaxed);
  }
  void operator()(T*) noexcept {
    const auto end = core_->ending_;
    // A forked child owns nothing; a callback of ours must return before the client can end.
    const bool may_wait = core_->usable_here() && !background_thread::here();
    const bool last = core_->handles_.fetch_sub(1, std::memory_order_acq_rel) == 1;
    inner_.reset();
    core_.reset();
    if (!last || !may_wait) return;
    std::unique_lock locked{end->guard};
    end->changed.wait(locked, [&] { return end->over; });
  }

 private:
  std::shared_ptr<client_core> core_;
  std::shared_ptr<T> inner_;
};

template <class T>
std::shared_ptr<T> client_core::make_handle(std::shared_ptr<T> inner) {
  auto* const raw = inner.get();
  return {raw, handle<T>{shared_from_this(), std::move(inner)}};
}

error client_core::forked_error() const {
  return {errc::misconfigured, fmt::format("this client of {} belongs to the process that opened "
                                           "it, not to its forked child; open a new "
                                           "client after fork()",
                                           url_)};
}

nanoseconds client_core::jittered(nanoseconds length) noexcept {
  const auto mixed = jitter_.fetch_add(0x9e3779b97f4a7c15U, std::memory_order_relaxed) ^ nonce_[1];
  return length - length / 10 * static_cast<std::int64_t>(mixed >> 56U) / 256;
}

std::pair<std::uint64_t, std::uint64_t> client_core::take_sequences() noexcept {
  const auto first = sequence_.fetch_add(sequences_at_once, std::memory_order_relaxed);
  return {first, first + sequences_at_once};
}

std::shared_ptr<gate> client_core::gate_for(std::string_view name) {
  const auto known = [&]() -> std::shared_ptr<gate> {
    const auto at = gates_.find(name);
    return at == gates_.end() ? nullptr : at->second.lock();
  };
  {
    std::lock_guard locked{guard_};
    if (auto alive = known()) return alive;
  }
  // Made, and dropped again if another thread was faster, without the guard: the end of a hold takes it.
  auto fresh = std::make_shared<gate>(shared_from_this(), std::string{name});
  auto out = make_handle(fresh);
  std::lock_guard locked{guard_};
  if (auto alive = known()) return alive;
  holds_.push_back(fresh);
  gates_.insert_or_assign(std::string{name}, out);
  return out;
}

std::shared_ptr<hold> client_core::new_hold(std::string name) {
  auto fresh = std::make_shared<hold>(shared_from_this(), std::move(name));
  {
    std::lock_guard locked{guard_};
    holds_.push_back(fresh);
  }
  return make_handle(std::move(fresh));
}

void client_core::forget(hold& gone) noexcept {
  if (!usable_here()) return;
  std::lock_guard locked{guard_};
  retired_acquired_ += gone.acquired.get();
  retired_released_ += gone.released.get();
  const auto at = gates_.find(gone.name);
  if (at != gates_.end() && at->second.expired()) gates_.erase(at);
  if (++dead_holds_ > 64 && dead_holds_ > holds_.size() / 2) {
    std::erase_if(holds_, [](const auto& h) { return h.expired(); });
    dead_holds_ = 0;
  }
}

void client_core::live_holds(std::vector<std::shared_ptr<hold>>& out) {
  out.clear();
  std::lock_guard locked{guard_};
  out.reserve(holds_.size());
  for (const auto& h : holds_)
    if (auto alive = h.lock()) out.push_back(std::move(alive));
}

result<acquire_options> client_core::checked(acquire_options asked) {
  if (!asked.ttl) asked.ttl = options_.ttl;
  if (asked.wait < nanoseconds::zero())
    return bad("acquire_options.wait must not be negative; 0 means one attempt");
  if (*asked.ttl < caps_->min_ttl || *asked.ttl > caps_->max_ttl)
    return bad(fmt::format("acquire_options.ttl is {}, but {} takes {} to {}",
                           format_duration(*asked.ttl), url_, format_duration(caps_->min_ttl),
                           format_duration(caps_->max_ttl)));
  if (asked.max_hold < nanoseconds::zero())
    return bad("acquire_options.max_hold must not be negative; 0 means no limit");
  if (asked.label.size() > label_limit || !support::is_utf8(asked.label) ||
      support::has_control(asked.label))
    return bad(fmt::format(
        "acquire_options.label must be at most {} bytes of UTF-8 without control characters",
        label_limit));
  if (asked.priority != 0 && !caps_->priorities)
    return error{errc::unsupported,
                 fmt::format("{} knows no priorities; leave acquire_options.priority at 0", url_)};
  note_ttl(*asked.ttl);
  return asked;
}

void client_core::note_ttl(nanoseconds ttl) noexcept {
  auto known = shortest_ttl_.load(std::memory_order_relaxed);
  while (ttl.count() < known &&
         !shortest_ttl_.compare_exchange_weak(known, ttl.count(), std::memory_order_relaxed)) {
  }
}

void client_core::post(std::function<void()> work) {
  if (options_.resume) {
    const gate::user_code here;  // it may run it in place
    options_.resume(std::move(work));
  } else {
    resumer_.post(std::move(work));
  }
}

call client_core::call_until(steady_time deadline, std::stop_token stop) const noexcept {
  const auto last = deadline_after(deadline, overtime(options_.call_timeout));
  return {on_steady_clock(std::min(clock_->now() + options_.call_timeout, last)), std::move(stop)};
}

// User code never runs on the thread on which the thing happened, which may be an engine's reactor or our driver, nor
// under a lock of ours.
void client_core::announce(resumer& where, std::function<void()> user_code) noexcept {
  if (!usable_here())
    return;  // in a forked child there is no such thread, and its mutex may be locked
  try {
    where.post(user_code);
  } catch (...) {
    user_code();  // no memory, or no thread to be had: better there than nowhere
  }
}

void client_core::announce_loss(std::unique_ptr<std::stop_source> fired, const std::string& name,
                                fencing_token token, std::string_view why) noexcept {
  numbers_.lost.fetch_add(1, std::memory_order_relaxed);
  if (fired) announce(losses_, [source = std::move(*fired)]() mutable { source.request_stop(); });
  if (watching())
    tell([name, token, why = std::string{why}](auto& o) { o.lost(name, token, why); });
}

void client_core::tell_release_failed(const std::string& name, const error& why) noexcept {
  if (watching()) tell([name, why](auto& o) { o.release_failed(name, why); });
}

void client_core::note_renewed(std::size_t count, nanoseconds took) noexcept {
  numbers_.renew.add(took);
  numbers_.renewed.fetch_add(count, std::memory_order_relaxed);
}

void client_core::note_renewal_failed(const error& why, nanoseconds took) noexcept {
  numbers_.renew.add(took);
  numbers_.renew_failed.fetch_add(1, std::memory_order_relaxed);
  if (watching()) tell([why](auto& o) { o.renew_failed(why); });
}

error client_core::could_not_say(const std::string& name) const {
  return {errc::unavailable,
          fmt::format("{} could not say whether lock '{}' is still ours", url_, name)};
}

error client_core::note_failure(error why) noexcept {
  auto& counter = why.code() == errc::busy        ? numbers_.busy
                  : why.code() == errc::timed_out ? numbers_.timed_out
                  : why.code() == errc::cancelled ? numbers_.cancelled
                                                  : numbers_.failed;
  counter.fetch_add(1, std::memory_order_relaxed);
  return why;
}

result<void> client_core::renew_now(hold& held, std::uint64_t generation) {
  const auto current = held.current_grant(generation);
  if (!current || !held.valid_at(generation, clock_->now())) return held.lost_error();
  renewal asked;
  asked.held = &*current;
  const auto since = clock_->now();
  const auto answer = engine_->renew({&asked, 1}, bounded_call());
  return conclude_renewal(held, generation, asked, answer, since);
}

result<void> client_core::conclude_renewal(hold& held, std::uint64_t generation, renewal asked,
                                           const result<session_proof>& answer, steady_time since) {
  const auto took = clock_->now() - since;
  if (!answer) {
    note_renewal_failed(answer.error(), took);
    return answer.error();
  }
  if (asked.answer == renewal::verdict::lost && held.changing.load())
    asked.answer = renewal::verdict::unknown;
  if (asked.answer == renewal::verdict::unknown) {
    auto why = could_not_say(held.name);
    note_renewal_failed(why, took);
    return why;
  }
  note_renewed(1, took);
  if (asked.answer == renewal::verdict::lost) {
    held.lose(asked.held->owner, let_go_by_the_store);
    return held.lost_error();
  }
  // Proof that comes after the validity has ended proves nothing: the holder may have relied on that end.
  if (!held.prolong(asked.held->owner, asked) || !held.is_current(generation))
    return held.lost_error();
  return {};
}

namespace {

class sent_release final : public completion<void> {
 public:
  sent_release(client_core& core, std::string name, const grant& held,
               std::unique_ptr<std::stop_source> loss)
      : core_(core),
        name_(std::move(name)),
        held_(held),
        loss_(std::move(loss)),
        limits_(core.bounded_call()) {
    held_.name = name_;
  }
  void start() noexcept { core_.store().start_release(held_, limits_, *this); }

 private:
  void complete(result<void> answer) noexcept override {
    const background_thread mark;
    if (!answer) failed(answer.error());
    delete this;
  }
  void failed(const error& why) noexcept {
    if (why.code() == errc::not_held) {
      core_.announce_loss(std::move(loss_), name_, held_.token, let_go_by_the_store);
    } else {
      core_.clear_up(name_, held_.owner, held_.mode);
    }
    core_.tell_release_failed(name_, why);
  }

  client_core& core_;  // outlives its engine, which completes us at the latest when it goes
  const std::string name_;
  grant held_;
  std::unique_ptr<std::stop_source> loss_;
  const call limits_;
};

}  // namespace

void client_core::send_release(const std::string& name, const grant& held,
                               std::unique_ptr<std::stop_source> loss) noexcept {
  (new sent_release{*this, name, held, std::move(loss)})->start();
}

result<grant> client_core::conclude(const acquire_machine& machine) {
  const auto& ask = machine.ask();
  if (machine.settled() > 0) {
    numbers_.settled.fetch_add(machine.settled(), std::memory_order_relaxed);
    if (watching())
      tell([name = std::string{ask.name}, adopted = machine.succeeded()](auto& o) {
        o.settled(name, adopted);
      });
  }
  for (const auto& owner : machine.left_behind()) clear_up(std::string{ask.name}, owner, ask.mode);
  if (machine.succeeded()) return machine.granted();
  return machine.failure();
}

metrics client_core::snapshot() {
  std::vector<std::shared_ptr<hold>> alive;
  live_holds(alive);
  metrics out;
  {
    std::lock_guard locked{guard_};
    out.acquired = retired_acquired_;
    out.released = retired_released_;
  }
  for (const auto& h : alive) {
    out.acquired += h->acquired.get();
    out.released += h->released.get();
    if (hold_word::state_of(h->word.load(std::memory_order_relaxed)) == hold_word::held)
      ++out.held_now;
  }
  const auto read = [](const std::atomic<std::uint64_t>& from) {
    return from.load(std::memory_order_relaxed);
  };
  out.handed_off = read(numbers_.handed_off);
  out.reentered = read(numbers_.reentered);
  out.busy = read(numbers_.busy);
  out.timed_out = read(numbers_.timed_out);
  out.cancelled = read(numbers_.cancelled);
  out.failed = read(numbers_.failed);
  out.lost = read(numbers_.lost);
  out.renewed = read(numbers_.renewed);
  out.renew_failed = read(numbers_.renew_failed);
  out.settled = read(numbers_.settled);
  out.wait = numbers_.wait.snapshot();
  out.hold = numbers_.hold.snapshot();
  out.renew = numbers_.renew.snapshot();
  return out;
}

// One look at every hold, however many were lost: a session that ends takes thousands of leases along. What no hold has
// is noted, and looked for once more: a hold that gets its grant meanwhile either is seen by the second look or sees
// the note.
void client_core::on_lost(std::span<const owner_id> owners, std::string_view why) noexcept {
  const background_thread mark;
  std::vector<owner_id> sorted{owners.begin(), owners.end()};
  std::ranges::sort(sorted);
  const auto unknown = lose_those(sorted, why);
  if (unknown.empty()) return;
  early_losses_.note(unknown, why, clock_->now(), 2 * options_.call_timeout);
  lose_those(unknown, why);
}

bool client_core::note_proof(const session_proof& proof) noexcept {
  if (proof.number == 0) return false;
  const std::lock_guard locked{proof_guard_};
  const auto before = latest_proof_;
  keep_later(latest_proof_, proof);
  return latest_proof_.number != before.number || latest_proof_.proven_at != before.proven_at;
}

void client_core::freshen(session_proof& of_grant) const noexcept {
  if (!has_sessions(*caps_)) return;
  const std::lock_guard locked{proof_guard_};
  if (latest_proof_.number == of_grant.number) keep_later(of_grant, latest_proof_);
}

// Noted first: a hold that gets its grant meanwhile either is seen here or sees the note.
void client_core::on_session_lost(std::uint64_t number, std::string_view why) noexcept {
  const background_thread mark;
  early_losses_.note_session(number, why);
  std::vector<std::shared_ptr<hold>> alive;
  live_holds(alive);
  for (const auto& h : alive) {
    const auto current = h->current_grant(std::nullopt);
    if (current && current->session.number != 0 && current->session.number <= number)
      h->lose(current->owner, why);
  }
}

// Returns those that no hold has.
std::vector<owner_id> client_core::lose_those(std::span<const owner_id> sorted,
                                              std::string_view why) {
  std::vector<std::shared_ptr<hold>> alive;
  live_holds(alive);
  std::vector<owner_id> found;
  for (const auto& h : alive) {
    const auto current = h->current_grant(std::nullopt);
    if (!current || !std::ranges::binary_search(sorted, current->owner)) continue;
    if (h->lose(current->owner, why)) found.push_back(current->owner);
  }
  std::ranges::sort(found);
  std::vector<owner_id> out;
  std::ranges::set_difference(sorted, found, std::back_inserter(out));
  return out;
}

}  // namespace holdfast::core
