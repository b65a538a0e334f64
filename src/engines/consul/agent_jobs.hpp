// What is under way on the agent's thread: posted requests, and blocking queries.
#pragma once

#include "engines/consul/agent_loop.hpp"
#include "engines/consul/attempts.hpp"

#include <functional>
#include <optional>
#include <stop_token>
#include <utility>

namespace holdfast::engines::consul {

// Deletes itself when it is done.
class agent::loop::sending final : public job {
 public:
  sending(loop& in, std::uint64_t number, const question& what, const call& limits, handler& done)
      : in_(in),
        number_(number),
        what_(what),
        limits_(limits),
        done_(done),
        tries_(in.of_.size(), what.repeatable) {}

  loop::turn turn() const noexcept { return {what_.before, number_}; }
  void accept() noexcept {
    in_.sendings_.emplace(number_, this);
    in_.waiting_.emplace(turn(), this);
    in_.set_time(*this, limits_.deadline);
    if (limits_.stop.stop_possible()) stopped_.emplace(limits_.stop, on_stop{&in_, number_});
  }
  // Its turn has come. REQUIRES: it is not in waiting_ any more.
  void go() noexcept {
    state_ = state::under_way;
    if (!may_go_on(limits_)) return finish(no_time_to_ask(in_.of_.how_));
    member_ = in_.of_.current();
    const auto until = tries_.begin(std::chrono::steady_clock::now(), limits_.deadline);
    in_.send(*this, member_, what_, until);
  }
  void interrupt(cut why) noexcept override;
  void on_result(result<http_reply> got, unsigned sends) noexcept override;

 private:
  enum class state : std::uint8_t { waiting, under_way, pausing };
  struct on_stop {
    loop* in;
    std::uint64_t number;
    void operator()() const noexcept { in->note_stop(number); }
  };
  void finish(result<http_reply> got) noexcept;

  loop& in_;
  const std::uint64_t number_;
  const question& what_;
  const call& limits_;
  handler& done_;
  attempts tries_;
  state state_ = state::waiting;
  std::size_t member_ = 0;
  std::optional<result<http_reply>> last_{};  // of the try before a pause
  std::optional<std::stop_callback<on_stop>> stopped_{};
};

inline void agent::loop::sending::on_result(result<http_reply> got, unsigned sends) noexcept {
  const auto next = tries_.judge(got, sends, may_go_on(limits_) && !in_.closing_);
  if (next != retry_policy::step::again && next != retry_policy::step::pause)
    return finish(std::move(got));
  in_.of_.rotate(member_);
  if (next == retry_policy::step::again) return go();
  state_ = state::pausing;
  last_.emplace(std::move(got));
  in_.set_time(*this, std::min(limits_.deadline, loop::in(tries_.pause())));
}

inline void agent::loop::sending::interrupt(cut why) noexcept {
  const auto& how = in_.of_.how_;
  switch (state_) {
    case state::waiting:
      in_.waiting_.erase(turn());
      return finish(why == cut::closing ? client_is_closing(how) : no_time_to_ask(how));
    case state::pausing:
      if (why == cut::out_of_time && may_go_on(limits_)) return go();
      return finish(std::move(*last_));
    case state::under_way: {
      const auto sends = over->sends();
      return on_result(in_.cut_off(*this, why), sends);
    }
  }
}

inline void agent::loop::sending::finish(result<http_reply> got) noexcept {
  auto& done = done_;
  auto said = tries_.conclude(std::move(got));
  in_.set_time(*this, steady_time::max());
  in_.sendings_.erase(number_);
  if (state_ != state::waiting) --in_.in_flight_;
  delete this;
  done.on_answer(std::move(said));
}

class agent::loop::query final : public job {
 public:
  query(loop& in, new_query&& asked)
      : in_(in), which_(asked.which), what_{question::verb::get, std::move(asked.path)} {}
  void go(steady_time until) noexcept { in_.send(*this, in_.of_.current(), what_, until); }
  void interrupt(cut why) noexcept override { on_result(in_.cut_off(*this, why), 0); }
  void on_result(result<http_reply> got, unsigned) noexcept override {
    auto& in = in_;
    const auto which = which_;
    in.queries_.erase(which);  // and this with it
    in.tell(which, std::move(got));
  }

 private:
  loop& in_;
  const query_id which_;
  const question what_;
};

}  // namespace holdfast::engines::consul
