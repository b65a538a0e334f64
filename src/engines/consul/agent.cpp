#include "engines/consul/agent.hpp"

#include "engines/consul/agent_loop.hpp"
#include "engines/consul/attempts.hpp"
#include "engines/consul/connection_pool.hpp"
#include "engines/consul/http_transfer.hpp"
#include "support/fork.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace holdfast::engines::consul {

retry_policy::fate fate_of(const result<http_reply>& got) {
  using fate = retry_policy::fate;
  if (!got) {
    if (got.error().code() == errc::outcome_unknown) return fate::unanswered;
    return got.error().code() == errc::unavailable ? fate::not_sent : fate::refused;
  }
  if (got->status < 500) return got->status == 429 ? fate::overloaded : fate::answered;
  if (got->status == 503) return fate::overloaded;
  const auto says = [&](std::string_view words) {
    return got->status == 500 && got->body.find(words) != std::string::npos;
  };
  if (says("No cluster leader")) return fate::no_leader;
  return says("Invalid Session TTL") ? fate::answered : fate::unanswered;
}

// ---- beginning and end

agent::agent(const settings& how)
    : how_(how),
      born_(support::fork_generation()),
      setup_(std::make_unique<http_setup>(how_)),
      connections_(std::make_unique<connection_pool>(*setup_)) {}

result<std::unique_ptr<agent>> agent::start(const settings& how) {
  // It becomes a line of a request.
  if (support::has_control(how.token))
    return not_done{errc::misconfigured,
                    fmt::format("{}: the ACL token has a control character in it.", how.url)};
  start_libcurl();
  std::unique_ptr<agent> self{new agent{how}};
  auto begun = loop::start(*self);
  if (!begun) return std::move(begun).error();
  self->loop_ = std::move(*begun);
  return self;
}

agent::~agent() {
  stop();
  if (born_ == support::fork_generation()) return;
  // The thread is not in this process, and whatever lock it held will stay locked: leave everything where it is.
  static_cast<void>(loop_.release());
  static_cast<void>(connections_.release());
  static_cast<void>(setup_.release());
}

void agent::stop() noexcept {
  if (born_ != support::fork_generation()) return;
  connections_->close();
  if (loop_) loop_->stop();
}

// ---- asking on this thread

answer agent::run(const question& what, const call& limits) {
  connection_pool::visit over{*connections_};
  if (!over) return {client_is_closing(how_)};
  if (!may_go_on(limits)) return {no_time_to_ask(how_)};
  attempts tries{size(), what.repeatable};
  for (;;) {
    const auto member = current();
    const call until{tries.begin(std::chrono::steady_clock::now(), limits.deadline), limits.stop};
    auto got = over.ask(member, what, until);
    const auto has_time = [&] { return may_go_on(limits) && !connections_->is_closing(); };
    const auto next = tries.judge(got, over.sends(), has_time());
    if (next != retry_policy::step::again && next != retry_policy::step::pause)
      return tries.conclude(std::move(got));
    rotate(member);
    if (next == retry_policy::step::again) continue;
    over.pause(tries.pause(), limits);
    if (!has_time()) return tries.conclude(std::move(got));
  }
}

result<http_reply> agent::run_at(std::size_t member, const question& what, const call& limits) {
  connection_pool::visit over{*connections_};
  if (!over) return client_is_closing(how_);
  const auto soon = std::chrono::steady_clock::now() + std::chrono::seconds{2};
  return over.ask(member, what, {std::min(limits.deadline, soon), limits.stop});
}

// ---- asking without waiting

void agent::post(const question& what, const call& limits, handler& done) noexcept {
  loop_->post(what, limits, done);
}

void agent::ask_in_background(question what, nanoseconds patience, on_told done) noexcept {
  class background final : public handler {
   public:
    background(question about, nanoseconds patience, on_told done)
        : what_(std::move(about)), done_(std::move(done)) {
      limits_.deadline = loop::in(patience);
    }
    void go(agent& over) noexcept { over.post(what_, limits_, *this); }

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

agent::query_id agent::listen(std::string path, nanoseconds patience, on_reply done) noexcept {
  return loop_->listen(std::move(path), patience, std::move(done));
}

void agent::cancel_listening(query_id which) noexcept { loop_->cancel_listening(which); }

std::size_t agent::listening() const noexcept { return loop_->listening(); }

// ---- time

void agent::run_soon(std::function<void()> work) noexcept { loop_->run_soon(std::move(work)); }

agent::timer_id agent::at(steady_time when, std::function<void()> work) {
  return loop_->at(when, std::move(work));
}

void agent::cancel(timer_id which) { loop_->cancel(which); }

}  // namespace holdfast::engines::consul
