// Engines opened by hand, without core around them: for tests of the contract itself.
#pragma once

#include <holdfast/engine.hpp>

#include "core/renewal.hpp"
#include "support/fake_clock.hpp"

#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace holdfast::testing {

inline call call_within(nanoseconds length) {
  return {std::chrono::steady_clock::now() + length, {}};
}

class recording_listener final : public engine_listener {
 public:
  void on_lost(std::span<const owner_id> owners, std::string_view why) noexcept override {
    const std::lock_guard lock{guard_};
    for (const auto& owner : owners) lost_.emplace_back(owner, why);
  }
  void on_session_lost(std::uint64_t number, std::string_view) noexcept override {
    const std::lock_guard lock{guard_};
    lost_sessions_.push_back(number);
  }
  std::vector<std::uint64_t> lost_sessions() const {
    const std::lock_guard lock{guard_};
    return lost_sessions_;
  }
  std::vector<std::pair<owner_id, std::string>> lost() const {
    const std::lock_guard lock{guard_};
    return lost_;
  }

 private:
  mutable std::mutex guard_;
  std::vector<std::pair<owner_id, std::string>> lost_;
  std::vector<std::uint64_t> lost_sessions_;
};

template <class T>
class promised final : public completion<T> {
 public:
  void complete(result<T> outcome) noexcept override { promise_.set_value(std::move(outcome)); }
  bool is_done() const {
    return future_.wait_for(std::chrono::seconds{0}) == std::future_status::ready;
  }
  result<T> get() { return future_.get(); }

 private:
  std::promise<result<T>> promise_;
  std::future<result<T>> future_ = promise_.get_future();
};

// One client of a store, as core would be.
struct raw_client {
  using factory = result<std::unique_ptr<engine>> (*)(const engine_config&);

  raw_client(factory make, const std::string& text, const clock& time, std::uint64_t number)
      : url(store_url::parse(text).value()), id{0xc11e47, number} {
    open(make, time, static_cast<std::int64_t>(number));
  }

  owner_id next_owner() { return {id, ++sequence}; }
  request ask(std::string_view name) {
    request out;
    out.name = name;
    out.owner = next_owner();
    out.ttl = std::chrono::seconds{10};
    return out;
  }

  store_url url;
  std::array<std::uint64_t, 2> id;
  std::uint64_t sequence = 0;
  recording_listener listener;
  std::unique_ptr<engine> verbs;

  // As core would believe in it, less what it takes off for the difference of two clocks.
  steady_time believed_until(const grant& held) const {
    return core::believed_until(verbs->caps(), held);
  }

 private:
  void open(factory make, const clock& time, std::int64_t pid) {
    verbs = make(engine_config{url, id, time, listener, "here", pid}).value();
  }
};

}  // namespace holdfast::testing
