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

one_more_call::one_more_call() noexcept { calls_in_flight.fetch_add(1, std::memory_order_relaxed); }
one_more_call::~one_more_call() { calls_in_flight.fetch_sub(1, std::memory_order_relaxed); }

// ---- Writing ---------------------------------------------------------------------------------------------------

// REQUIRES: may_write(), or this goes on where the socket was full.
void connection::write_out(lock& locked) {
  constexpr int most_rounds = 16;  // a caller has its own answer to read
  writing_ = true;
  blocked_on_ = 0;
  order_.tried_again();
  for (int round = 0;; ++round) {
    if (chunk_at_ == chunk_.size()) {
      if (order_.unsent() == 0 || round >= most_rounds) break;
      order_.pick_up(chunk_);
      chunk_at_ = 0;
    }
    locked.unlock();
    const auto sent = io_->write(std::string_view{chunk_}.substr(chunk_at_));
    locked.lock();
    if (phase_ != phase::ready) break;
    if (sent.what == io_result::kind::would_block) {
      // TLS may have sent a part of what it did not accept.
      if (!io_->reads_ahead()) order_.not_touched(chunk_.size() - chunk_at_);
      blocked_on_ = event_of(sent.wanted);
      arm();
      return;  // writing_ stays set: the reactor goes on
    }
    if (sent.what != io_result::kind::done) {
      write_failed(sent);
      break;
    }
    chunk_at_ += sent.bytes;
  }
  writing_ = false;
  if (order_.unsent() > 0) post_flush();
  finish_unanswerable(locked);
}

// Calls that expect no answer are done when they have left and everything before them is answered.
void connection::finish_unanswerable(lock& locked) {
  if (order_.empty() || order_.front().missing > 0) return;
  callers woken;
  finish_front(woken);
  if (woken.empty()) return;
  locked.unlock();
  wake(woken);
  locked.lock();
}

// The server's last words may still be there to be read ("too many clients"), so whoever reads finds the end.
void connection::write_failed(const io_result& how) {
  shut_ = true;
  write_failure_ = how.what == io_result::kind::closed ? "it was closed" : how.why;
  io_->shut();
  if (reader_ == reader::nobody) loop_.post(later([](connection& self) { self.read_pass(); }));
}

void connection::post_flush() {
  if (std::exchange(flush_posted_, true)) return;
  loop_.post(later([](connection& self) { self.flush(); }));
}

void connection::flush() noexcept {
  lock locked{guard_};
  flush_posted_ = false;
  if (may_write() && order_.unsent() > 0) write_out(locked);
  if (phase_ == phase::ready && reader_ == reader::nobody) watch_input();
}

// ---- Who reads -------------------------------------------------------------------------------------------------

void connection::take_lead(caller& who) {
  reader_ = reader::caller;
  lead_ = &who;
  if (std::exchange(reactor_reads_, false)) arm();
}

// A thread that waits anyway is the best reader; else the reactor, at once when it owes somebody an answer.
void connection::pass_lead(callers& woken) {
  lead_ = nullptr;
  reader_ = reader::nobody;
  if (phase_ != phase::ready) return;
  if (auto* const next = options_->keep_open ? nullptr : waiting_.take_newest()) {
    take_lead(*next);
    next->called = true;
    woken.push_back({next, look});
    std::swap(woken.front(), woken.back());  // the answered ones can wait until somebody reads
  } else if (options_->keep_open || order_.urgent() > 0 || shut_) {
    watch_input();
  } else {
    plan_tick();
  }
}

// One round: waits, reads, hands out.
void connection::lead(lock& locked, const caller& self, steady_time deadline) {
  locked.unlock();
  const auto got = await_bytes(deadline);
  const auto broken = got.what == io_result::kind::done ? cut() : std::nullopt;
  callers woken;
  locked.lock();
  take_in(got, broken, woken);
  if (self.done) pass_lead(woken);
  if (woken.empty()) return;
  locked.unlock();
  wake(woken);
  locked.lock();
}

