#include "engines/etcd/cluster.hpp"

#include "engines/etcd/requests.hpp"
#include "support/parker.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <functional>
#include <optional>
#include <stop_token>

namespace holdfast::engines::etcd {

namespace {

using namespace std::chrono_literals;

steady_time now() { return std::chrono::steady_clock::now(); }

// More would not be served sooner, and a cluster refuses clients that are too far ahead of it.
constexpr std::size_t most_in_flight = 256;

error closing(const settings& how) {
  return {errc::unavailable, fmt::format("{}: the client is being closed.", how.url)};
}

void pause(const call& limits) {
  support::parker parker;
  const std::stop_callback wake{limits.stop, [&] { parker.set(1); }};
  parker.wait(std::min(limits.deadline, now() + pause_between_rounds));
}

bool may_go_on(const call& limits) {
  return !limits.stop.stop_requested() && now() < limits.deadline;
}

}  // namespace

result<std::unique_ptr<cluster>> cluster::start(const settings& how) {
  auto reactor = net::reactor::start();
  if (!reactor) return std::move(reactor).error();
  std::unique_ptr<cluster> self{new cluster{how}};
  self->reactor_ = std::move(*reactor);
  return self;
}

// ---- members

std::shared_ptr<grpc::channel> cluster::channel(std::size_t member) {
  const std::lock_guard lock{guard_};
  if (stopping_) return nullptr;
  auto& slot = channels_[member];
  if (!slot) {
    grpc::channel_options options;
    options.where = how_.where[member];
    options.description =
        how_.where.size() == 1 ? how_.url : fmt::format("{} at {}", how_.url, how_.names[member]);
    options.connect_timeout = 1s;
    // So long a connection may be mute while the server is well (docs/guides/etcd.md). Pings are answered by a server
    // that has much to do, too; one that is paused for longer gets a new connection, and no lease is lost for that.
    options.longest_silence = 1500ms;
    slot = std::make_shared<grpc::channel>(*reactor_, std::move(options));
  }
  return slot;
}

void cluster::rotate(std::size_t from) noexcept {
  current_.compare_exchange_strong(from, (from + 1) % size(), std::memory_order_relaxed);
}

// ---- asking on this thread

answer cluster::run(const question& what, const call& limits) {
  retry_policy policy{size(), what.repeatable, can_login()};
  for (;;) {
    const auto member = current();
    const auto unsure_before = policy.is_unsure();
    const auto over = channel(member);
    if (!over) return {closing(how_)};
    net::limits until{policy.until(now(), limits.deadline), limits.stop};
    auto got = over->call(what.method, what.body, headers(), until);
    switch (policy.judge(fate_of(got), may_go_on(limits))) {
      case retry_policy::step::done:
        return {policy.conclude(std::move(got)), unsure_before};
      case retry_policy::step::login:
        if (auto in = log_in(limits); !in) return {std::move(in).error(), unsure_before};
        break;
      case retry_policy::step::pause:
        rotate(member);
        pause(limits);
        break;
      case retry_policy::step::again:
        rotate(member);
        break;
    }
  }
}

result<grpc::reply> cluster::run_at(std::size_t member, const question& what, const call& limits) {
  const auto over = channel(member);
  if (!over) return closing(how_);
  const net::limits until{std::min(limits.deadline, now() + 2s), limits.stop};
  return over->call(what.method, what.body, headers(), until);
}

// ---- asking without waiting

class cluster::sending final : public grpc::reply_handler {
 public:
  sending(cluster& in, const question& what, const call& limits, handler& done)
      : in_(in),
        what_(what),
        limits_(limits),
        done_(done),
        policy_(in.size(), what.repeatable, in.can_login()) {}

  void go() noexcept {
    member_ = in_.current();
    unsure_before_ = policy_.is_unsure();
    const auto over = in_.channel(member_);
    if (!over) return finish(closing(in_.how_));
    const net::limits until{policy_.until(now(), limits_.deadline), limits_.stop};
    if (what_.at_once) {
      over->send_now(what_.method, what_.body, in_.headers(), until, *this);
    } else {
      over->send(what_.method, what_.body, in_.headers(), until, *this);
    }
  }
  const call& limits() const noexcept { return limits_; }
  // While it waits for its turn.
  std::optional<net::reactor::timer_id> patience_ends{};
  std::optional<std::stop_callback<std::function<void()>>> told_to_stop{};
  // Of a request that was never sent.
  void give_up() noexcept {
    finish(
        error{errc::unavailable, fmt::format("{}: there was no time left to ask.", in_.how_.url)});
  }
  void finish(result<grpc::reply> got) noexcept {
    auto& done = done_;
    auto& in = in_;
    answer out{policy_.conclude(std::move(got)), unsure_before_};
    delete this;
    in.request_done();
    done.on_answer(std::move(out));
  }

 private:
  void on_reply(result<grpc::reply> got) noexcept override {
    if (std::exchange(logging_in_, false)) {
      if (auto in = in_.note_login(got); !in) return finish(std::move(in).error());
      return go();
    }
    switch (policy_.judge(fate_of(got), may_go_on(limits_))) {
      case retry_policy::step::done:
        return finish(std::move(got));
      case retry_policy::step::login:
        return log_in();
      case retry_policy::step::pause:
        in_.rotate(member_);
        return in_.begin_pause(*this);
      case retry_policy::step::again:
        in_.rotate(member_);
        return go();
    }
  }
  void log_in() noexcept {
    const auto over = in_.channel(member_);
    if (!over) return finish(closing(in_.how_));
    logging_in_ = true;
    const auto request = in_.login_request();
    over->send(method::authenticate, request, {}, {limits_.deadline, limits_.stop}, *this);
  }

