// holdfast top: the busiest locks, live.
#include "args.hpp"
#include "exit_codes.hpp"
#include "lock_table.hpp"
#include "output.hpp"
#include "signals.hpp"
#include "text.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <string_view>

namespace holdfast::cli {

namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

// The alternate screen without a cursor, and keys without Enter and echo; as before again at the end, however that
// comes: signals are messages here, so every way out passes the destructor.
class live_screen {
 public:
  live_screen() {
    keys_ = ::tcgetattr(STDIN_FILENO, &before_) == 0;
    if (keys_) {
      auto raw = before_;
      raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    print("\x1b[?1049h\x1b[?25l");
  }
  ~live_screen() {
    if (keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
    try {
      print("\x1b[?25h\x1b[?1049l");
    } catch (...) {  // the terminal is gone; nothing to restore
    }
  }
  live_screen(const live_screen&) = delete;
  live_screen& operator=(const live_screen&) = delete;

  bool has_keys() const noexcept { return keys_; }

  // Line by line over the old picture instead of clearing it first, which would flicker.
  void draw(const std::string& picture) const {
    std::string text = "\x1b[H";
    for (const char c : picture) {
      if (c == '\n') text += "\x1b[K";
      text += c;
    }
    print(text + "\x1b[J");
  }

 private:
  termios before_{};
  bool keys_ = false;
};

std::string picture(const client& store, const std::string& prefix, screen_size size) {
  auto listed = store.list(prefix);
  if (!listed)
    return fmt::format("holdfast top  {}\n\n{}\n", printable(store.url()),
                       printable(listed.error().message()));
  auto& locks = *listed;
  std::stable_sort(locks.begin(), locks.end(), [](const lock_info& a, const lock_info& b) {
    return a.waiters.size() > b.waiters.size();
  });
  std::size_t holders = 0;
  std::size_t waiters = 0;
  for (const auto& lock : locks) {
    holders += lock.holders.size();
    waiters += lock.waiters.size();
  }
  const auto head = fmt::format("holdfast top  {}  {} locks, {} holders, {} waiters",
                                printable(store.url()), locks.size(), holders, waiters);
  const std::size_t room = size.rows > 4 ? size.rows - 4 : 1;
  const auto rows = lock_table(locks);
  auto text = fmt::format(
      "{}\n\n{}", size.columns > 0 ? shortened(head, size.columns) : head,
      rows.empty() ? "No lock is held.\n" : rows.str(size.rows > 0 ? room : 0, size.columns));
  if (size.rows > 0 && rows.size() > room)
    text += fmt::format("{}... and {} more{}", on(style::dim), rows.size() - room, off());
  return text;
}

// What ended the pause between two pictures.
enum class event { time, key_quit, redraw, signal };

class pause {
 public:
  pause(signal_inbox& signals, bool keys) : signals_(signals), keys_(keys) {}
  int signal() const noexcept { return signal_; }

  event until(steady_clock::time_point deadline) {
    for (;;) {
      std::array<pollfd, 2> events{pollfd{signals_.fd(), POLLIN, 0},
                                   pollfd{keys_ ? STDIN_FILENO : -1, POLLIN, 0}};
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now());
      if (left <= 0ms) return event::time;
      ::poll(events.data(), events.size(),
             static_cast<int>(std::min<std::int64_t>(left.count(), 3'600'000)));
      while (const auto signal = signals_.next()) {
        if (means_end(*signal)) {
          signal_ = *signal;
          return event::signal;
        }
        if (*signal == SIGWINCH) return event::redraw;
      }
      if (events[1].revents != 0 && quit_pressed()) return event::key_quit;
    }
  }

 private:
  bool quit_pressed() {
    std::array<char, 64> keys{};
    const auto got = ::read(STDIN_FILENO, keys.data(), keys.size());
    if (got <= 0) {
      keys_ = false;
      return true;  // the terminal has gone away
    }
    const std::string_view pressed{keys.data(), static_cast<std::size_t>(got)};
    return pressed.find_first_of("qQ") != std::string_view::npos;
  }

  signal_inbox& signals_;
  bool keys_;
  int signal_ = 0;
};

int snapshots(const client& store, const arguments& args, nanoseconds interval,
              signal_inbox& signals) {
  pause between{signals, false};
  const auto count = args.integer("--count", 1, 1, std::numeric_limits<std::int64_t>::max());
  for (std::int64_t i = 0; i < count; ++i) {
    if (i > 0) {
      const auto next = steady_clock::now() + interval;
      auto what = between.until(next);
      while (what == event::redraw) what = between.until(next);
      if (what == event::signal) return exit_code::by_signal + between.signal();
      print("\n");
    }
    print(picture(store, args.text("PREFIX"), {0, 0}));
  }
  return exit_code::ok;
}

}  // namespace

int top(const arguments& args) {
  const auto interval = std::clamp<nanoseconds>(args.duration("--interval", 1s), 50ms, 24h);
  const auto count = args.integer("--count", 0, 1, std::numeric_limits<std::int64_t>::max());
  signal_inbox signals;
  const auto store = args.open_store();
  store.list(args.text("PREFIX"), 1)
      .value();  // what can never work must not clear the screen first
  if (!stdout_is_terminal()) return snapshots(store, args, interval, signals);
  live_screen screen_;
  pause between{signals, screen_.has_keys()};
  for (std::int64_t i = 0; count == 0 || i < count; ++i) {
    screen_.draw(picture(store, args.text("PREFIX"), screen()));
    const auto what = between.until(steady_clock::now() + interval);
    // ^C is how people leave a live view; it is no failure.
    if (what == event::signal && between.signal() != SIGINT)
      return exit_code::by_signal + between.signal();
    if (what == event::signal || what == event::key_quit) break;
  }
  return exit_code::ok;
}

}  // namespace holdfast::cli
