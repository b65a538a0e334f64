#include "output.hpp"

#include "text.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <system_error>

namespace holdfast::cli {

namespace {

bool pipe_signal_ignored_before = false;

bool terminal_with_colour() {
  const char* no_colour = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return stdout_is_terminal() && (no_colour == nullptr || *no_colour == '\0') &&
         (term == nullptr || std::string_view{term} != "dumb");
}

}  // namespace

void ignore_broken_pipe_signal() {
  pipe_signal_ignored_before = std::signal(SIGPIPE, SIG_IGN) == SIG_IGN;
}

bool was_broken_pipe_ignored() noexcept { return pipe_signal_ignored_before; }

void print(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EPIPE) {
      throw broken_pipe{};
    } else if (errno != EINTR) {
      throw std::system_error(errno, std::generic_category(), "The output cannot be written");
    }
  }
}

void complain(std::string_view sentence) {
  // One write, so that the sentences of several processes on one terminal do not mix.
  const auto line = fmt::format("holdfast: {}\n", printable(without_secrets(sentence)));
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

void warn(std::string_view sentence) { complain(fmt::format("warning: {}", sentence)); }

bool stdout_is_terminal() { return ::isatty(STDOUT_FILENO) == 1; }
bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

bool use_colour() {
  static const bool yes = terminal_with_colour();
  return yes;
}

screen_size screen() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0)
    return {size.ws_col, size.ws_row};
  return {100, 40};
}

std::string_view on(style wanted) {
  if (!use_colour()) return "";
  switch (wanted) {
    case style::plain:
      return "";
    case style::bold:
      return "\x1b[1m";
    case style::dim:
      return "\x1b[2m";
    case style::red:
      return "\x1b[31m";
    case style::green:
      return "\x1b[32m";
    case style::yellow:
      return "\x1b[33m";
    case style::cyan:
      return "\x1b[36m";
  }
  return "";
}

std::string_view off() { return use_colour() ? "\x1b[0m" : ""; }

}  // namespace holdfast::cli
