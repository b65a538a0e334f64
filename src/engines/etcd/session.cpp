#include "engines/etcd/session.hpp"

#include "engines/etcd/requests.hpp"
#include "support/parker.hpp"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <memory>

namespace holdfast::engines::etcd {

namespace {

using namespace std::chrono_literals;

std::int64_t random_id() {
  std::uint64_t out = 0;
  while (out == 0) {
    static_cast<void>(!getrandom(&out, sizeof out, 0));
    out >>= 1U;  // positive
  }
  return static_cast<std::int64_t>(out);
}

question revocation(std::int64_t id) {
  rpc::LeaseRevokeRequest out;
  out.set_id(id);
  return {method::revoke, bytes_of(out)};
}

}  // namespace

session::session(cluster& with, const class clock& time, session_listener& listener)
    : cluster_(with), clock_(time), listener_(listener), stream_(with, method::keep_alive, *this) {}

void session::end() noexcept {
  std::vector<prover> waiting;
  std::optional<lease_view> lease;
  {
    const std::lock_guard lock{guard_};
    ending_ = true;
    waiting.swap(provers_);
    lease.swap(lease_);
  }
  run_there(cluster_.driver(), [this] {
    stream_.close();
    if (timer_) cluster_.driver().cancel(*timer_);
  });
  for (auto& left : waiting)
    left.done(error{errc::unavailable, cluster_.how().url + ": the client is being closed."});
  if (!lease) return;
  call soon;
  soon.deadline = std::chrono::steady_clock::now() + 2s;
  static_cast<void>(cluster_.run(revocation(lease->id), soon));  // else it ends with its ttl
}

// ---- making one

std::optional<lease_view> session::current() const {
  const std::lock_guard lock{guard_};
  if (!lease_ || clock_.now() >= lease_->proven + lease_->ttl) return std::nullopt;
  return lease_;
}

// Threads that need a lease at the same time ask for the same one: so several may ask, and again, without harm.
session::dated_id session::candidate() {
  const std::lock_guard lock{guard_};
  const auto now = clock_.now();
  if (wanted_ == 0 || now - wanted_since_ > nanoseconds{cluster_.how().session} / 2) {
    wanted_ = random_id();
    wanted_since_ = now;
  }
  return {wanted_, wanted_since_};
}

lease_view session::install(const dated_id& made, nanoseconds ttl, bool is_certain) {
  const std::lock_guard lock{guard_};
  if (lease_ && lease_->id == made.id && is_certain) {  // another thread was told less
    lease_->ttl = ttl;
    ttl_is_unsure_ = false;
  }
  if (lease_ && (lease_->id == made.id || clock_.now() < lease_->proven + lease_->ttl))
    return *lease_;
  ttl_is_unsure_ = !is_certain;
  lease_ = lease_view{made.id, made.at, ttl, ++leases_};
  if (wanted_ == made.id) wanted_ = 0;
  return *lease_;
}

operation<lease_view> session::ensure(invocation how) {
  if (const auto now = current()) co_return *now;
  bury_if_over(clock_.now());
  const auto wanted = candidate();
  rpc::LeaseGrantRequest ask;
  ask.set_ttl(cluster_.how().session.count());
  ask.set_id(wanted.id);
  const question what{method::grant, bytes_of(ask)};
  const auto said = co_await cluster_.ask(what, how);
  if (!said.got) co_return as_reading(said.got.error());
  full_ = is_out_of_space(*said.got);
  if (!said.got->ok() && !lease_exists(*said.got))
    co_return as_reading(status_error(*said.got, {}, cluster_.how().url));
  rpc::LeaseGrantResponse in;
  nanoseconds ttl = cluster_.how().session;  // at least that is granted
  if (said.got->ok()) {
    if (!in.ParseFromString(said.got->body) || in.ttl() <= 0 || in.ttl() > 1'000'000'000)
      co_return unexpected_answer({}, cluster_.how().url);
    ttl = std::chrono::seconds{in.ttl()};
  }
  const auto out = install(wanted, ttl, said.got->ok());
  if (out.id != wanted.id) give_back(wanted.id);  // another thread was quicker
  wake();
  co_return out;
}

void session::is_gone(std::int64_t id, std::string_view why) {
  std::optional<lease_view> gone;
  {
    const std::lock_guard lock{guard_};
    if (!lease_ || lease_->id != id) return;
    gone.swap(lease_);
  }
  listener_.on_lease_gone(*gone, why);
}

epoch_view session::epoch(std::int64_t lease) const {
  const std::lock_guard lock{guard_};
  return {epoch_key(cluster_.how().root, lease), epoch_.lease == lease ? epoch_.modified : 0};
}

void session::note_epoch(std::int64_t lease, std::int64_t modified, std::int64_t revision) {
  const std::lock_guard lock{guard_};
  if (epoch_.lease != lease || revision >= epoch_.seen_at) epoch_ = {lease, modified, revision};
}

void session::give_back(std::int64_t id) noexcept { cluster_.send_off(revocation(id)); }

// ---- keeping it

void session::prove(steady_time since, steady_time deadline, proof done) {
  std::optional<result<lease_view>> known;
  {
    const std::lock_guard lock{guard_};
    if (!lease_) {
      known.emplace(error{errc::unavailable, cluster_.how().url + ": the session has ended."});
    } else if (lease_->proven >= since) {
      known.emplace(*lease_);
    } else {
      provers_.push_back({since, deadline, done});
    }
  }
  if (known) return done(std::move(*known));
  wake();
}

// The calling thread does not wait for longer than it may, whatever the driver's thread does.
bool session::proving::await_ready() {
  if (!how_.blocks) return false;
  constexpr std::uint32_t answered = 1, given_up = 2;
  struct letter_box {  // outlives us when the time is up
    support::parker bed;
    std::optional<result<lease_view>> proof;
  };
  const auto box = std::make_shared<letter_box>();
  in_.prove(since_, how_.limits.deadline, [box](result<lease_view> what) {
    box->proof.emplace(std::move(what));
    box->bed.set(answered);
  });
  const std::stop_callback wake{how_.limits.stop, [box] { box->bed.set(given_up); }};
  if (box->bed.wait(how_.limits.deadline) == answered) {
    got_.emplace(std::move(*box->proof));
  } else {
    got_.emplace(error{errc::unavailable,
                       in_.cluster_.how().url + ": the session was not confirmed in time."});
  }
  return true;
}

void session::proving::await_suspend(std::coroutine_handle<> caller) {
  in_.prove(since_, how_.limits.deadline, [this, caller](result<lease_view> what) {
    got_.emplace(std::move(what));
    caller.resume();
  });
}

void session::touch(std::int64_t lease) {
  {
    const std::lock_guard lock{guard_};
    touches_.push_back(lease);
  }
  wake();
}

void session::wake() {
  {
    const std::lock_guard lock{guard_};
    if (ending_ || std::exchange(woken_, true)) return;
  }
  cluster_.driver().post([this] { tick(); });
}

void session::settle_provers() {
  const auto now = std::chrono::steady_clock::now();
  std::vector<std::pair<proof, result<lease_view>>> told;
  {
    const std::lock_guard lock{guard_};
    std::erase_if(provers_, [&](prover& waiting) {
      if (lease_ && lease_->proven >= waiting.since) {
        told.emplace_back(std::move(waiting.done), *lease_);
      } else if (!lease_ || now >= waiting.deadline) {
        told.emplace_back(
            std::move(waiting.done),
            error{errc::unavailable,
                  fmt::format("{}: the session was not confirmed in time.", cluster_.how().url)});
      } else {
        return false;
      }
      return true;
    });
  }
  for (auto& [done, what] : told) done(std::move(what));
}

}  // namespace holdfast::engines::etcd