  cluster& in_;
  const question& what_;
  const call& limits_;
  handler& done_;
  retry_policy policy_;
  std::size_t member_ = 0;
  bool unsure_before_ = false;
  bool logging_in_ = false;
};

void cluster::post(const question& what, const call& limits, handler& done) noexcept {
  auto* const request = new sending{*this, what, limits, done};
  {
    const std::lock_guard lock{guard_};
    ++in_flight_;
    if (in_flight_ > most_in_flight && !stopping_) return enqueue(*request);
  }
  request->go();
}

// REQUIRES: guard_ is held.
void cluster::enqueue(sending& request) {
  const auto number = ++last_queued_;
  queue_.emplace(number, &request);
  const auto until = request.limits().deadline;
  if (until != steady_time::max())
    request.patience_ends = reactor_->at(until, [this, number] { give_up(number); });
  request.told_to_stop.emplace(request.limits().stop, [this, number] {
    reactor_->post([this, number] { give_up(number); });
  });
}

// REQUIRES: guard_ is held.
cluster::sending* cluster::take_from_queue(std::uint64_t number) {
  auto found = queue_.extract(number);
  if (found.empty()) return nullptr;
  auto* const request = found.mapped();
  if (request->patience_ends) reactor_->cancel(*request->patience_ends);
  return request;
}

void cluster::give_up(std::uint64_t number) noexcept {
  sending* request = nullptr;
  {
    const std::lock_guard lock{guard_};
    request = take_from_queue(number);
  }
  if (request != nullptr) request->give_up();
}

void cluster::ask_in_background(question what, nanoseconds patience, on_told done) noexcept {
  class background final : public handler {
   public:
    background(question about, nanoseconds patience, on_told done)
        : what_(std::move(about)), done_(std::move(done)) {
      limits_.deadline = now() + patience;
    }
    void go(cluster& over) noexcept { over.post(what_, limits_, *this); }

   private:
    void on_answer(answer said) noexcept override {
      done_(said);
      delete this;
    }
    const question what_;
    call limits_;
    const on_told done_;
  };
  (new background{std::move(what), patience, std::move(done)})->go(*this);
}

void cluster::send_off(question what) noexcept {
  ask_in_background(std::move(what), 10s, [](const answer&) {});
}

void cluster::request_done() noexcept {
  sending* next = nullptr;
  {
    const std::lock_guard lock{guard_};
    --in_flight_;
    if (!queue_.empty()) next = take_from_queue(queue_.begin()->first);
  }
  if (next != nullptr) driver().post([next] { next->go(); });
}

void cluster::stop() noexcept {
  std::vector<sending*> idle;
  std::vector<std::shared_ptr<grpc::channel>> open;
  {
    const std::lock_guard lock{guard_};
    if (std::exchange(stopping_, true)) return;
    idle.assign(pausing_.begin(), pausing_.end());
    pausing_.clear();
    while (!queue_.empty()) idle.push_back(take_from_queue(queue_.begin()->first));
    open.swap(channels_);
  }
  for (auto* request : idle) request->finish(closing(how_));
  open.clear();  // tells all that still wait
  reactor_.reset();
}

// The thread that takes it out of pausing_ goes on with it.
void cluster::begin_pause(sending& request) {
  {
    const std::lock_guard lock{guard_};
    if (!stopping_) {
      pausing_.insert(&request);
      reactor_->at(now() + pause_between_rounds, [this, which = &request] {
        {
          const std::lock_guard again{guard_};
          if (pausing_.erase(which) == 0) return;
        }
        which->go();
      });
      return;
    }
  }
  request.finish(closing(how_));
}

// ---- login

std::string cluster::login_request() const {
  rpc::AuthenticateRequest out;
  out.set_name(how_.user);
  out.set_password(how_.password);
  return bytes_of(out);
}

result<void> cluster::note_login(const result<grpc::reply>& got) {
  if (got && is_without_auth(*got)) {
    auth_off_ = true;
    return {};
  }
  auto in = read_reply<rpc::AuthenticateResponse>(got, {}, how_.url);
  if (!in) return std::move(in).error();
  const std::lock_guard lock{guard_};
  token_ = std::move(*in->mutable_token());
  return {};
}

result<void> cluster::log_in(const call& limits) {
  question what{method::authenticate, login_request()};
  retry_policy policy{size(), true, false};
  for (;;) {
    const auto member = current();
    const auto over = channel(member);
    if (!over) return closing(how_);
    const net::limits until{policy.until(now(), limits.deadline), limits.stop};
    const auto got = over->call(what.method, what.body, {}, until);
    const auto next = policy.judge(fate_of(got), may_go_on(limits));
    if (next == retry_policy::step::done) return note_login(got);
    rotate(member);
    if (next == retry_policy::step::pause) pause(limits);
  }
}

void cluster::log_in_soon() noexcept {
  ask_in_background({method::authenticate, login_request()}, 5s,
                    [this](const answer& said) { static_cast<void>(note_login(said.got)); });
}

grpc::header_list cluster::headers() const {
  if (how_.user.empty()) return {};
  const std::lock_guard lock{guard_};
  if (token_.empty()) return {};
  return {{"token", token_}};
}

// A member that is cut off from the others ends such streams, rather than to keep silent.
grpc::header_list cluster::stream_headers() const {
  auto out = headers();
  out.emplace_back("hasleader", "true");
  return out;
}

}  // namespace holdfast::engines::etcd
