// holdfast flash-sale: which schemes, on which stores, under which faults, and what is printed.
#include "args.hpp"
#include "exit_codes.hpp"
#include "flash_sale/report.hpp"
#include "output.hpp"
#include "signals.hpp"
#include "text.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

namespace holdfast::cli {

namespace {

using namespace std::chrono_literals;
using namespace flash;

std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < list.size();) {
    const auto end = std::min(list.find(',', at), list.size());
    if (end > at) out.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

tongue tongue_of(const arguments& args) {
  if (args.has("--lang")) return args.text("--lang") == "zh" ? tongue::zh : tongue::en;
  for (const char* name : {"LC_ALL", "LC_MESSAGES", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    return std::string_view{value}.starts_with("zh") ? tongue::zh : tongue::en;
  }
  return tongue::en;
}

std::vector<fault> faults_of(const arguments& args) {
  std::vector<fault> out;
  for (const auto& name : words_of(args.has("--faults") ? args.text("--faults") : "none")) {
    const auto one = name == "none"   ? fault::none
                     : name == "kill" ? fault::kill
                     : name == "pause"
                         ? fault::pause
                         : throw usage_error(fmt::format(
                               "--faults takes none, kill and pause, not \"{}\".", name));
    if (std::ranges::find(out, one) == out.end()) out.push_back(one);
  }
  if (out.empty()) throw usage_error("--faults needs at least one of none, kill, pause.");
  return out;
}

// By name or by family; all when there is no --schemes.
std::vector<const scheme*> schemes_of(const arguments& args) {
  const auto wanted = words_of(args.text("--schemes"));
  for (const auto& name : wanted)
    if (std::ranges::none_of(
            schemes(), [&](const scheme& one) { return one.name == name || one.family == name; }))
      throw usage_error(fmt::format("There is no scheme \"{}\"; see holdfast flash-sale --list.",
                                    printable(name)));
  std::vector<const scheme*> out;
  for (const auto& one : schemes())
    if (wanted.empty() || std::ranges::any_of(wanted, [&](const std::string& name) {
          return one.name == name || one.family == name;
        }))
      out.push_back(&one);
  return out;
}

// Empty: it can be run.
std::string obstacle_to(const scheme& one, const store_urls& stores) {
  if (one.open == nullptr) return fmt::format("not built: no {}", one.missing);
  const auto schemes_built = known_schemes();
  for (const auto kind : one.needs) {
    const auto given = stores.find(kind);
    if (given == stores.end()) return fmt::format("no {} in --stores", word(kind));
    if (one.owns_place)
      if (auto why = obstacle_to_plain(kind, given->second); !why.empty()) return why;
    const auto scheme_of = store_url::parse(given->second).value().scheme();
    if (one.family == "held_locks" && !std::ranges::binary_search(schemes_built, scheme_of))
      return fmt::format("not built: no engine for {}:", scheme_of);
  }
  return "";
}

bool can_keep_stock(store_kind kind, const store_urls& stores) {
  const auto given = stores.find(kind);
  return given != stores.end() && obstacle_to_plain(kind, given->second).empty();
}

// With its lock where that can be; else in the database, else in Redis, else in a file.
place place_for(const scheme& one, const store_urls& stores) {
  if (one.needs.empty()) return place::file;
  const auto kind = one.needs.front();
  if (kind == store_kind::mysql && can_keep_stock(kind, stores)) return place::mysql;
  if (kind == store_kind::redis && can_keep_stock(kind, stores)) return place::redis;
  if (can_keep_stock(store_kind::mysql, stores)) return place::mysql;
  if (can_keep_stock(store_kind::redis, stores)) return place::redis;
  return place::file;
}

// Of one run, gone with it.
class sale_folder {
 public:
  sale_folder() {
    auto pattern = (std::filesystem::temp_directory_path() / "holdfast-sale-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr)
      throw std::system_error(errno, std::generic_category(), "No folder can be made");
    path_ = pattern;
  }
  ~sale_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  sale_folder(const sale_folder&) = delete;
  sale_folder& operator=(const sale_folder&) = delete;
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

// A line on stderr that is drawn over and over; nothing when that is no terminal.
class sale_progress {
 public:
  explicit sale_progress(std::size_t total) : total_(total), is_visible_(stderr_is_terminal()) {}
  ~sale_progress() { say("\r\x1b[K"); }
  sale_progress(const sale_progress&) = delete;
  sale_progress& operator=(const sale_progress&) = delete;

  void begin(std::string what) {
    what_ = std::move(what);
    ++done_;
    drawn_ = -1;
  }
  void show(std::int64_t sold, std::int64_t stock) {
    if (!is_visible_ || sold == drawn_ || now() - drawn_at_ < nanoseconds{50ms}.count()) return;
    drawn_ = sold;
    drawn_at_ = now();
    constexpr std::int64_t width = 24;
    const auto full =
        static_cast<std::size_t>(std::min(width, width * sold / std::max<std::int64_t>(1, stock)));
    say(fmt::format("\r{}/{} [{}{}] {} sold: {}\x1b[K", done_, total_, std::string(full, '#'),
                    std::string(static_cast<std::size_t>(width) - full, '.'), sold, what_));
  }

 private:
  void say(const std::string& text) const {
    if (!is_visible_) return;
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
  }
  std::size_t total_, done_ = 0;
  bool is_visible_;
  std::string what_;
  std::int64_t drawn_ = -1;
  instant drawn_at_ = 0;
};

std::string sale_machine() {
  utsname about{};
  ::uname(&about);
  return fmt::format("{} {}, {} processors", about.sysname, about.release,
                     std::thread::hardware_concurrency());
}

struct sale_plan {
  sale_report report;  // with what is known before
  store_urls stores;
  std::string json_to, html_to;
};

void read_numbers(const arguments& args, sale_report& out) {
  out.buyers = static_cast<unsigned>(args.integer("--buyers", 16, 1, 1024));
  out.processes = static_cast<unsigned>(args.integer("--processes", 4, 1, 64));
  out.stock = args.integer("--stock", 400, 1, 100'000);
  out.think = args.duration("--think", 500us);
  out.ttl = args.duration("--ttl", 2s);
  if (out.processes > out.buyers) throw usage_error("--processes cannot be more than --buyers.");
  if (out.ttl < 100ms || out.ttl > 1min) throw usage_error("--ttl takes a time from 100ms to 1m.");
  if (out.think > 1s) throw usage_error("--think takes at most 1s.");
}

sale_plan plan_of(const arguments& args) {
  sale_plan out;
  auto& report = out.report;
  read_numbers(args, report);
  out.stores = read_stores(args.text("--stores"));
  report.faults = faults_of(args);
  const bool strikes = std::ranges::any_of(report.faults, [](fault f) { return f != fault::none; });
  if (strikes && (report.processes < 2 || report.stock < 20))
    throw usage_error("--faults kill and pause need two --processes and a --stock of 20 at least.");
  report.machine = sale_machine();
  for (const auto& [kind, url] : out.stores)
    report.stores[kind] = store_url::parse(url).value().str();
  for (const auto* one : schemes_of(args)) {
    auto& row = report.schemes.emplace_back();
    row.what = one;
    row.skipped = obstacle_to(*one, out.stores);
    row.where = place_for(*one, out.stores);
  }
  out.json_to = args.text("--json");
  out.html_to = args.text("--html");
  if (out.json_to == "-" && out.html_to == "-")
    throw usage_error("--json - and --html - cannot both have the standard output.");
  return out;
}

// Opened before the sale, which takes minutes: a path that cannot be written should be known at once.
class sale_output {
 public:
  explicit sale_output(std::string path) : path_(std::move(path)) {
    if (path_.empty() || path_ == "-") return;
    file_.open(path_, std::ios::binary | std::ios::trunc);
    if (!file_) throw usage_error(fmt::format("{} cannot be written.", printable(path_)));
  }
  void write(const std::string& text) {
    if (path_ == "-") return print(text);
    if (path_.empty()) return;
    file_ << text;
    file_.close();
    if (!file_) throw std::runtime_error(fmt::format("{} cannot be written", printable(path_)));
  }

 private:
  std::string path_;
  std::ofstream file_;
};

// 0, or the signal that ended it.
int hold_all(sale_plan& plan, signal_inbox& signals) {
  auto& report = plan.report;
  const auto open =
      std::ranges::count_if(report.schemes, [](const auto& row) { return row.skipped.empty(); });
  sale_progress progress{static_cast<std::size_t>(open) * report.faults.size()};
  int ended_by = 0;
  for (auto& row : report.schemes) {
    if (!row.skipped.empty()) continue;
    for (const auto strike : report.faults) {
      const sale_folder folder;
      sale_setting about{row.what,
                         fmt::format("{:08x}", std::random_device{}()),
                         folder.path(),
                         plan.stores,
                         row.where,
                         report.buyers,
                         report.processes,
                         report.stock,
                         report.think,
                         report.ttl,
                         strike};
      progress.begin(fmt::format("{}{}", row.what->name,
                                 strike == fault::none ? "" : fmt::format(", {}", word(strike))));
      row.runs[strike] = hold_sale(about, [&](std::int64_t sold) {
        progress.show(sold, report.stock);
        while (const auto signal = signals.next()) {
          if (*signal == SIGTSTP) stop_like_ctrl_z(false);
          if (means_end(*signal)) ended_by = *signal;
        }
        return ended_by != 0;
      });
      if (ended_by != 0) return ended_by;
    }
  }
  return 0;
}

}  // namespace

int flash_sale(const arguments& args) {
  const auto in = tongue_of(args);
  if (args.has("--list")) {
    print(list_of_schemes(in));
    return exit_code::ok;
  }
  auto plan = plan_of(args);
  sale_output json{plan.json_to}, html{plan.html_to};
  signal_inbox signals;
  if (const int signal = hold_all(plan, signals); signal != 0) return exit_code::by_signal + signal;
  json.write(json_of(plan.report));
  html.write(page_of(plan.report));
  if (plan.json_to != "-" && plan.html_to != "-") print(table_of(plan.report, in));
  const auto broken = plan.report.broken_promises();
  if (broken.empty()) return exit_code::ok;
  complain(fmt::format("These schemes failed under what they should bear: {}.",
                       fmt::join(broken, ", ")));
  return exit_code::internal;
}

}  // namespace holdfast::cli
