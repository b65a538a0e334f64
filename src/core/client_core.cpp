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

// Above all that its predecessor has given out: no client takes one in every nanosecond.
std::uint64_t first_sequence_of_a_successor() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::nanoseconds{now}.count());
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
  const auto& predecessor = self->options_.successor_of;
  if (predecessor) {
    self->nonce_ = *predecessor;
    self->first_sequence_ = first_sequence_of_a_successor();
    self->sequence_ = self->first_sequence_;
  } else if (getrandom(self->nonce_.data(), sizeof self->nonce_, 0) != sizeof self->nonce_) {
    return error{errc::unavailable,
                 "the system's random source gave no owner id; is getrandom(2) blocked?"};
  }
  auto made = make({*url, self->nonce_, *self->clock_, *self, host_name(), getpid()});
  if (!made) return std::move(made).error();
  self->engine_ = std::move(*made);
  self->caps_ = &self->engine_->caps();
  // Where the store sleeps when this machine sleeps, so does the ttl.
  if (self->caps_->clock == expiry_clock::local_steady) self->clock_ = &self->clock_->local();
  self->why_it_ended_ = why_validity_ends(*self->caps_);
  if (auto ok = check_client_options(self->options_, *self->caps_); !ok)
    return std::move(ok).error();
  if (predecessor && !self->caps_->outlives_client) return self->nothing_outlives();
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

client_core::adoption client_core::begin_adoption(const owner_id& owner) {
  if (owner.sequence > first_sequence_ &&
      owner.sequence <= sequence_.load(std::memory_order_relaxed))
    return adoption::ours;
  const std::lock_guard locked{guard_};
  const auto [at, is_first] = adopted_.emplace(owner.sequence, false);
  if (is_first) return adoption::begun;
  return at->second ? adoption::ours : adoption::under_way;
}

void client_core::note_adopted(const owner_id& owner) noexcept {
  const std::lock_guard locked{guard_};
  if (const auto at = adopted_.find(owner.sequence); at != adopted_.end()) at->second = true;
}

void client_core::end_adoption(const owner_id& owner) noexcept {
  const std::lock_guard locked{guard_};
  adopted_.erase(owner.sequence);
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
  if (asked.outlives_client && !caps_->outlives_client) return nothing_outlives();
  note_ttl(*asked.ttl);
  return asked;
}

error client_core::nothing_outlives() const {
  return {errc::unsupported,
          fmt::format("on {} no grant outlives its client, so none can be left to a successor; its "
                      "capabilities say so",
                      url_)};
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

}  // namespace holdfast::core
