// The Consul engine against the two bare requests of a lock on one kept-alive connection, and against the recipe of
// Consul's own clients, side by side in one run on one agent.
//
// As in file_baseline, ratios count and the median of the rounds is shown. Always exits with 0.
//
//   consul_baseline [--json] [consul://127.0.0.1:PORT]      starts an agent unless given one: HOLDFAST_CONSUL, or
//                                                           consul from the PATH
#include "consul_bare.hpp"
#include "load.hpp"
#include "report.hpp"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>

using namespace std::chrono_literals;
using namespace baseline;

namespace {

constexpr int rounds = 5;
constexpr auto slice = 500ms;

std::string url_of(std::uint16_t port) {
  return fmt::format("consul://127.0.0.1:{}/bench?session=60s", port);
}

// ---------------------------------------------------------------- the agent

// A development agent keeps everything in memory: a disk's fsync would hide everything else.
std::vector<std::string> agent_command(const std::string& program, std::uint16_t port,
                                       const std::string& folder) {
  std::ofstream{folder + "/config.json"} << fmt::format(
      R"({{"ports": {{"http": {}, "server": {}, "serf_lan": {}, "serf_wan": -1, "dns": -1, "grpc": -1}},
           "telemetry": {{"prometheus_retention_time": "24h", "disable_hostname": true}},
           "limits": {{"http_max_conns_per_client": 4000}}, "log_level": "WARN"}})",
      port, free_port(), free_port());
  return {program,
          "agent",
          "-dev",
          "-bind=127.0.0.1",
          "-client=127.0.0.1",
          "-disable-host-node-id",
          "-config-file=" + folder + "/config.json"};
}

// What clients have had answered so far; a blocking query counts when it ends.
double read_requests(std::uint16_t port) {
  bare_consul hand{port};
  std::istringstream lines{hand.get("/v1/agent/metrics?format=prometheus")};
  double out = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto blank = line.find(' ');
    if (line.starts_with("consul_http_") && blank != std::string::npos &&
        std::string_view{line}.substr(0, blank).ends_with("_count"))
      out += std::stod(line.substr(blank + 1));
  }
  return out;
}

// ---------------------------------------------------------------- uncontended

void lone_pair(std::uint16_t port, std::vector<finding>& out) {
  const auto client = holdfast::client::open(url_of(port));
  holdfast::mutex lock{client, "pair"};
  bare_consul bare{port};
  const auto session = bare.make_session();
  std::vector<double> ours, waited, plain, ratio, waited_ratio;
  for (int i = 0; i < rounds; ++i) {
    plain.push_back(ns_per(slice, [&] { bare_pair(bare, "bare", session); }));
    ours.push_back(ns_per(slice, [&] {
      lock.lock();
      lock.unlock();
    }));
    waited.push_back(ns_per(slice, [&] { lock.acquire().value().release().value(); }));
    ratio.push_back(ours.back() / plain.back());
    waited_ratio.push_back(waited.back() / plain.back());
  }
  const auto add = [&](const char* what, const std::vector<double>& ns,
                       const std::vector<double>& ratios) {
    out.push_back({fmt::format("{} / two bare requests on one connection", what),
                   fmt::format("{:.0f} / {:.0f} us", median(ns) / 1e3, median(plain) / 1e3),
                   median(ratios), 1.2, "x"});
  };
  add("uncontended lock, unlock", ours, ratio);
  add("uncontended acquire, release", waited, waited_ratio);
}

void threads(std::uint16_t port, std::vector<finding>& out) {
  const auto client = holdfast::client::open(url_of(port));
  for (const unsigned n : {8U, 64U}) {
    std::vector<double> ours, bare, ratio;
    for (int i = 0; i < rounds; ++i) {
      bare.push_back(pairs_per_second(n, slice, [&](unsigned t) -> std::function<void()> {
        const auto own = std::make_shared<bare_consul>(port);
        return [own, session = own->make_session(), key = fmt::format("bare-{}", t)] {
          bare_pair(*own, key, session);
        };
      }));
      ours.push_back(our_threads(client, n, slice));
      ratio.push_back(ours.back() / bare.back());
    }
    out.push_back({fmt::format("{} threads, a name each / bare, a connection each", n),
                   fmt::format("{:.0f} / {:.0f} pairs/s", median(ours), median(bare)),
                   median(ratio), std::nullopt, "x"});
  }
}

// ---------------------------------------------------------------- contended

void contended(std::uint16_t port, std::vector<finding>& out) {
  std::map<unsigned, double> requests;
  for (const unsigned n : {2U, 8U, 32U}) {
    const auto recipe = measure_contention(n, "contend-recipe", std::to_string(port), 3s);
    double before = 0, after = 0;
    const auto ours = measure_contention(
        n, "contend", url_of(port), 3s, [&] { before = read_requests(port); },
        [&] { after = read_requests(port); });
    requests[n] = (after - before) / ours.handoffs;
    out.push_back(
        {fmt::format("hand-offs, {} processes / the recipe of api.Lock", n),
         fmt::format("{:.0f} / {:.0f} per second; p99 {:.1f} / {:.1f} ms", ours.per_second,
                     recipe.per_second, ours.p99 / 1e6, recipe.p99 / 1e6),
         ours.per_second / recipe.per_second, std::nullopt, "x"});
    out.push_back({fmt::format("requests per hand-off, {} processes", n),
                   fmt::format("{:.0f} hand-offs", ours.handoffs), requests[n], std::nullopt, ""});
  }
  out.push_back({"requests per hand-off, 32 / 8 processes",
                 fmt::format("{:.2f} / {:.2f}", requests[32], requests[8]),
                 requests[32] / requests[8], 1.25, "x"});
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (argc == 4 && first == "contend") {
    contend_with_ours(argv[2], argv[3]);
    return 0;
  }
  if (argc == 4 && first == "contend-recipe") {
    recipe_lock lock{static_cast<std::uint16_t>(std::stoi(argv[3])), "recipe"};
    contend(open_shared_state(argv[2]), lock);
    return 0;
  }
  bool json = false;
  std::uint16_t port = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--json") json = true;
    if (word.starts_with("consul://"))
      port = static_cast<std::uint16_t>(std::stoi(std::string{word.substr(word.rfind(':') + 1)}));
  }
  const folder where{std::filesystem::temp_directory_path().string()};
  std::optional<process> own;
  if (port == 0) {
    port = free_port();
    const char* const program = std::getenv("HOLDFAST_CONSUL");
    own.emplace(agent_command(program != nullptr ? program : "consul", port, where.path()));
  }
  wait_until([&] { return holdfast::client::try_open(url_of(port)).has_value(); });
  std::vector<finding> all;
  lone_pair(port, all);
  threads(port, all);
  contended(port, all);
  print(all, json);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "consul_baseline: %s\n", e.what());
  return 1;
}
