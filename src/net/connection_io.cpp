// Writing and reading on a connection that is up.
#include "net/connection.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace holdfast::net {

namespace {

// Threads in exchange() in this process. Only a lone one may spin: two that do would fight over the cores.
std::atomic<int> calls_in_flight{0};

bool several_cores() noexcept {
  static const bool several = std::thread::hardware_concurrency() > 1;
  return several;
}

std::uint32_t event_of(io_result::direction wanted) noexcept {
  return wanted == io_result::direction::write ? EPOLLOUT : EPOLLIN;
}

}  // namespace

counted_call::counted_call() noexcept { calls_in_flight.fetch_add(1, std::memory_order_relaxed); }
counted_call::~counted_call() { calls_in_flight.fetch_sub(1, std::memory_order_relaxed); }

// ---- Writing ---------------------------------------------------------------------------------------------------

// REQUIRES: may_write(), or this goes on where the socket was full.
void connection::write_out(lock& locked) {
  writing_ = true;
  wake_list woken;
  if (std::exchange(blocked_on_, 0) != 0) protocol_->on_retry();
  if (write_all(locked, woken)) {
    writing_ = false;
    protocol_events out;
    if (phase_ == phase::ready) protocol_->on_written(0, out);
    apply(out, woken);
  }  // else the reactor goes on when the socket has room
  if (lead_ != nullptr && lead_->done) interrupt_leader();
  wake_unlocked(locked, woken);
}

// False: the socket is full. Calls may end while their requests are taken (those that cannot be sent any more): that is
// noted before the mutex is let go, because the protocol has forgotten them, and their threads may give up meanwhile.
bool connection::write_all(lock& locked, wake_list& woken) {
  constexpr int most_rounds = 16;  // a caller has its own answer to read
  for (int round = 0;; ++round) {
    if (chunk_at_ == chunk_.size()) {
      if (round >= most_rounds) {
        post_flush();
        return true;
      }
      chunk_.clear();
      chunk_at_ = 0;
      protocol_events out;
      protocol_->take_output(chunk_, out);
      apply(out, woken);
      if (chunk_.empty() || phase_ != phase::ready) return true;
    }
    locked.unlock();
    const auto sent = io_->write(std::string_view{chunk_}.substr(chunk_at_));
    locked.lock();
    if (phase_ != phase::ready) return true;
    if (sent.what == io_result::kind::would_block) {
      // TLS may have sent a part of what it did not accept.
      protocol_events out;
      if (!io_->reads_ahead()) protocol_->on_written(backlog(), out);
      apply(out, woken);
      blocked_on_ = event_of(sent.wanted);
      arm();
      return false;
    }
    if (sent.what != io_result::kind::done) {
      write_failed(sent);
      return true;
    }
    chunk_at_ += sent.bytes;
  }
}

// What came up while a thread read or gave up: acknowledgements, cancellations.
void connection::write_owed(lock& locked) {
  if (std::exchange(write_soon_, false) && may_write()) write_out(locked);
}

// The server's last words may still be there to be read ("too many clients"), so the reading thread finds the end.
void connection::write_failed(const io_result& how) {
  shut_ = true;
  write_failure_ = how.what == io_result::kind::closed ? "it was closed" : how.why;
  io_->shutdown();
  if (reader_ == reader::none) loop_.post(later([](connection& self) { self.read_pass(); }));
}

void connection::post_flush() {
  if (std::exchange(flush_posted_, true)) return;
  loop_.post(later([](connection& self) { self.flush(); }));
}

void connection::flush() noexcept {
  lock locked{guard_};
  flush_posted_ = false;
  if (may_write()) write_out(locked);
  if (phase_ == phase::ready && reader_ == reader::none) watch_input();
}

// ---- Who reads -------------------------------------------------------------------------------------------------

void connection::take_lead(blocked_call& call) {
  reader_ = reader::caller;
  lead_ = &call;
  if (std::exchange(reactor_reads_, false)) arm();
}

// A thread that waits anyway is the best reader; else the reactor, at once when it owes a handler an answer.
void connection::pass_lead(wake_list& woken) {
  lead_ = nullptr;
  reader_ = reader::none;
  if (phase_ != phase::ready) return;
  if (auto* const next = settings_->keep_open ? nullptr : followers_.take_newest()) {
    take_lead(*next);
    next->wake_claimed = true;
    woken.push_back({next, look});
    std::swap(woken.front(),
              woken.back());  // the answered ones can wait until another thread reads
  } else if (settings_->keep_open || protocol_->is_urgent() || shut_) {
    watch_input();
  } else {
    plan_tick();
  }
}

// One round: waits, reads, hands out.
void connection::lead(lock& locked, const blocked_call& self, steady_time deadline) {
  locked.unlock();
  const auto got = await_bytes(deadline);
  if (got.what == io_result::kind::done) protocol_->parse(read_buffer_.view());
  wake_list woken;
  locked.lock();
  take_in(got, woken);
  write_owed(locked);
  if (self.done) pass_lead(woken);
  wake_unlocked(locked, woken);
}

