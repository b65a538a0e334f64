// Redlock against plain loops over the same five masters, side by side in one run.
//
// The plain loops send SET NX PX and then a compare-and-delete script over one blocking connection to each master: one
// after the other, as most clients do; or to all, and then read all answers. They count no time and check no majority.
// As in file_baseline, ratios count and the median of the rounds is shown. Always exits with 0.
//
//   redlock_baseline [--json]      starts five servers of its own
#include "load.hpp"
#include "plain_redis.hpp"
#include "report.hpp"

#include <holdfast/holdfast.hpp>

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

using namespace std::chrono_literals;
using namespace baseline;

namespace {

constexpr int rounds = 7;
constexpr auto slice = 400ms;
constexpr std::size_t masters = 5;

class plain_redlock {
 public:
  explicit plain_redlock(const std::vector<std::uint16_t>& ports) {
    for (const auto port : ports) {
      all_.push_back(std::make_unique<plain_connection>(port));
      all_.back()->send({"SCRIPT", "LOAD",
                         "if redis.call('GET', KEYS[1]) == ARGV[1] then return "
                         "redis.call('DEL', KEYS[1]) else return 0 end"});
      const auto said = all_.back()->receive();
      release_ = said.substr(said.find('\n') + 1, 40);
    }
  }
  void pair_in_turn() {
    for (const auto* words : {&take_, &give_back()}) {
      for (auto& one : all_) {
        one->send(*words);
        one->receive();
      }
    }
  }
  void pair_at_once() {
    for (const auto* words : {&take_, &give_back()}) {
      for (auto& one : all_) one->send(*words);
      for (auto& one : all_) one->receive();
    }
  }

 private:
  const std::vector<std::string>& give_back() {
    if (give_back_.empty()) give_back_ = {"EVALSHA", release_, "1", "plain", owner_};
    return give_back_;
  }
  const std::string owner_ = "0123456789abcdef0123456789abcdef";
  const std::vector<std::string> take_{"SET", "plain", owner_, "NX", "PX", "30000"};
  std::vector<std::string> give_back_;
  std::string release_;
  std::vector<std::unique_ptr<plain_connection>> all_;
};

// Grants per second of clients that all want one name, and work for a millisecond when they have it.
double grants_among(unsigned clients, const std::string& url) {
  return pairs_per_second(clients, 5s, [&](unsigned) -> std::function<void()> {
    const auto own = std::make_shared<holdfast::client>(holdfast::client::open(url));
    const auto lock = std::make_shared<holdfast::mutex>(*own, "hot");
    return [own, lock] {
      const auto held = lock->acquire({.wait = 30s}).value();
      std::this_thread::sleep_for(1ms);
    };
  });
}

void measure(std::vector<redis_process>& all, const std::string& url, std::vector<finding>& out) {
  std::vector<std::uint16_t> ports;
  for (const auto& one : all) ports.push_back(one.port);
  const auto client = holdfast::client::open(url);
  holdfast::mutex lock{client, "pair"};
  plain_redlock plain{ports};
  std::vector<double> in_turn, at_once, ours, to_turn, to_once;
  for (int i = 0; i < rounds; ++i) {
    in_turn.push_back(ns_per(slice, [&] { plain.pair_in_turn(); }));
    ours.push_back(ns_per_lock(lock, slice));
    at_once.push_back(ns_per(slice, [&] { plain.pair_at_once(); }));
    to_turn.push_back(ours.back() / in_turn.back());
    to_once.push_back(ours.back() / at_once.back());
  }
  const auto both = [&](const std::vector<double>& other) {
    return fmt::format("{:.1f} / {:.1f} us", median(ours) / 1e3, median(other) / 1e3);
  };
  out.push_back(
      {"acquire and release / five masters in turn", both(in_turn), median(to_turn), 0.6, "x"});
  out.push_back({"acquire and release / five masters at once, all awaited", both(at_once),
                 median(to_once), 1.0, "x"});

  std::vector<double> healthy{ours};
  const auto many = our_coroutines(client, 1000, slice);
  out.push_back({"1000 coroutines, distinct names", fmt::format("{:.1f}k pairs/s", many / 1e3),
                 many / 1e3, std::nullopt, "k/s"});
  const auto few = grants_among(3, url);
  for (const unsigned clients : {10U, 30U, 80U}) {
    const auto some = grants_among(clients, url);
    out.push_back({fmt::format("{} clients of one name / 3 clients", clients),
                   fmt::format("{:.0f} / {:.0f} grants/s", some, few), some / few, std::nullopt,
                   "x"});
  }
  all[1].runs.reset();
  all[3].runs.reset();
  lock.lock(), lock.unlock();
  std::vector<double> hurt;
  for (int i = 0; i < rounds; ++i) hurt.push_back(ns_per_lock(lock, slice));
  out.push_back({"two of five dead / all well",
                 fmt::format("{:.1f} / {:.1f} us", median(hurt) / 1e3, median(healthy) / 1e3),
                 median(hurt) / median(healthy), 1.5, "x"});
}

}  // namespace

int main(int argc, char** argv) try {
  const bool json = argc > 1 && std::string_view{argv[1]} == "--json";
  const folder where;
  std::vector<redis_process> all;
  std::string url;
  for (std::size_t i = 0; i < masters; ++i) {
    all.emplace_back(where);
    url += fmt::format("{}127.0.0.1:{}", i == 0 ? "redlock://" : ",", all.back().port);
  }
  url += "?quarantine=0";
  for (const auto& one : all) one.wait_until_up();
  std::vector<finding> found;
  measure(all, url, found);
  print(found, json);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "redlock_baseline: %s\n", e.what());
  return 1;
}
