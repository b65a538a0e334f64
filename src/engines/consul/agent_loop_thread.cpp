#include "engines/consul/agent_jobs.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace holdfast::engines::consul {

namespace {

// Consul takes no more than 200 connections of one address unless told otherwise.
constexpr std::size_t most_in_flight = 64;
// Beside those: when all that is under way hangs there is still room for proofs.
constexpr std::size_t kept_for_proofs = 8;

}  // namespace

void agent::loop::run() noexcept {
  for (int timeout = 0; prepare_to_sleep(timeout);) {
    poll(timeout);
    run_timers();
    take_news();
    if (closing_) end_all();
    wake_jobs();
    begin_waiting();
    drive_if_due();
    read_messages();
    begin_waiting();
  }
}

// False: it is over.
bool agent::loop::prepare_to_sleep(int& timeout) {
  std::map<timer_key, std::function<void()>> dropped;  // destroyed without the lock
  const std::lock_guard lock{guard_};
  timeout = 0;
  if (stopping_ && !closing_) return closing_ = true;
  if (!news_.empty()) return true;
  if (stopping_) {
    ended_ = true;
    timer_times_.clear();
    dropped.swap(timers_);
    return false;
  }
  wakes_at_ = timers_.empty() ? steady_time::max() : timers_.begin()->first.first;
  if (!times_.empty()) wakes_at_ = std::min(wakes_at_, times_.begin()->first);
  wakes_at_ = std::min(wakes_at_, curl_wakes_at_);
  const auto now = std::chrono::steady_clock::now();
  if (wakes_at_ <= now) return true;
  asleep_ = true;
  timeout = -1;
  if (wakes_at_ == steady_time::max()) return true;
  // Rounded up: to wake early would be to spin. An hour is as good as any longer sleep.
  const auto length = std::min<nanoseconds>(wakes_at_ - now, std::chrono::hours{1});
  timeout = static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(length).count());
  return true;
}