void connection::read_pass() noexcept {
  constexpr int most_rounds = 8;  // then the others of the reactor have their turn
  wake_list woken;
  {
    lock locked{guard_};
    if (phase_ != phase::ready || reader_ != reader::none) return;
    reader_ = reader::reactor;
    reactor_reads_ = false;
    maybe_more_ = true;
    for (int round = 0; round < most_rounds && maybe_more_ && phase_ == phase::ready; ++round) {
      locked.unlock();
      const auto got = read_some();
      if (got.what == io_result::kind::done) protocol_->parse(read_buffer_.view());
      locked.lock();
      take_in(got, woken);
      write_owed(locked);
    }
    pass_lead(woken);
  }
  wake(woken);
  deliver();
}

void connection::watch_input() {
  if (maybe_more_ || shut_) {
    loop_.post(later([](connection& self) { self.read_pass(); }));
  } else {
    reactor_reads_ = true;
    arm();
  }
}

void connection::arm() noexcept {
  const auto wanted = blocked_on_ | (reactor_reads_ ? event_of(read_wants_) : 0U);
  if (wanted == armed_) return;
  armed_ = wanted;
  loop_.rearm(io_->descriptor(), watch_, wanted);
}

void connection::on_ready_event(std::uint32_t events) noexcept {
  constexpr std::uint32_t trouble = EPOLLERR | EPOLLHUP;
  bool read = false;
  {
    lock locked{guard_};
    if (phase_ != phase::ready) return;
    armed_ = 0;
    if ((events & (blocked_on_ | trouble)) != 0 && blocked_on_ != 0) write_out(locked);
    if (phase_ != phase::ready) return;
    // While the reactor watches there is no other reader, so what is the reader's may be looked at.
    read = reactor_reads_ && (events & (event_of(read_wants_) | trouble)) != 0;
    if (read) reactor_reads_ = false;
    arm();
  }
  if (read) read_pass();
}

// ---- Getting bytes ---------------------------------------------------------------------------------------------

io_result connection::read_some() {
  const auto room = read_buffer_.room();
  if (room.empty())
    return io_result::failure(
        fmt::format("an answer is longer than {} MiB", read_buffer::most >> 20U), errc::protocol);
  auto got = io_->read(room);
  maybe_more_ = false;
  read_wants_ = got.wanted;
  if (got.what == io_result::kind::done) {
    read_buffer_.filled(got.bytes);
    maybe_more_ = io_->reads_ahead() || got.bytes == room.size();
  }
  return got;
}

// Of a leading caller. would_block: the deadline has passed, or something else is to be looked at.
io_result connection::await_bytes(steady_time deadline) {
  if (maybe_more_) {
    auto got = read_some();
    if (got.what != io_result::kind::would_block) return got;
  }
  if (auto got = spin_for_bytes(deadline)) return std::move(*got);
  sleep_for_bytes(deadline);
  return read_some();
}

std::optional<io_result> connection::spin_for_bytes(steady_time deadline) {
  const auto alone = [] { return calls_in_flight.load(std::memory_order_relaxed) == 1; };
  if (settings_->spin <= nanoseconds::zero() || !several_cores()) return std::nullopt;
  const auto end = std::min(deadline, std::chrono::steady_clock::now() + settings_->spin);
  while (alone() && std::chrono::steady_clock::now() < end) {
    auto got = read_some();
    if (got.what != io_result::kind::would_block) return got;
  }
  return std::nullopt;
}

void connection::sleep_for_bytes(steady_time deadline) noexcept {
  const auto events =
      static_cast<short>(read_wants_ == io_result::direction::write ? POLLOUT : POLLIN);
  pollfd ready[] = {{.fd = io_->descriptor(), .events = events, .revents = 0},
                    {.fd = interrupt_, .events = POLLIN, .revents = 0}};
  timespec left{};
  if (deadline != steady_time::max()) {
    const auto length =
        std::max<nanoseconds>(deadline - std::chrono::steady_clock::now(), nanoseconds::zero());
    const auto whole = std::chrono::duration_cast<std::chrono::seconds>(length);
    left.tv_sec = whole.count();
    left.tv_nsec = nanoseconds{length - whole}.count();
  }
  ppoll(ready, 2, deadline == steady_time::max() ? nullptr : &left, nullptr);
  if ((ready[1].revents & POLLIN) != 0) {
    std::uint64_t ignored = 0;
    static_cast<void>(!::read(interrupt_, &ignored, sizeof ignored));
  }
}

// ---- Handing out -----------------------------------------------------------------------------------------------

void connection::take_in(const io_result& got, wake_list& woken) {
  if (phase_ == phase::dead || got.what == io_result::kind::would_block) return;
  const auto& server = settings_->description;
  if (got.what == io_result::kind::done) {
    ++received_;
    protocol_events out;
    read_buffer_.consume(protocol_->receive(read_buffer_.view(), out));
    apply(out, woken);
  } else if (shut_) {
    fail_all(
        {errc::unavailable, fmt::format("the connection to {} broke ({})", server, write_failure_)},
        woken);
  } else if (got.what == io_result::kind::closed) {
    fail_all({errc::unavailable, fmt::format("{} closed the connection", server)}, woken);
  } else {
    fail_all({got.code, fmt::format("the connection to {} broke ({})", server, got.why)}, woken);
  }
}

}  // namespace holdfast::net
