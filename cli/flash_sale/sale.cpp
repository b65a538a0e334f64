// The processes of a sale, from the doors' opening to the last buyer.
#include "flash_sale/sale.hpp"

#include "flash_sale/stock.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <stop_token>
#include <system_error>
#include <thread>
#include <vector>

namespace holdfast::cli::flash {

namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

constexpr auto patience_to_open = 40s, patience_to_sell = 60s, patience_to_end = 15s;

void keep(std::string_view text, char (&to)[256]) {
  std::copy_n(text.begin(), std::min(text.size(), sizeof to - 1), to);
}

// ---------------------------------------------------------------- in a process of buyers

void go_shopping(buyer& who, till& with) {
  while (!with.is_closing()) {
    with.comes();
    auto outcome = who.buy();
    while (outcome == bought::again && !with.is_closing()) {
      with.noted_again();
      outcome = who.buy();
    }
    if (outcome == bought::sold_out) return;
  }
}

void one_buyer(shop& at, const sale_setting& about, board& on, std::size_t index,
               std::stop_token closing) {
  till mine{on, index, about.think, std::move(closing)};
  bool is_counted = false;
  try {
    const auto who = at.new_buyer(mine);
    ++on.head().ready;
    is_counted = true;
    while (on.head().opened == 0 && !on.head().closing) std::this_thread::sleep_for(1ms);
    go_shopping(*who, mine);
    mine.ends();
  } catch (const std::exception& e) {
    mine.fails(e.what());
    if (!is_counted) ++on.head().ready;
  }
}

void buyers_of_process(const sale_setting& about, board& on, unsigned process) {
  auto& head = on.head();
  const auto at = about.what->open(about);
  auto most = head.takeover_ns.load();
  const auto ours = at->takeover().count();
  while (ours > most && !head.takeover_ns.compare_exchange_weak(most, ours)) continue;
  std::stop_source closing;
  std::vector<std::jthread> threads;
  for (std::size_t i = process; i < about.buyers; i += about.processes)
    threads.emplace_back([&, i] { one_buyer(*at, about, on, i, closing.get_token()); });
  while (!head.closing && !head.leave) std::this_thread::sleep_for(2ms);
  closing.request_stop();
  threads.clear();
  while (!head.leave) std::this_thread::sleep_for(2ms);
}

[[noreturn]] void be_a_process(const sale_setting& about, board& on, unsigned process,
                               pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  try {
    buyers_of_process(about, on, process);
    ::_exit(0);
  } catch (const std::exception& e) {
    keep(e.what(), on.head().failed);
    ::_exit(1);
  }
}

// ---------------------------------------------------------------- in the process that judges

// All of them are gone when this is.
class sale_processes {
 public:
  sale_processes(const sale_setting& about, board& on) {
    const pid_t parent = ::getpid();
    for (unsigned i = 0; i < about.processes; ++i) {
      const pid_t pid = ::fork();
      if (pid < 0) throw std::system_error(errno, std::generic_category(), "fork");
      if (pid == 0) be_a_process(about, on, i, parent);
      pids_.push_back(pid);
    }
  }
  ~sale_processes() {
    for (const auto pid : pids_)
      if (pid > 0) ::kill(pid, SIGKILL);
    for (const auto pid : pids_)
      if (pid > 0) ::waitpid(pid, nullptr, 0);
  }
  sale_processes(const sale_processes&) = delete;
  sale_processes& operator=(const sale_processes&) = delete;

  unsigned alive() {
    unsigned count = 0;
    for (auto& pid : pids_) {
      if (pid > 0 && ::waitpid(pid, nullptr, WNOHANG) == pid) pid = 0;
      if (pid > 0) ++count;
    }
    return count;
  }
  void kill_one(std::size_t index) {
    ::kill(pids_[index], SIGKILL);
    ::waitpid(pids_[index], nullptr, 0);
    pids_[index] = 0;
  }
  // Returns when it has stopped.
  void stop(std::size_t index) {
    ::kill(pids_[index], SIGSTOP);
    ::waitpid(pids_[index], nullptr, WUNTRACED);
  }
  void go_on(std::size_t index) { ::kill(pids_[index], SIGCONT); }
  void wait_for_all(steady_clock::time_point until) {
    while (alive() > 0 && steady_clock::now() < until) std::this_thread::sleep_for(1ms);
  }

 private:
  std::vector<pid_t> pids_;
};

class sale {
 public:
  sale(const sale_setting& about, const watcher& watch)
      : about_(about),
        watch_(watch),
        board_(about.buyers, static_cast<std::size_t>(2 * about.stock + 64)),
        head_(board_.head()) {}

  sale_result run() {
    head_.spot = about_.what->spot == weak_spot::between && about_.strike == fault::kill
                     ? weak_spot::between
                     : weak_spot::thinking;
    head_.armed_after = about_.stock / 4;
    head_.armed = about_.strike;
    sale_processes all{about_, board_};
    if (!is_ready(all)) return result_;
    const auto before = counted();
    head_.opened = now();
    while (!is_done(all)) std::this_thread::sleep_for(1ms);
    closed_ = now();
    head_.closing = true;
    wait_for_buyers();
    const auto after = counted();
    for (const auto& [kind, count] : after) {
      const auto first = before.find(kind)->second;
      if (count && first) result_.commands[kind] = *count - *first;
      if (!count || !first) result_.commands[kind] = std::nullopt;
    }
    judge_it();
    head_.leave = true;
    all.wait_for_all(steady_clock::now() + patience_to_end);
    return result_;
  }