void agent::loop::poll(int timeout) noexcept {
  std::array<epoll_event, 64> events;  // NOLINT: filled by epoll_wait
  const int count = epoll_wait(poll_fd_, events.data(), static_cast<int>(events.size()), timeout);
  if (timeout != 0) {
    const std::lock_guard lock{guard_};
    asleep_ = false;
  }
  for (int i = 0; i < count; ++i) {
    const auto& event = events[static_cast<std::size_t>(i)];
    const int fd = event.data.fd;
    if (fd == wake_fd_) {
      std::uint64_t ignored = 0;
      static_cast<void>(!::read(wake_fd_, &ignored, sizeof ignored));
      continue;
    }
    // What is wrong with a socket comes out when it is read or written.
    int ready = 0;
    if ((event.events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) ready |= CURL_CSELECT_IN;
    if ((event.events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) ready |= CURL_CSELECT_OUT;
    drive(fd, ready);
  }
  read_messages();
}

void agent::loop::drive(curl_socket_t fd, int events) noexcept {
  int running = 0;
  curl_multi_socket_action(driver_, fd, events, &running);
}

void agent::loop::drive_if_due() noexcept {
  if (curl_wakes_at_ > std::chrono::steady_clock::now()) return;
  curl_wakes_at_ = steady_time::max();  // libcurl says it anew
  drive(CURL_SOCKET_TIMEOUT, 0);
}

int agent::loop::on_socket(CURL*, curl_socket_t fd, int what, void* self, void* known) noexcept {
  auto& in = *static_cast<loop*>(self);
  if (what == CURL_POLL_REMOVE) {
    epoll_ctl(in.poll_fd_, EPOLL_CTL_DEL, fd, nullptr);
    return 0;
  }
  epoll_event event{};
  if (what != CURL_POLL_OUT) event.events |= EPOLLIN;
  if (what != CURL_POLL_IN) event.events |= EPOLLOUT;
  event.data.fd = fd;
  const int first = known == nullptr ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  if (epoll_ctl(in.poll_fd_, first, fd, &event) != 0)
    epoll_ctl(in.poll_fd_, known == nullptr ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event);
  if (known == nullptr) curl_multi_assign(in.driver_, fd, self);
  return 0;
}

int agent::loop::on_curl_time(CURLM*, long timeout_ms, void* self) noexcept {
  static_cast<loop*>(self)->curl_wakes_at_ =
      timeout_ms < 0 ? steady_time::max() : in(std::chrono::milliseconds{timeout_ms});
  return 0;
}

// Only those that were there when it began: one that plans itself for the past must not keep the others waiting.
void agent::loop::run_timers() noexcept {
  const auto now = std::chrono::steady_clock::now();
  timer_id newest = 0;
  for (;;) {
    std::function<void()> work;
    {
      const std::lock_guard lock{guard_};
      if (newest == 0) newest = last_number_;
      if (timers_.empty() || timers_.begin()->first.first > now) return;
      if (timers_.begin()->first.second > newest) return;
      auto due = timers_.extract(timers_.begin());
      timer_times_.erase(due.key().second);
      work = std::move(due.mapped());
    }
    run_guarded(work);
  }
}

void agent::loop::take_news() noexcept {
  {
    const std::lock_guard lock{guard_};
    std::swap(taken_, news_);
  }
  for (auto* const request : taken_.posted) request->accept();
  for (auto& asked : taken_.queries) accept(std::move(asked));
  for (const auto which : taken_.cancelled) {
    const auto found = queries_.find(which);
    if (found == queries_.end()) continue;
    detach(*found->second);
    queries_.erase(found);
  }
  for (const auto number : taken_.stopped) {
    const auto found = sendings_.find(number);
    if (found != sendings_.end()) found->second->interrupt(cut::stopped);
  }
  for (auto& work : taken_.soon) run_guarded(std::exchange(work, nullptr));
  taken_.posted.clear();
  taken_.queries.clear();
  taken_.cancelled.clear();
  taken_.stopped.clear();
  taken_.soon.clear();
}

void agent::loop::accept(new_query&& asked) noexcept {
  const auto until = asked.until;
  const auto which = asked.which;
  {
    const std::lock_guard lock{guard_};
    if (!listeners_.contains(which)) return;  // cancelled before it was asked
  }
  const auto made = queries_.emplace(which, std::make_unique<query>(*this, std::move(asked))).first;
  made->second->go(until);
}

void agent::loop::tell(query_id which, result<http_reply> got) noexcept {
  on_reply done;
  {
    const std::lock_guard lock{guard_};
    auto found = listeners_.extract(which);
    if (found.empty()) return;  // cancelled
    done = std::move(found.mapped());
  }
  run_guarded(done, std::move(got));
}

void agent::loop::wake_jobs() noexcept {
  const auto now = std::chrono::steady_clock::now();
  while (!times_.empty() && times_.begin()->first <= now) {
    auto& one = *times_.begin()->second;
    set_time(one, steady_time::max());
    one.interrupt(cut::out_of_time);
  }
}

void agent::loop::begin_waiting() noexcept {
  while (!waiting_.empty()) {
    const bool is_work = waiting_.begin()->first.first == question::rank::work;
    if (in_flight_ >= most_in_flight + (is_work ? 0 : kept_for_proofs)) return;
    auto* const next = waiting_.extract(waiting_.begin()).mapped();
    ++in_flight_;
    next->go();
  }
}

void agent::loop::read_messages() noexcept {
  int left = 0;
  while (const auto* const said = curl_multi_info_read(driver_, &left)) {
    if (said->msg != CURLMSG_DONE) continue;
    const auto how = said->data.result;
    char* whose = nullptr;
    curl_easy_getinfo(said->easy_handle, CURLINFO_PRIVATE, &whose);
    auto& one = *static_cast<job*>(static_cast<void*>(whose));
    auto got = one.over->finish(how);
    const auto sends = one.over->sends();
    detach(one);
    one.on_result(std::move(got), sends);
  }
}

void agent::loop::end_all() noexcept {
  while (!sendings_.empty()) sendings_.begin()->second->interrupt(cut::closing);
  while (!queries_.empty()) queries_.begin()->second->interrupt(cut::closing);
}

// ---- of jobs

void agent::loop::set_time(job& of, steady_time when) {
  if (of.wakes_at == when) return;
  if (of.wakes_at != steady_time::max()) times_.erase({of.wakes_at, &of});
  of.wakes_at = when;
  if (when != steady_time::max()) times_.emplace(when, &of);
}

void agent::loop::send(job& of, std::size_t member, const question& what,
                       steady_time until) noexcept {
  if (idle_.empty()) idle_.push_back(std::make_unique<http_transfer>(*of_.setup_));
  of.over = std::move(idle_.back());
  idle_.pop_back();
  set_time(of, until);
  auto ready = of.over->prepare(member, what);
  if (ready) {
    curl_easy_setopt(of.over->handle(), CURLOPT_PRIVATE, &of);
    limit_connections();
    if (curl_multi_add_handle(driver_, of.over->handle()) == CURLM_OK) return;
    ready = not_done{errc::unavailable, fmt::format("{}: libcurl has no memory.", of_.how_.url)};
  }
  detach(of);
  of.on_result(std::move(ready).error(), 0);
}

result<http_reply> agent::loop::cut_off(job& of, cut why) {
  auto said = of.over->give_up(why);
  detach(of);
  return said;
}

// A request that is not through yet is closed by this, so the server hears of it.
void agent::loop::detach(job& from) {
  set_time(from, steady_time::max());
  curl_multi_remove_handle(driver_, from.over->handle());
  if (idle_.size() < most_in_flight + kept_for_proofs) idle_.push_back(std::move(from.over));
  from.over.reset();
}

// libcurl counts those in use, too: queries that wait must not cost the others their open connections.
void agent::loop::limit_connections() {
  curl_multi_setopt(driver_, CURLMOPT_MAXCONNECTS,
                    static_cast<long>(most_in_flight + kept_for_proofs + queries_.size()));
}

}  // namespace holdfast::engines::consul