void connection::read_pass() noexcept {
  constexpr int most_rounds = 8;  // then the others of the reactor have their turn
  callers woken;
  {
    lock locked{guard_};
    if (phase_ != phase::ready || reader_ != reader::nobody) return;
    reader_ = reader::reactor;
    reactor_reads_ = false;
    maybe_more_ = true;
    for (int round = 0; round < most_rounds && maybe_more_ && phase_ == phase::ready; ++round) {
      locked.unlock();
      const auto got = read_some();
      const auto broken = got.what == io_result::kind::done ? cut() : std::nullopt;
      locked.lock();
      take_in(got, broken, woken);
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
  const auto room = inbox_.room();
  if (room.empty())
    return io_result::failure(fmt::format("an answer is longer than {} MiB", inbox::most >> 20U),
                              errc::protocol);
  auto got = io_->read(room);
  maybe_more_ = false;
  read_wants_ = got.wanted;
  if (got.what == io_result::kind::done) {
    inbox_.filled(got.bytes);
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
  if (options_->spin <= nanoseconds::zero() || !several_cores()) return std::nullopt;
  const auto end = std::min(deadline, std::chrono::steady_clock::now() + options_->spin);
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

// Without the mutex: only the reader touches the inbox, and parsing takes its time.
std::optional<error> connection::cut() {
  pieces_.clear();
  cut_bytes_ = 0;
  const auto bytes = inbox_.view();
  while (cut_bytes_ < bytes.size()) {
    const auto next = framing_->next(bytes.substr(cut_bytes_));
    if (!next) return next.error();
    if (next->length == 0) break;
    pieces_.push_back({bytes.substr(cut_bytes_, next->length), next->push});
    cut_bytes_ += next->length;
  }
  return std::nullopt;
}

void connection::take_in(const io_result& got, const std::optional<error>& broken, callers& woken) {
  if (phase_ == phase::dead || got.what == io_result::kind::would_block) return;
  const auto& server = options_->description;
  if (got.what == io_result::kind::done) {
    ++received_;
    auto wrong = distribute(woken);
    inbox_.consume(cut_bytes_);
    if (!wrong && broken)
      wrong = error{errc::protocol, fmt::format("{} sent what is not its protocol ({})", server,
                                                broken->message())};
    if (wrong) fail_all(*wrong, woken);
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

std::optional<error> connection::distribute(callers& woken) {
  for (const auto& [bytes, push] : pieces_) {
    if (push) {
      outbox_.push(bytes);
      if (reader_ == reader::caller) post_delivery();
      continue;
    }
    finish_front(woken);
    if (order_.empty() || !order_.touched(order_.front()))
      return error{errc::protocol,
                   fmt::format("{} sent an answer that nobody asked for", options_->description)};
    auto& first = order_.front();
    if (--first.missing == 0) {
      finish(first, bytes, woken);
      order_.pop_front();
    } else if (first.caller != nullptr) {
      first.caller->into.append(bytes);
    } else if (first.handler != nullptr) {
      first.frames.append(bytes);
    }
  }
  finish_front(woken);
  return std::nullopt;
}

void connection::finish(place& which, std::string_view last, callers& woken) {
  if (which.caller != nullptr) {
    which.caller->into.append(last);
    complete(*which.caller, woken);
  } else if (which.handler != nullptr) {
    if (which.frames.empty()) {
      outbox_.reply(*which.handler, last);
    } else {
      outbox_.reply(*which.handler, which.frames.append(last));
    }
    // A stranger's continuation never runs on a caller's thread.
    if (reader_ == reader::reactor) return;
    if (which.urgent) {
      post_delivery();
    } else {
      plan_tick();
    }
  }
}

void connection::finish_front(callers& woken) {
  while (!order_.empty() && order_.front().missing == 0) {
    auto& first = order_.front();
    if (!first.withdrawn && !order_.picked_up(first)) return;
    finish(first, {}, woken);
    order_.pop_front();
  }
}

}  // namespace holdfast::net
