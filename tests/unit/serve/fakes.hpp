// A transport without a network for tests of the service's parts: requests that are made up, answers that are kept, and
// a loop whose time the test moves.
#pragma once

#include "server/http.hpp"
#include "server/problems.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace holdfast::testing {

// Runs what throws refused and gives back why; nothing when it does not throw.
template <class Action>
std::optional<server::problem> refusal_of(Action&& action) {
  try {
    action();
  } catch (const server::refused& no) {
    return no.why();
  }
  return std::nullopt;
}

// Its status, 0 when it is not refused.
template <class Action>
int status_of(Action&& action) {
  const auto why = refusal_of(std::forward<Action>(action));
  return why ? why->status : 0;
}

// What a client reads of its stream. It has room for as many events as the test says.
class fake_stream final : public server::event_stream {
 public:
  bool send(std::string_view event, std::string_view data) override {
    if (room == 0 || is_finished) return false;
    --room;
    seen.emplace_back(event, data);
    return true;
  }
  bool send(const server::event_batch& batch) override {
    return std::ranges::all_of(batch.events(),
                               [this](const auto& each) { return send(each.first, each.second); });
  }
  void carries_lease() override {}
  std::chrono::nanoseconds lives_for() const override { return left; }
  void finish(std::string_view event, std::string_view data) override {
    if (std::exchange(is_finished, true) || event.empty()) return;
    seen.emplace_back(event, data);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& [event, data] : seen) out.push_back(event);
    return out;
  }

  std::vector<std::pair<std::string, std::string>> seen;
  std::size_t room = 1000;
  std::chrono::nanoseconds left = server::connection_silence;
  bool is_finished = false;
};

class fake_exchange final : public server::exchange {
 public:
  using header_list = std::vector<std::pair<std::string, std::string>>;

  fake_exchange(std::string method, std::string target, header_list headers = {},
                std::string body = {})
      : method_(std::move(method)),
        target_(std::move(target)),
        headers_(std::move(headers)),
        body_(std::move(body)) {
    asked_.method = method_;
    asked_.target = target_;
    asked_.body = body_;
    for (const auto& [name, value] : headers_) asked_.headers.emplace_back(name, value);
    asked_.from_this_machine = true;
    asked_.peer = "127.0.0.1";
  }
  const server::request& asked() const noexcept override { return asked_; }
  std::stop_token gone() const noexcept override { return gone_.get_token(); }
  void respond(server::response answer) override {
    EXPECT_FALSE(answered) << "answered twice";
    answered = std::move(answer);
  }
  std::shared_ptr<server::event_stream> stream() override { return events; }
  void leave() { gone_.request_stop(); }

  std::optional<server::response> answered;
  std::shared_ptr<fake_stream> events = std::make_shared<fake_stream>();

 private:
  std::string method_, target_;
  header_list headers_;
  std::string body_;
  server::request asked_;
  std::stop_source gone_;
};

// Everything in the test's own thread: what is posted runs in run(), timers in advance().
class fake_loop final : public server::loop {
 public:
  void post(std::function<void()> what) override { posted_.push_back(std::move(what)); }
  std::unique_ptr<server::timer> after(std::chrono::nanoseconds delay,
                                       std::function<void()> what) override {
    auto alive = std::make_shared<bool>(true);
    timers_.push_back({now_ + delay, std::move(what), alive});
    return std::make_unique<handle>(std::move(alive));
  }
  std::unique_ptr<server::timer> when_readable(int, std::function<void()>) override {
    return nullptr;
  }
  bool work(std::function<void()> blocking, std::function<void()> then) override {
    if (is_full) return false;
    posted_.push_back([job = std::move(blocking), next = std::move(then)] { job(), next(); });
    return true;
  }

  void run() {
    while (!posted_.empty()) {
      const auto what = std::move(posted_.front());
      posted_.pop_front();
      what();
    }
  }
  void advance(std::chrono::nanoseconds time) {
    now_ += time;
    run();
    for (auto it = next_due(); it != timers_.end(); it = next_due()) {
      const auto due = std::move(*it);
      timers_.erase(it);
      if (!due.alive.expired()) due.what();
      run();
    }
  }
  std::size_t timers() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(timers_, [](const auto& each) { return !each.alive.expired(); }));
  }

  bool is_full = false;

 private:
  struct entry {
    std::chrono::nanoseconds at;
    std::function<void()> what;
    std::weak_ptr<bool> alive;
  };
  struct handle final : server::timer {
    explicit handle(std::shared_ptr<bool> of) : alive(std::move(of)) {}
    std::shared_ptr<bool> alive;
  };
  std::list<entry>::iterator next_due() {
    return std::ranges::find_if(timers_, [this](const entry& each) { return each.at <= now_; });
  }

  std::chrono::nanoseconds now_{0};
  std::list<entry> timers_;
  std::deque<std::function<void()>> posted_;
};

}  // namespace holdfast::testing
