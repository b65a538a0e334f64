#include "supervise.hpp"

#include "exit_codes.hpp"
#include "output.hpp"

#include <holdfast/url.hpp>

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <stop_token>

namespace holdfast::cli {

namespace {

using std::chrono::steady_clock;

class supervisor {
 public:
  explicit supervisor(const supervision& job) : job_(job), lost_event_(make_event()) {}

  outcome run() {
    // What the program leaves behind becomes our child, so that we can tell when the whole group has ended even where
    // process 1 does not reap orphans, as in many containers.
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (::isatty(STDIN_FILENO) == 1) terminal_ = STDIN_FILENO;
    // With our output in a pipe, another process of our job (a pager, say) may need the terminal. The program still
    // gets it when it asks, see on_stopped().
    const bool foreground = we_have_the_terminal() && stdout_is_terminal();
    gave_terminal_ = foreground;
    group_ = start(job_.what, job_.variables, job_.signals, foreground ? terminal_ : -1,
                   job_.end_when_lost ? SIGTERM : 0, job_.guard);
    {
      const std::stop_callback on_loss{job_.held.lost(), [this] { raise_event(lost_event_); }};
      while (!over()) step();
    }
    job_.guard.dismiss();
    take_the_terminal_back();
    return result_;
  }

 private:
  bool over() {
    if (!ended_) return false;
    // Ended for loss: what the program has started must not go on either.
    if (!kill_at_ && !job_.wait_for_group) return true;
    return killed_ || !group_exists(group_);
  }

  void step() {
    std::array<pollfd, 2> events{pollfd{job_.signals.fd(), POLLIN, 0},
                                 pollfd{result_.lost ? -1 : lost_event_.get(), POLLIN, 0}};
    ::poll(events.data(), events.size(), patience());
    // Signals first: a command that has ended by itself was not ended for the loss. The release will tell of it.
    while (const auto signal = job_.signals.next()) on_signal(*signal);
    if (events[1].revents != 0 && (!ended_ || job_.wait_for_group)) on_lost();
    if (kill_at_ && !killed_ && steady_clock::now() >= *kill_at_) {
      killed_ = true;
      ::kill(-group_, SIGKILL);
    }
  }

  // Milliseconds for poll(): until SIGKILL is due, or soon again while only the rest of the group is left, of which
  // not every process is our child.
  int patience() const {
    if (ended_) return kill_at_ ? 10 : 50;
    if (!kill_at_ || killed_) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*kill_at_ - steady_clock::now());
    return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1'000'000));
  }

  void on_lost() {
    result_.lost = true;
    const auto& name = job_.held.name();
    if (!job_.end_when_lost) {
      warn(fmt::format("The lock \"{}\" is lost{}; the command goes on without it.", name,
                       job_.reason.str()));
      return;
    }
    ::kill(-group_, SIGTERM);
    ::kill(-group_, SIGCONT);  // a stopped process cannot act on SIGTERM
    kill_at_ = in(job_.grace);
    complain(
        fmt::format("The lock \"{}\" is lost{}; ending the command.", name, job_.reason.str()));
  }

  void on_signal(int signal) {
    switch (signal) {
      case SIGCHLD:
        reap();
        return;
      case SIGTTIN:
      case SIGTTOU:
        return;  // about our own use of the terminal, not the program's
      case SIGCONT:
        if (we_have_the_terminal() && gave_terminal_) give_the_terminal();
        break;
      default:
        break;
    }
    result_.asked_to_end |= means_end(signal);
    if (!ended_ || group_exists(group_)) ::kill(-group_, signal);
  }

  void reap() {
    int status = 0;
    for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0;) {
      if (pid != group_ || ended_) continue;  // an orphan of the program's, or our guard
      if (WIFSTOPPED(status)) {
        on_stopped(WSTOPSIG(status));
      } else {
        ended_ = true;
        result_.exit_code =
            WIFSIGNALED(status) ? exit_code::by_signal + WTERMSIG(status) : WEXITSTATUS(status);
      }
    }
  }

  void on_stopped(int signal) {
    if (terminal_ < 0) return;  // no shell to tell: keep the lock for it until it is continued
    if ((signal == SIGTTIN || signal == SIGTTOU) && we_have_the_terminal()) {
      give_the_terminal();
      ::kill(-group_, SIGCONT);
      return;
    }
    // The user pressed ^Z: to the shell we are the job, so we stop too. Renewals stop with us; a job that sleeps for
    // longer than the ttl has lost its lock when it wakes, and learns so at once.
    take_the_terminal_back();
    stop_like_ctrl_z(true);
  }

  bool we_have_the_terminal() const {
    return terminal_ >= 0 && ::tcgetpgrp(terminal_) == ::getpgrp();
  }
  void give_the_terminal() {
    gave_terminal_ = true;
    ::tcsetpgrp(terminal_, group_);
  }
  void take_the_terminal_back() {
    if (terminal_ < 0 || ::tcgetpgrp(terminal_) != group_) return;
    gave_terminal_ = true;
    ::tcsetpgrp(terminal_, ::getpgrp());
  }

  const supervision& job_;
  descriptor lost_event_;
  outcome result_;
  pid_t group_ = -1;
  int terminal_ = -1;
  bool gave_terminal_ = false;  // so it gets it again when we are continued
  bool ended_ = false;
  bool killed_ = false;
  std::optional<steady_clock::time_point> kill_at_;
};

}  // namespace

void loss_reason::lost(std::string_view, fencing_token, std::string_view why) {
  const std::lock_guard lock{guard_};
  why_ = why;
  told_.notify_all();
}

std::string loss_reason::str() const {
  constexpr std::chrono::milliseconds a_moment{300};
  std::unique_lock lock{guard_};
  told_.wait_for(lock, a_moment, [this] { return !why_.empty(); });
  return why_.empty() ? "" : fmt::format(" ({})", why_);
}

outcome supervise(const supervision& job) { return supervisor{job}.run(); }

namespace {

// The same address without its password, and with the word where that must come from. REQUIRES: text has a password.
std::string without_password(std::string text) {
  const auto begin = text.find("//") + 2;
  const auto end = std::min(text.find_first_of("/?", begin), text.size());
  const auto at = text.rfind('@', end - 1);
  const auto colon = text.find(':', begin);
  text.erase(colon, at - colon);
  text += text.find('?') == std::string::npos ? '?' : '&';
  return text.append("password_env=").append(withheld_password);
}

}  // namespace

environment variables_for(const arguments& args, const lease& held) {
  const auto text = args.store_text();
  const auto url = store_url::parse(text);
  return {{"HOLDFAST_TOKEN", std::to_string(held.token().value)},
          {"HOLDFAST_LOCK", held.name()},
          {"HOLDFAST_STORE", url && url->has_secret() ? without_password(text) : text}};
}

}  // namespace holdfast::cli
