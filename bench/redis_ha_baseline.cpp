// A Redis behind Sentinel and a Redis Cluster against one server, side by side in one run.
//
// One server; a master with a replica and a sentinel; a cluster of three masters. Nothing is persisted. As in
// file_baseline, ratios count and the median of the rounds is shown. Always exits with 0.
//
//   redis_ha_baseline [--json]      starts servers of its own
#include "load.hpp"
#include "plain_redis.hpp"
#include "report.hpp"

#include <holdfast/holdfast.hpp>

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using namespace baseline;

namespace {

constexpr int rounds = 7;
constexpr auto slice = 400ms;
constexpr std::size_t masters = 3;
constexpr unsigned slots = 16'384;

// The sentinel writes into its own configuration, so that is a file.
class watched_master {
 public:
  explicit watched_master(const folder& where)
      : master_(where),
        replica_(where, {"--replicaof", "127.0.0.1", std::to_string(master_.port)}) {
    master_.wait_until_up(), replica_.wait_until_up();
    port_ = free_port();
    const auto file = where.path() + "/sentinel.conf";
    std::ofstream{file} << "port " << port_ << "\nbind 127.0.0.1\ndir " << where.path()
                        << "\nlogfile sentinel.log\nsentinel monitor main 127.0.0.1 "
                        << master_.port << " 1\n";
    sentinel_ =
        std::make_unique<process>(std::vector<std::string>{"redis-server", file, "--sentinel"});
    wait_until([&] { return holdfast::client::try_open(url()).has_value(); });
  }
  std::string url() const { return fmt::format("redis+sentinel://127.0.0.1:{}/main", port_); }
  std::string url_of_master() const { return fmt::format("redis://127.0.0.1:{}", master_.port); }

 private:
  redis_process master_, replica_;
  std::uint16_t port_ = 0;
  std::unique_ptr<process> sentinel_;
};

class three_masters {
 public:
  explicit three_masters(const folder& where) {
    std::vector<std::uint16_t> buses;
    for (std::size_t i = 0; i < masters; ++i) {
      buses.push_back(free_port());
      all_.emplace_back(
          where, std::vector<std::string>{"--cluster-enabled", "yes", "--cluster-config-file",
                                          fmt::format("nodes-{}.conf", buses.back()),
                                          "--cluster-port", std::to_string(buses.back())});
    }
    for (std::size_t i = 0; i < masters; ++i) {
      all_[i].wait_until_up();
      plain_connection to{all_[i].port};
      to.ask({"CLUSTER", "ADDSLOTSRANGE", std::to_string(i * slots / masters),
              std::to_string((i + 1) * slots / masters - 1)});
      to.ask({"CLUSTER", "SET-CONFIG-EPOCH", std::to_string(i + 1)});
      plain_connection{all_[0].port}.ask(
          {"CLUSTER", "MEET", "127.0.0.1", std::to_string(all_[i].port), std::to_string(buses[i])});
    }
    for (auto& one : all_)
      wait_until([&] {
        return plain_connection{one.port}.ask({"CLUSTER", "INFO"}).find("cluster_state:ok") !=
               std::string::npos;
      });
  }
  std::string url() const { return fmt::format("redis+cluster://127.0.0.1:{}", all_[0].port); }

 private:
  std::vector<redis_process> all_;
};

struct store {
  explicit store(const std::string& url) : client(holdfast::client::open(url)) {}
  double pair() { return pairs.emplace_back(ns_per_lock(lock, slice)); }
  double many() { return rates.emplace_back(our_coroutines(client, 1000, slice)); }
  holdfast::client client;
  holdfast::mutex lock{client, "pair"};
  std::vector<double> pairs, rates;
};

void measure(const std::string& one, const watched_master& sentinel, const std::string& cluster,
             std::vector<finding>& out) {
  // The same master without its sentinel: what a replica on this machine costs, and what Sentinel does, apart.
  store plain{one}, watched{sentinel.url()}, known{sentinel.url_of_master()}, spread{cluster};
  std::vector<double> watched_to_known, many_known, watched_to_plain, spread_to_plain, many_watched,
      many_spread;
  for (int i = 0; i < rounds; ++i) {
    const auto pair = plain.pair(), many = plain.many();
    watched_to_plain.push_back(watched.pair() / pair);
    watched_to_known.push_back(watched.pairs.back() / known.pair());
    spread_to_plain.push_back(spread.pair() / pair);
    many_watched.push_back(watched.many() / many);
    many_known.push_back(watched.rates.back() / known.many());
    many_spread.push_back(spread.many() / many);
  }
  const auto us = [](const store& a, const store& b) {
    return fmt::format("{:.1f} / {:.1f} us", median(a.pairs) / 1e3, median(b.pairs) / 1e3);
  };
  const auto rate = [](const store& a, const store& b) {
    return fmt::format("{:.1f}k / {:.1f}k pairs/s", median(a.rates) / 1e3, median(b.rates) / 1e3);
  };
  const auto cores = std::thread::hardware_concurrency();
  // A replica works along with its master, on this machine.
  out.push_back({"acquire and release: Sentinel / one server", us(watched, plain),
                 median(watched_to_plain), std::nullopt, "x"});
  out.push_back({"acquire and release: Sentinel / the same master without it", us(watched, known),
                 median(watched_to_known), std::nullopt, "x"});
  out.push_back({"acquire and release: cluster / one server", us(spread, plain),
                 median(spread_to_plain), std::nullopt, "x"});
  out.push_back({"1000 coroutines, distinct names: Sentinel / one server", rate(watched, plain),
                 median(many_watched), std::nullopt, "x"});
  out.push_back({"1000 coroutines, distinct names: Sentinel / the same master without it",
                 rate(watched, known), median(many_known), std::nullopt, "x"});
  out.push_back(
      {fmt::format("1000 coroutines, distinct names: cluster / one server ({} cores)", cores),
       rate(spread, plain), median(many_spread), std::nullopt, "x"});
}

}  // namespace

int main(int argc, char** argv) try {
  const bool json = argc > 1 && std::string_view{argv[1]} == "--json";
  const folder where;
  const redis_process one{where};
  one.wait_until_up();
  const watched_master sentinel{where};
  const three_masters cluster{where};
  std::vector<finding> found;
  measure(fmt::format("redis://127.0.0.1:{}", one.port), sentinel, cluster.url(), found);
  print(found, json);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "redis_ha_baseline: %s\n", e.what());
  return 1;
}
