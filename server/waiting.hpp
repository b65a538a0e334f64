// The calls that are on their way to a lock, and whoever waits for their answers.
#pragma once

#include "http.hpp"
#include "limits.hpp"
#include "router.hpp"

#include <holdfast/client.hpp>
#include <holdfast/engine.hpp>

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace holdfast::server {

// One acquire. Usually one client waits for it; more when it, or a proxy, has asked again with the same request_id. It
// is cancelled when all of them have gone.
class waiting_call {
 public:
  explicit waiting_call(visit of);
  waiting_call(const waiting_call&) = delete;
  waiting_call& operator=(const waiting_call&) = delete;

  // One more client, and its place among those who wait. It is forgotten as soon as it goes.
  void attach(visit more, limits::place its_place);
  void cancel(problem why);
  // All had gone, and one has come again before the store said the last word: to be asked once more.
  bool is_wanted_again() const noexcept {
    return here_ > 0 && !cancelled_ && stop_.stop_requested();
  }
  void ask_again() { stop_ = std::stop_source{}; }
  std::stop_token stop() const noexcept { return stop_.get_token(); }
  // Why it was cancelled, if not by its clients.
  const std::optional<problem>& cancelled() const noexcept { return cancelled_; }
  bool is_abandoned() const noexcept { return here_ == 0; }
  // With which it began, whether its client is still there or not.
  const visit& first() const noexcept { return clients_.front().from; }
  const key& who() const noexcept { return *first().who; }
  std::chrono::steady_clock::time_point came() const noexcept { return first().came; }
  template <class Visitor>
  void for_each(Visitor visit) const {
    for (const auto& each : clients_) visit(each.from);
  }
  // How many are to be answered, or may be.
  std::size_t size() const noexcept { return clients_.size(); }
  void answer(const response& with) const;
  void refuse(const problem& why) const;

  // Shown to operators while it waits in this process, and not in the store.
  holder_info shown{};
  std::string name{};
  bool is_queued = false;
  std::string request{};  // hash of its request_id
  std::string question{};
  limits::place waiter{}, lease{};
  std::vector<limits::place> more_leases{};
  std::unique_ptr<timer> process{};
  limits::place process_place{};

 private:
  struct client_of_it {
    explicit client_of_it(visit of, limits::place among = {})
        : from(std::move(of)), waiter(std::move(among)) {}
    visit from;
    limits::place waiter;
    std::optional<std::stop_callback<std::function<void()>>> on_gone{};
  };
  void one_has_gone();
  void forget(std::list<client_of_it>::iterator gone);
  std::list<client_of_it> clients_;
  std::size_t here_ = 0;
  std::stop_source stop_;
  std::optional<problem> cancelled_;
};

using call_ptr = std::shared_ptr<waiting_call>;

class waiting_room {
 public:
  void enter(const call_ptr& call);
  void leave(const call_ptr& call);
  // One on its way with this request_id, or null.
  call_ptr find(const std::string& request) const;
  void stop_all();
  std::size_t size() const noexcept { return all_.size(); }
  template <class Visitor>
  void for_each(Visitor visit) const {
    for (const auto& each : all_) visit(*each);
  }
  // Adds those that wait for an exclusive lock behind another one of this process: the store has only the first. `own`
  // is the client half of our owner ids.
  void add_to(std::vector<lock_info>& locks, const std::array<std::uint64_t, 2>& own) const;

 private:
  std::list<call_ptr> all_;
  std::unordered_map<const waiting_call*, std::list<call_ptr>::iterator> places_;
  std::unordered_map<std::string, call_ptr> by_request_;
};

}  // namespace holdfast::server
