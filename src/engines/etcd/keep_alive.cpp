// The session's part on the driver's thread: keep-alives, and whether they prove anything.
//
// A keep-alive alone proves nothing. etcd (until 3.4.24 and 3.5.7) answers it out of the memory of a member that
// believes to lead, and a leader whose disk hangs goes on believing that while the others have elected another, which
// ends our lease. So with each one goes a small read that the majority must agree to. Both answers say in which term
// they were given. If it is the same one, the leader that heard the keep-alive was still the leader after it was sent,
// and we may count from there: a later leader gives every lease its full ttl anew.
#include "engines/etcd/requests.hpp"
#include "engines/etcd/session.hpp"

#include <algorithm>

namespace holdfast::engines::etcd {

// The read that goes with a keep-alive.
class session::reading final : public cluster::handler {
 public:
  reading(session& to, std::uint64_t number, question what)
      : to_(to), number_(number), what_(std::move(what)) {
    limits_.deadline = std::chrono::steady_clock::now() + 2 * to.patience();
  }
  void go() noexcept { to_.cluster_.post(what_, limits_, *this); }

 private:
  void on_answer(answer said) noexcept override {
    to_.read(number_, said);
    delete this;
  }
  session& to_;
  const std::uint64_t number_;
  const question what_;
  call limits_;
};

void session::tick() {
  {
    const std::lock_guard lock{guard_};
    woken_ = false;
    if (ending_) return;
  }
  const auto now =
      clock_.now();  // after that: a proof that is wanted by then is not wanted of later than now
  bury_if_over(now);
  if (is_overdue(now)) suspect_member();
  speak(now);
  settle_provers();
  plan();
}

void session::bury_if_over(steady_time now) {
  std::int64_t dead = 0;
  {
    const std::lock_guard lock{guard_};
    if (!lease_ || now < lease_->proven + lease_->ttl) return;
    dead = lease_->id;
  }
  is_gone(dead, "the cluster did not confirm the session in time");
  give_back(dead);
}

// A keep-alive whenever a proof is wanted, or the ttl is not known.
void session::speak(steady_time now) {
  std::vector<std::int64_t> others;
  std::optional<std::int64_t> own;
  {
    const std::lock_guard lock{guard_};
    const bool is_unsure = lease_ && ttl_is_unsure_;
    if (provers_.empty() && touches_.empty() && !is_unsure) return;
    if (!stream_.is_open()) {
      if (lease_) sent_at_ = {};
    } else {
      others.swap(touches_);
      const bool wanted = std::ranges::any_of(
          provers_, [&](const prover& waiting) { return waiting.since > sent_at_; });
      if (lease_ && (wanted || (is_unsure && sent_at_ <= lease_->proven))) own = lease_->id;
    }
  }
  if (!stream_.is_open()) return stream_.open();  // on_open() comes back here
  if (own) {
    sent_at_ = now;
    proofs_.push_back({++last_proof_, *own, now, {}, {}});
    send(*own, now);
    (new reading{*this, last_proof_, probe()})->go();
  }
  for (const auto id : others) send(id, now);
}

void session::send(std::int64_t id, steady_time now) {
  rpc::LeaseKeepAliveRequest out;
  out.set_id(id);
  unanswered_.push_back({id, now});
  stream_.write(bytes_of(out));
}

void session::on_open() noexcept {
  sent_at_ = {};
  const auto now = clock_.now();
  speak(now);
  plan();
}

void session::on_close() noexcept {
  unanswered_.clear();
  proofs_.clear();
}

// ---- proof

void session::on_message(std::string_view message) noexcept {
  rpc::LeaseKeepAliveResponse in;
  if (!in.ParseFromArray(message.data(), static_cast<int>(message.size()))) return stream_.move();
  const auto at = std::ranges::find(unanswered_, in.id(), &dated_id::id);
  if (at == unanswered_.end()) return;
  const auto sent = at->at;
  unanswered_.erase(at);
  {
    const std::lock_guard lock{guard_};
    if (!lease_ || lease_->id != in.id()) return;
    if (ttl_is_unsure_ && in.ttl() > 0 && in.ttl() <= 1'000'000'000) {
      lease_->ttl = std::chrono::seconds{in.ttl()};
      ttl_is_unsure_ = false;
    }
  }
  if (in.ttl() <= 0) {
    is_gone(in.id(), "the session has ended in the store");
    give_back(in.id());  // should it know better by now
    settle_provers();
    return plan();
  }
  const auto of = std::ranges::find(proofs_, sent, &half_proof::at);
  if (of == proofs_.end()) return;
  of->kept = in.header().raft_term();
  judge(*of);
}

void session::read(std::uint64_t number, const answer& said) {
  {
    const std::lock_guard lock{guard_};
    if (ending_) return;
  }
  const auto of = std::ranges::find(proofs_, number, &half_proof::number);
  if (of == proofs_.end()) return;  // it came too late
  rpc::RangeResponse in;
  if (!said.got || !said.got->ok() || !in.ParseFromString(said.got->body)) return;  // is_overdue()
  of->seen = in.header().raft_term();
  judge(*of);
}

// The same leader, before and after: then it was one when it heard the keep-alive.
void session::judge(const half_proof& half) {
  if (!half.kept || !half.seen) return;
  if (*half.kept != *half.seen) {
    suspect_member();
    return plan();
  }
  const auto at = half.at;
  const auto lease = half.lease;
  std::erase_if(proofs_, [at](const half_proof& other) { return other.at <= at; });
  {
    const std::lock_guard lock{guard_};
    // Another one may have come meanwhile, of which this says nothing.
    if (lease_ && lease_->id == lease) lease_->proven = std::max(lease_->proven, at);
  }
  settle_provers();
  plan();
}

bool session::is_overdue(steady_time now) const {
  const auto limit = now - patience();
  return (!unanswered_.empty() && unanswered_.front().at <= limit) ||
         (!proofs_.empty() && proofs_.front().at <= limit);
}

// It does not answer, or not as a member of the majority does: not a member to listen to, either.
void session::suspect_member() {
  const auto member = stream_.member();
  stream_.move();
  listener_.on_suspect(member);
}

question session::probe() const {
  auto out = range_of(epoch_key(cluster_.how().root, 0));  // as good as any
  out.set_keys_only(true);
  return {method::range, bytes_of(out)};
}

// How long a keep-alive may stay without an answer before another member is asked.
nanoseconds session::patience() const noexcept {
  return std::min(one_try, nanoseconds{cluster_.how().session} / 4);
}

// Timers are of std::chrono::steady_clock, which clock_ has left behind if the machine was ever suspended.
void session::plan() {
  const auto now = clock_.now();
  const auto timers = std::chrono::steady_clock::now();
  auto next = steady_time::max();
  const auto not_after = [&](steady_time when) { next = std::min(next, timers + (when - now)); };
  {
    const std::lock_guard lock{guard_};
    if (ending_) return;
    if (lease_) not_after(lease_->proven + lease_->ttl);
    for (const auto& waiting : provers_) next = std::min(next, waiting.deadline);
  }
  if (!unanswered_.empty()) not_after(unanswered_.front().at + patience());
  if (!proofs_.empty()) not_after(proofs_.front().at + patience());
  if (timer_ && timer_at_ <= next && timer_at_ > timers) return;  // early enough
  if (timer_) cluster_.driver().cancel(*timer_);
  timer_.reset();
  if (next == steady_time::max()) return;
  timer_at_ = next;
  timer_ = cluster_.driver().at(next, [this] {
    timer_.reset();
    tick();
  });
}

}  // namespace holdfast::engines::etcd
