// holdfast bench: which measurements, in what order, and how their result is shown.
#include "bench/bench.hpp"

#include "exit_codes.hpp"
#include "json.hpp"
#include "output.hpp"
#include "signals.hpp"
#include "text.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <random>
#include <thread>

namespace holdfast::cli {

namespace {

std::vector<bench_job> chosen(const arguments& args) {
  std::vector<bench_job> jobs;
  const auto& only = args.text("--only");
  for (auto& chapter : {uncontended_jobs(), thread_jobs(args), coroutine_jobs(args), reentry_jobs(),
                        local_jobs(), process_jobs(args), renewal_jobs(args)})
    for (const auto& job : chapter)
      if (only.empty() || only == job.which) jobs.push_back(job);
  return jobs;
}

nanoseconds seconds_from(const arguments& args) {
  using namespace std::chrono_literals;
  const auto each = args.duration("--seconds", 1s);
  if (each < 1ms || each > 1h) throw usage_error("--seconds takes a time from 1ms to 1h.");
  return each;
}

std::string machine() {
  utsname about{};
  ::uname(&about);
  return fmt::format("{} {}, {} processors", about.sysname, about.release,
                     std::thread::hardware_concurrency());
}

// A line on stderr that is drawn over and over; nothing when that is no terminal.
class progress_bar {
 public:
  explicit progress_bar(std::size_t total) : total_(total), visible_(stderr_is_terminal()) {}
  ~progress_bar() { say("\r\x1b[K"); }
  progress_bar(const progress_bar&) = delete;
  progress_bar& operator=(const progress_bar&) = delete;

  void begin(const bench_job& job) {
    constexpr std::size_t width = 24;
    const auto full = total_ == 0 ? 0 : width * done_ / total_;
    say(fmt::format("\r[{}{}] {}/{} {}, {}\x1b[K", std::string(full, '#'),
                    std::string(width - full, '.'), done_ + 1, total_, job.what, job.setup));
    ++done_;
  }

 private:
  void say(const std::string& text) const {
    if (!visible_) return;
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
  }
  std::size_t total_;
  std::size_t done_ = 0;
  bool visible_;
};

bench_row measured(const bench_job& job, const bench_setting& setting) {
  bench_row row;
  row.what = job.what;
  row.setup = job.setup;
  try {
    job.measure(setting, row);
  } catch (const lock_error& e) {
    row.skipped = e.what();
  }
  return row;
}

}  // namespace

int bench(const arguments& args) {
  const auto each = seconds_from(args);
  const auto jobs = chosen(args);
  signal_inbox signals;
  const auto store = args.open_store();
  cancel_on_signal cancel{signals};
  const bench_setting setting{args, store, each,
                              fmt::format("holdfast-bench/{:08x}/", std::random_device{}()),
                              cancel.token()};
  bench_report report{store.url(), store.capabilities().engine, machine(), {}};
  {
    progress_bar progress{jobs.size()};
    for (const auto& job : jobs) {
      if (cancel.token().stop_requested()) break;
      progress.begin(job);
      report.rows.push_back(measured(job, setting));
    }
  }
  cancel.finish();
  if (cancel.signal() != 0) return exit_code::by_signal + cancel.signal();
  print(args.has("--json") ? bench_json(report) : report.str());
  return exit_code::ok;
}

}  // namespace holdfast::cli
