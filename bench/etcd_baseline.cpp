// The etcd engine against the two bare transactions of a lock, against gRPC C++, and against the usual recipe, side by
// side in one run on one server.
//
// As in file_baseline, ratios count and the median of the rounds is shown. Always exits with 0.
//
//   etcd_baseline [--json] [etcd://127.0.0.1:PORT]      starts a server of its own unless given one
#include "etcd_bare.hpp"
#include "load.hpp"
#include "report.hpp"

#include <sys/time.h>

#include <cstdio>
#include <sstream>
#include <string_view>

using namespace std::chrono_literals;
using namespace baseline;

namespace {

constexpr int rounds = 5;
constexpr auto slice = 500ms;

std::string url_of(std::uint16_t port) { return fmt::format("etcd://127.0.0.1:{}", port); }

// ---------------------------------------------------------------- the server

// Its data are in memory where that is possible: a disk's fsync would hide everything else.
std::vector<std::string> server_command(std::uint16_t port, const std::string& data) {
  const auto client = fmt::format("http://127.0.0.1:{}", port);
  const auto peer = fmt::format("http://127.0.0.1:{}", free_port());
  return {"etcd",
          "--name=bench",
          "--data-dir=" + data + "/data",
          "--listen-client-urls=" + client,
          "--advertise-client-urls=" + client,
          "--listen-peer-urls=" + peer,
          "--initial-advertise-peer-urls=" + peer,
          "--initial-cluster=bench=" + peer,
          "--logger=zap",
          "--log-outputs=" + data + "/log"};
}

std::string memory_if_possible() {
  return ::access("/dev/shm", W_OK) == 0 ? "/dev/shm"
                                         : std::filesystem::temp_directory_path().string();
}

// What the server has counted so far.
struct counts {
  double requests = 0;     // messages of clients, over all calls and streams
  double sent = 0;         // messages to clients
  double raft_writes = 0;  // proposals that were applied
};

counts read_counts(std::uint16_t port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  constexpr std::string_view ask = "GET /metrics HTTP/1.0\r\n\r\n";
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 ||
      ::send(socket, ask.data(), ask.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(ask.size()))
    fail("The metrics of etcd cannot be had");
  std::string text;
  std::array<char, 65536> part;  // NOLINT: filled by recv
  for (ssize_t got = 0; (got = ::recv(socket, part.data(), part.size(), 0)) > 0;)
    text.append(part.data(), static_cast<std::size_t>(got));
  ::close(socket);
  std::istringstream lines{text};
  counts out;
  for (std::string line; std::getline(lines, line);) {
    const auto add = [&line](std::string_view name, double& to) {
      if (line.starts_with(name)) to += std::stod(line.substr(line.rfind(' ')));
    };
    add("grpc_server_msg_received_total{", out.requests);
    add("grpc_server_msg_sent_total{", out.sent);
    add("etcd_server_proposals_applied_total ", out.raft_writes);
  }
  return out;
}

// ---------------------------------------------------------------- uncontended

template <class Client>
double bare_threads(Client& client, std::int64_t lease, unsigned n) {
  return pairs_per_second(n, slice, [&](unsigned i) -> std::function<void()> {
    return [&client, lease, key = fmt::format("bare-{}", i)] { bare_pair(client, key, lease); };
  });
}

// All rates of one number of threads; the ratios are of the same round.
struct rates {
  std::vector<double> ours, bare, grpc, to_bare, to_grpc;
};

void add_round(rates& to, unsigned n, const holdfast::client& client, bare_client& bare,
               [[maybe_unused]] std::uint16_t port) {
  to.bare.push_back(bare_threads(bare, bare.lease(), n));
  to.ours.push_back(our_threads(client, n, slice));
  to.to_bare.push_back(to.ours.back() / to.bare.back());
#if HOLDFAST_BENCH_GRPCPP
  grpc_client theirs{port};
  to.grpc.push_back(bare_threads(theirs, bare.lease(), n));
  to.to_grpc.push_back(to.ours.back() / to.grpc.back());
#endif
}

void lone_pair(std::uint16_t port, std::vector<finding>& out) {
  const auto client = holdfast::client::open(url_of(port));
  holdfast::mutex lock{client, "pair"};
  bare_client bare{port};
  std::vector<double> ours, plain, ratio;
  const auto lock_pair = [&] {
    lock.lock();
    lock.unlock();
  };
#if HOLDFAST_BENCH_GRPCPP
  grpc_client theirs{port};
  std::vector<double> grpc, to_grpc;
#endif
  for (int i = 0; i < rounds; ++i) {
    plain.push_back(ns_per(slice, [&] { bare_pair(bare, "bare", bare.lease()); }));
    ours.push_back(ns_per(slice, lock_pair));
    ratio.push_back(ours.back() / plain.back());
#if HOLDFAST_BENCH_GRPCPP
    grpc.push_back(ns_per(slice, [&] { bare_pair(theirs, "bare", bare.lease()); }));
    to_grpc.push_back(ours.back() / grpc.back());
#endif
  }
  out.push_back({"uncontended pair / two bare transactions on our transport",
                 fmt::format("{:.0f} / {:.0f} us", median(ours) / 1e3, median(plain) / 1e3),
                 median(ratio), 1.15, "x"});
#if HOLDFAST_BENCH_GRPCPP
  out.push_back({"uncontended pair / the two transactions through gRPC C++",
                 fmt::format("{:.0f} / {:.0f} us", median(ours) / 1e3, median(grpc) / 1e3),
                 median(to_grpc), 1, "x", bound::below});
#endif
}

void threads(std::uint16_t port, std::vector<finding>& out) {
  const auto client = holdfast::client::open(url_of(port));
  bare_client bare{port};
  std::map<unsigned, rates> all;
  for (int i = 0; i < rounds; ++i)
    for (const unsigned n : {1U, 8U, 64U}) add_round(all[n], n, client, bare, port);
  for (auto& [n, seen] : all) {
    out.push_back({fmt::format("{} threads, a name each / the same bare, one connection", n),
                   fmt::format("{:.0f} / {:.0f} pairs/s", median(seen.ours), median(seen.bare)),
                   median(seen.to_bare), std::nullopt, "x"});
    if (!seen.grpc.empty())
      out.push_back({fmt::format("{} threads, a name each / the same through gRPC C++", n),
                     fmt::format("{:.0f} / {:.0f} pairs/s", median(seen.ours), median(seen.grpc)),
                     median(seen.to_grpc), 1, "x", bound::at_least});
  }
  out.push_back({"64 threads / 1 thread",
                 fmt::format("{:.0f} / {:.0f} pairs/s", median(all[64].ours), median(all[1].ours)),
                 median(all[64].ours) / median(all[1].ours), std::nullopt, "x"});
}

// ---------------------------------------------------------------- contended

void contended(std::uint16_t port, std::vector<finding>& out) {
  for (const unsigned n : {2U, 8U}) {
    const auto recipe = measure_contention(n, "contend-recipe", std::to_string(port), 3s);
    const auto ours = measure_contention(n, "contend", url_of(port), 3s);
    out.push_back({fmt::format("hand-offs, {} processes / the recipe with a watch of the past", n),
                   fmt::format("{:.0f} / {:.0f} per second", ours.per_second, recipe.per_second),
                   ours.per_second / recipe.per_second, 10, "x", bound::at_least});
    out.push_back({fmt::format("p99 of a hand-off, {} processes", n),
                   fmt::format("p50 {:.2f} ms; the recipe: {:.0f}, p99 {:.0f} ms", ours.p50 / 1e6,
                               recipe.p50 / 1e6, recipe.p99 / 1e6),
                   ours.p99 / 1e6, 10, "ms", bound::below});
  }
}

void crowd(std::uint16_t port, std::vector<finding>& out) {
  std::map<unsigned, double> requests;
  for (const unsigned n : {2U, 8U, 32U, 128U}) {
    counts before, after;
    const auto seen = measure_contention(
        n, "contend", url_of(port), 3s, [&] { before = read_counts(port); },
        [&] { after = read_counts(port); });
    requests[n] = (after.requests - before.requests) / seen.handoffs;
    out.push_back({fmt::format("requests per hand-off, {} processes", n),
                   fmt::format("{:.0f} hand-offs/s, p99 {:.1f} ms, {:.2f} raft writes, {:.1f} sent",
                               seen.per_second, seen.p99 / 1e6,
                               (after.raft_writes - before.raft_writes) / seen.handoffs,
                               (after.sent - before.sent) / seen.handoffs),
                   requests[n], std::nullopt, ""});
  }
  out.push_back({"requests per hand-off, 128 / 8 processes",
                 fmt::format("{:.2f} / {:.2f}", requests[128], requests[8]),
                 requests[128] / requests[8], 1.25, "x"});
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
    if (word.starts_with("etcd://"))
      port = static_cast<std::uint16_t>(std::stoi(std::string{word.substr(word.rfind(':') + 1)}));
  }
  const folder where{memory_if_possible()};
  std::optional<process> own;
  if (port == 0) {
    port = free_port();
    own.emplace(server_command(port, where.path()));
  }
  wait_until([&] { return holdfast::client::try_open(url_of(port)).has_value(); });
  std::vector<finding> all;
  lone_pair(port, all);
  threads(port, all);
  contended(port, all);
  crowd(port, all);
  print(all, json);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "etcd_baseline: %s\n", e.what());
  return 1;
}
