// Asking the ensemble, on the calling thread or without waiting; and the end, which completes all that is under way.
#include "engines/zk/ensemble.hpp"
#include "engines/zk/errors.hpp"
#include "support/parker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace holdfast::engines::zk {

namespace {

using namespace std::chrono_literals;

steady_time now() { return std::chrono::steady_clock::now(); }

// Between two tries of a request that could not be sent.
constexpr nanoseconds pause_between_tries = 20ms;
constexpr nanoseconds farewell_takes = 1s;

bool may_go_on(const call& limits) {
  return !limits.stop.stop_requested() && now() + pause_between_tries < limits.deadline;
}

void pause(const call& limits) {
  support::parker parker;
  const std::stop_callback wake{limits.stop, [&] { parker.set(1); }};
  parker.wait(std::min(limits.deadline, now() + pause_between_tries));
}

error closing(const settings& how) {
  return {errc::unavailable, fmt::format("{}: the client is being closed.", how.url)};
}

bool is_end_of_session(jute::code said) {
  return said == jute::code::session_expired || said == jute::code::unknown_session ||
         said == jute::code::session_moved;
}

}  // namespace

result<answers> ensemble::read(const batch& what, std::unique_ptr<std::string> frames,
                               steady_time sent, std::uint64_t asked_in) {
  answers out;
  out.frames = std::move(frames);
  out.sent = sent;
  std::string_view rest = *out.frames;
  bool over = false, agreed = false;
  for (unsigned i = 0; i < what.size(); ++i) {
    auto header = what.header(jute::take_frame(rest), i);
    if (!header) {
      channel_->drop(header.error());
      return error{errc::outcome_unknown, unexpected_answer({}, how_.url).message()};
    }
    const auto said = what.outcome(*header, i);
    over = over || is_end_of_session(said);
    agreed = agreed || (what.is_write(i) && is_agreed(said));
    out.all.push_back(*header);
  }
  const std::lock_guard lock{guard_};
  if (session_.id == 0 || session_.number != asked_in) return out;
  out.session = asked_in;
  if (over) {
    // The server closes this connection; the next one will be told what became of the session.
    reactor_->post([this] {
      if (!is_stopping()) channel_->drop({errc::unavailable, "the session has ended or moved"});
    });
  } else if (agreed) {
    session_.proven = std::max(session_.proven, sent);
  }
  return out;
}

result<answers> ensemble::run(const batch& what, const call& limits, std::size_t most_attempts) {
  for (;;) {
    if (is_stopping()) return closing(how_);
    const auto asked_in = number_now();
    const auto sent = clock_.now();
    sent_at_.store(now(), std::memory_order_relaxed);
    auto frames = std::make_unique<std::string>();
    const auto got = channel_->exchange(what.bytes(), what.size(),
                                        {limits.deadline, limits.stop, what.only_over}, *frames);
    if (got) return read(what, std::move(frames), sent, asked_in);
    const bool tried_enough = attempts_.load() > most_attempts;
    if (got.error().code() != errc::unavailable || what.only_over != 0 || !may_go_on(limits) ||
        tried_enough)
      return got.error();
    pause(limits);
  }
}

class ensemble::sending final : public net::reply_handler {
 public:
  sending(ensemble& in, const batch& what, const call& limits, handler& done)
      : in_(in), what_(what), limits_(limits), done_(done) {}

  void go() noexcept {
    if (in_.is_stopping()) return finish(closing(in_.how_));
    asked_in_ = in_.number_now();
    sent_ = in_.clock_.now();
    in_.sent_at_.store(now(), std::memory_order_relaxed);
    const net::limits until{limits_.deadline, limits_.stop, what_.only_over};
    if (what_.at_once) {
      in_.channel_->send_now(what_.bytes(), what_.size(), until, *this);
    } else {
      in_.channel_->send(what_.bytes(), what_.size(), until, *this);
    }
  }
  void finish(result<answers> got) noexcept {
    auto& done = done_;
    delete this;
    done.on_answers(std::move(got));
  }

 private:
  void on_reply(result<std::string_view> frames) noexcept override {
    if (frames)
      return finish(in_.read(what_, std::make_unique<std::string>(*frames), sent_, asked_in_));
    if (frames.error().code() != errc::unavailable || what_.only_over != 0 || !may_go_on(limits_))
      return finish(frames.error());
    in_.begin_pause(*this);
  }

  ensemble& in_;
  const batch& what_;
  const call& limits_;
  handler& done_;
  std::uint64_t asked_in_ = 0;
  steady_time sent_{};
};

void ensemble::begin_pause(sending& request) {
  {
    const std::lock_guard lock{guard_};
    if (!stopping_) {
      pausing_.insert(&request);
      reactor_->at(now() + pause_between_tries, [this, which = &request] {
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

// A handler that is told of the end may well ask again: by then there is no channel.
void ensemble::post(const batch& what, const call& limits, handler& done) noexcept {
  if (is_stopping()) return done.on_answers(closing(how_));
  (new sending{*this, what, limits, done})->go();
}

void ensemble::ask_in_background(batch what, nanoseconds patience, on_told done) noexcept {
  class background final : public handler {
   public:
    background(batch about, nanoseconds patience, on_told done)
        : what_(std::move(about)), done_(std::move(done)) {
      limits_.deadline = now() + patience;
    }
    void go(ensemble& over) noexcept { over.post(what_, limits_, *this); }

   private:
    void on_answers(result<answers> said) noexcept override {
      done_(said);
      delete this;
    }
    const batch what_;
    call limits_;
    const on_told done_;
  };
  (new background{std::move(what), patience, std::move(done)})->go(*this);
}

// ---- the end

// All nodes of the session go with it, at once; a server that cannot be reached lets them go when its time is over.
void ensemble::stop() noexcept {
  close();
  reactor_.reset();
}

void ensemble::close() noexcept {
  std::set<sending*> idle;
  {
    const std::lock_guard lock{guard_};
    if (std::exchange(stopping_, true)) return;
    idle.swap(pausing_);
  }
  for (auto* request : idle) request->finish(closing(how_));
  if (channel_) {
    if (current().number != 0 && channel_->generation() != 0) {
      batch farewell;
      farewell.close_session();
      std::string into;
      const net::limits until{now() + farewell_takes, {}};
      static_cast<void>(channel_->exchange(farewell.bytes(), farewell.size(), until, into));
    }
    // What the reactor's thread began before it could see that we stop is over when this has run.
    support::parker told;
    reactor_->post([&] {
      if (timer_) reactor_->cancel(*timer_);
      timer_.reset();
      told.set(1);
    });
    told.wait(steady_time::max());
    channel_.reset();
  }
}

}  // namespace holdfast::engines::zk
