// The agent's own thread: what is posted, blocking queries, timers. One curl multi handle, told by epoll which sockets
// are ready, so that hundreds of queries that only wait cost nothing.
//
// What others ask for is noted under guard_; the thread takes it from there. All that libcurl touches, and all jobs,
// belong to the thread alone. Nobody is told anything under the lock.
#pragma once

#include "engines/consul/http_transfer.hpp"

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace holdfast::engines::consul {

class agent::loop {
 public:
  static result<std::unique_ptr<loop>> start(agent& of);
  loop(const loop&) = delete;
  loop& operator=(const loop&) = delete;
  ~loop();
  void stop() noexcept;

  void post(const question& what, const call& limits, handler& done) noexcept;
  query_id listen(std::string path, nanoseconds patience, on_reply done) noexcept;
  void cancel_listening(query_id which) noexcept;
  std::size_t listening() const noexcept;
  void run_soon(std::function<void()> work) noexcept;
  timer_id at(steady_time when, std::function<void()> work);
  void cancel(timer_id which);

  // That long from now; never, for what is longer than time.
  static steady_time in(nanoseconds patience) noexcept;

 private:
  // Something under way on the thread. It has at most one time at which it wants to be woken, and at most one transfer.
  class job {
   public:
    virtual void on_result(result<http_reply> got, unsigned sends) noexcept = 0;
    // Its time has come, or it is to end.
    virtual void interrupt(cut why) noexcept = 0;
    std::unique_ptr<http_transfer> over{};
    steady_time wakes_at = steady_time::max();

   protected:
    ~job() = default;
  };
  class sending;
  class query;
  using turn = std::pair<question::rank, std::uint64_t>;  // in the order in which they came
  struct new_query {
    query_id which;
    std::string path;
    steady_time until;
  };
  // What others have asked for since the thread looked last.
  struct news {
    std::vector<sending*> posted;
    std::vector<std::uint64_t> stopped;  // numbers of sendings
    std::vector<new_query> queries;
    std::vector<query_id> cancelled;
    std::vector<std::function<void()>> soon;
    bool empty() const noexcept {
      return posted.empty() && stopped.empty() && queries.empty() && cancelled.empty() &&
             soon.empty();
    }
  };
  using timer_key = std::pair<steady_time, timer_id>;

  explicit loop(agent& of);
  result<void> open();
  void begin();

  // On any thread.
  void wake() noexcept;
  void note_stop(std::uint64_t number) noexcept;

  // On the thread.
  void run() noexcept;
  bool prepare_to_sleep(int& timeout);
  void poll(int timeout) noexcept;
  void drive(curl_socket_t fd, int events) noexcept;
  void drive_if_due() noexcept;
  void run_timers() noexcept;
  void take_news() noexcept;
  void wake_jobs() noexcept;
  void begin_waiting() noexcept;
  void read_messages() noexcept;
  void end_all() noexcept;
  void accept(new_query&& asked) noexcept;
  void tell(query_id which, result<http_reply> got) noexcept;

  // Of jobs.
  void set_time(job& of, steady_time when);
  void send(job& of, std::size_t member, const question& what, steady_time until) noexcept;
  result<http_reply> cut_off(job& of, cut why);
  void detach(job& from);
  void limit_connections();

  static int on_socket(CURL*, curl_socket_t fd, int what, void* self, void* known) noexcept;
  static int on_curl_time(CURLM*, long timeout_ms, void* self) noexcept;

  agent& of_;
  int poll_fd_ = -1, wake_fd_ = -1;
  CURLM* driver_ = nullptr;
  std::thread thread_;
  std::mutex joining_;

  mutable std::mutex guard_;
  bool asleep_ = false, stopping_ = false, ended_ = false;
  steady_time wakes_at_{};
  news news_;
  std::uint64_t last_number_ = 0;  // of sendings, queries and timers
  std::unordered_map<query_id, on_reply> listeners_;
  std::map<timer_key, std::function<void()>> timers_;
  std::unordered_map<timer_id, steady_time> timer_times_;

  // The thread's own.
  steady_time curl_wakes_at_ = steady_time::max();
  news taken_;
  std::vector<std::unique_ptr<http_transfer>> idle_;
  std::set<std::pair<steady_time, job*>> times_;
  std::unordered_map<std::uint64_t, sending*> sendings_;
  std::map<turn, sending*> waiting_;
  std::size_t in_flight_ = 0;
  std::unordered_map<query_id, std::unique_ptr<query>> queries_;
  bool closing_ = false;
};

// An exception of work is dropped: what it was for has its own deadline, and the thread serves all.
template <class Work, class... Given>
void run_guarded(const Work& work, Given&&... given) noexcept {
  try {
    work(std::forward<Given>(given)...);
  } catch (const std::exception&) {
  }
}

}  // namespace holdfast::engines::consul
