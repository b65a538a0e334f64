#include "signals.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

namespace holdfast::cli {

namespace {

// Every signal that one process usually sends to another and that can be passed on, and CHLD for ourselves. TTIN
// and TTOU are here so that giving the terminal away from the background cannot stop us.
constexpr std::array of_interest{SIGHUP,   SIGINT,  SIGQUIT, SIGTERM,   SIGUSR1, SIGUSR2,
                                 SIGWINCH, SIGCONT, SIGTSTP, SIGTTIN,   SIGTTOU, SIGALRM,
                                 SIGURG,   SIGIO,   SIGPWR,  SIGVTALRM, SIGCHLD};

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

descriptor& descriptor::operator=(descriptor&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = other.release();
  }
  return *this;
}

descriptor::~descriptor() { close(); }

int descriptor::release() noexcept { return std::exchange(fd_, -1); }

void descriptor::close() noexcept {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

descriptor make_event() {
  descriptor event{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  if (event.get() < 0) fail("An event cannot be created");
  return event;
}

void raise_event(const descriptor& event) noexcept {
  const std::uint64_t count = 1;
  [[maybe_unused]] const auto written = ::write(event.get(), &count, sizeof count);
}

signal_inbox::signal_inbox() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : of_interest) ::sigaddset(&set, signal);
  fd_ = descriptor{::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)};
  if (fd_.get() < 0) fail("Signals cannot be received");
  ::pthread_sigmask(SIG_BLOCK, &set, &original_);
}

signal_inbox::~signal_inbox() {
  // A signal left unread was not for us any more: it must not end us now, after everything is in order.
  while (next()) {
  }
  ::pthread_sigmask(SIG_SETMASK, &original_, nullptr);
}

std::optional<int> signal_inbox::next() noexcept {
  signalfd_siginfo info{};
  if (::read(fd_.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info))
    return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

bool means_end(int signal) noexcept {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

void stop_like_ctrl_z(bool whole_group) noexcept {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGTSTP);
  sigset_t before;
  // SIGTSTP and not SIGSTOP: the kernel ignores it where there is no shell that could continue us.
  ::kill(whole_group ? 0 : ::getpid(), SIGTSTP);
  ::pthread_sigmask(SIG_UNBLOCK, &set, &before);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

cancel_on_signal::cancel_on_signal(signal_inbox& inbox)
    : inbox_(inbox), done_(make_event()), watcher_([this] { watch(); }) {}

cancel_on_signal::~cancel_on_signal() { finish(); }

void cancel_on_signal::finish() {
  if (!watcher_.joinable()) return;
  raise_event(done_);
  watcher_.join();
}

void cancel_on_signal::watch() {
  std::array<pollfd, 2> events{pollfd{inbox_.fd(), POLLIN, 0}, pollfd{done_.get(), POLLIN, 0}};
  for (;;) {
    ::poll(events.data(), events.size(), -1);
    while (const auto signal = inbox_.next()) {
      if (*signal == SIGTSTP) stop_like_ctrl_z(false);
      if (!means_end(*signal)) continue;
      int none = 0;
      signal_.compare_exchange_strong(none, *signal);
      stop_.request_stop();
    }
    if (events[1].revents != 0) return;
  }
}

}  // namespace holdfast::cli