 private:
  bool is_ready(sale_processes& all) {
    const auto until = steady_clock::now() + patience_to_open;
    while (head_.ready < about_.buyers) {
      if (head_.failed[0] != 0) result_.failed = head_.failed;
      if (all.alive() < about_.processes && result_.failed.empty())
        result_.failed = head_.failed[0] != 0 ? head_.failed : "a process ended by itself";
      if (steady_clock::now() > until) result_.failed = "the buyers were not ready in time";
      if (watch_(0)) result_.failed = "interrupted";
      if (!result_.failed.empty()) return false;
      std::this_thread::sleep_for(1ms);
    }
    return true;
  }

  std::map<store_kind, std::optional<std::uint64_t>> counted() const {
    std::map<store_kind, std::optional<std::uint64_t>> out;
    for (const auto kind : about_.what->needs) out[kind] = commands_served(kind, about_.url(kind));
    if (about_.where == place::redis)
      out[store_kind::redis] = commands_served(store_kind::redis, about_.url(store_kind::redis));
    if (about_.where == place::mysql)
      out[store_kind::mysql] = commands_served(store_kind::mysql, about_.url(store_kind::mysql));
    return out;
  }

  nanoseconds takeover() const { return nanoseconds{head_.takeover_ns}; }
  std::size_t struck_process() const {
    return static_cast<std::size_t>(head_.struck) % about_.processes;
  }
  std::int64_t sold_where_it_struck() const {
    return head_.sold_from[static_cast<std::size_t>(head_.struck_shelf)];
  }
  bool is_dead(std::size_t buyer) const {
    return about_.strike == fault::kill && head_.struck_at != 0 &&
           buyer % about_.processes == struck_process();
  }
  bool all_buyers_are_over() const {
    for (std::size_t i = 0; i < about_.buyers; ++i)
      if (!board_.row(i).is_over && !is_dead(i)) return false;
    return true;
  }

  bool is_done(sale_processes& all) {
    if (watch_(head_.sold)) {
      result_.failed = "interrupted";
      return true;
    }
    if (head_.struck >= 0) follow_the_fault(all);
    if (all_buyers_are_over()) return result_.is_sold_out = true;
    const auto sold = head_.sold.load();
    if (sold != last_sold_) last_sold_ = sold, last_sold_at_ = now();
    // After a death the sale may stand still for good; the judge waits twice as long as the store should take.
    const auto longest = about_.strike == fault::kill ? 2 * takeover() + 3s : patience_to_sell;
    const bool stands_still = head_.struck_at != 0 &&
                              head_.struck_at < now() - nanoseconds{longest}.count() &&
                              last_sold_at_ < now() - nanoseconds{longest}.count();
    return stands_still ||
           now() - head_.opened > nanoseconds{patience_to_sell + 4 * takeover()}.count();
  }

  void follow_the_fault(sale_processes& all) {
    result_.was_struck = true;
    if (head_.struck_at == 0) {
      head_.struck_at = now();
      sold_when_struck_ = sold_where_it_struck();
      if (about_.strike == fault::kill) all.kill_one(struck_process());
      if (about_.strike == fault::pause) all.stop(struck_process());
      return;
    }
    if (about_.strike != fault::pause || head_.resumed_at != 0) return;
    // Until others have gone on where it was (three orders), and no longer than the store may take to let them.
    const auto paused = nanoseconds{now() - head_.struck_at};
    const bool others_went_on = sold_where_it_struck() >= sold_when_struck_ + 3;
    if (!(others_went_on || paused > takeover() + 3s)) return;
    head_.resumed_at = now();
    all.go_on(struck_process());
  }

  void wait_for_buyers() {
    const auto until = steady_clock::now() + patience_to_end;
    while (!all_buyers_are_over() && steady_clock::now() < until) std::this_thread::sleep_for(1ms);
    if (!all_buyers_are_over()) result_.note = "buyers did not end in time";
  }

  void judge_it() {
    ledger book;
    book.stock = about_.stock;
    book.opened = head_.opened;
    book.closed = closed_;
    for (std::size_t i = 0; i < about_.buyers; ++i) {
      const auto& row = board_.row(i);
      auto& mine = book.orders.emplace_back();
      for (std::uint32_t k = 0; k < row.orders; ++k) mine.push_back(board_.at(i, k));
      book.process_of.push_back(static_cast<int>(i % about_.processes));
      result_.retries += row.retries;
      if (row.failed[0] != 0) result_.note = row.failed;
      if (row.is_full) result_.note = "a buyer's record was full";
    }
    if (result_.was_struck) {
      book.struck = about_.strike;
      book.struck_process = static_cast<int>(struck_process());
      book.struck_at = head_.struck_at;
      book.resumed_at = head_.resumed_at;
    }
    try {
      book.left = stock_left(about_);
    } catch (const std::exception& e) {
      result_.note = e.what();
    }
    result_.said = judge(book);
  }

  const sale_setting& about_;
  const watcher& watch_;
  board board_;
  board_head& head_;
  sale_result result_;
  instant closed_ = 0, last_sold_at_ = 0;
  std::int64_t last_sold_ = 0, sold_when_struck_ = 0;
};

}  // namespace

std::optional<double> sale_result::commands_per_order() const {
  if (commands.empty() || said.sold == 0) return std::nullopt;
  double sum = 0;
  for (const auto& [kind, count] : commands) {
    if (!count) return std::nullopt;
    sum += static_cast<double>(*count);
  }
  return sum / static_cast<double>(said.sold);
}

sale_result hold_sale(const sale_setting& about, const watcher& watch) {
  sale_result out;
  try {
    put_stock(about);
    out = sale{about, watch}.run();
  } catch (const std::exception& e) {
    out.failed = e.what();
  }
  try {
    remove_stock(about);
  } catch (const std::exception& e) {
    if (out.note.empty()) out.note = e.what();
  }
  return out;
}

}  // namespace holdfast::cli::flash
