// The ZooKeeper engine against the two bare requests of a lock, against the official C client, and against the usual
// recipe on that client, side by side in one run on one server.
//
// As in file_baseline, ratios count and the median of the rounds is shown. Always exits with 0.
//
//   zk_baseline [--json] [zk://127.0.0.1:PORT]      starts a server of its own unless given one; one that is given must
//                                                   allow the four-letter word mntr, and 128 connections of a client
#include "load.hpp"
#include "report.hpp"
#include "zk_bare.hpp"
#include "zk_c_client.hpp"

#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string_view>

using namespace std::chrono_literals;
using namespace baseline;

namespace {

constexpr int rounds = 5;
constexpr auto slice = 500ms;

std::string url_of(std::uint16_t port) { return fmt::format("zk://127.0.0.1:{}", port); }

// ---------------------------------------------------------------- the server

// Its data are in memory where that is possible, and it does not fsync: a disk would hide everything else.
std::vector<std::string> server_command(std::uint16_t port, const std::string& data) {
  const auto config = data + "/zoo.cfg";
  std::ofstream{config}
      << "dataDir=" << data << "/data\nclientPort=" << port
      << "\ntickTime=2000\nmaxClientCnxns=0\nforceSync=no\nadmin.enableServer=false\n"
         "4lw.commands.whitelist=mntr\n";
  return {"java", "-cp", "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-nop.jar",
          "org.apache.zookeeper.server.quorum.QuorumPeerMain", config};
}

std::string memory_if_possible() {
  return ::access("/dev/shm", W_OK) == 0 ? "/dev/shm"
                                         : std::filesystem::temp_directory_path().string();
}

bool answers(std::uint16_t port) {
  try {
    return bare_session::four_letter(port, "mntr").find("zk_packets_received") != std::string::npos;
  } catch (const std::system_error&) {
    return false;
  }
}

// What the server has counted so far: of clients, and to clients (answers and events).
struct counts {
  double requests = 0;
  double sent = 0;
};

counts read_counts(std::uint16_t port) {
  std::istringstream words{bare_session::four_letter(port, "mntr")};
  counts out;
  for (std::string word; words >> word;) {
    if (word == "zk_packets_received") words >> out.requests;
    if (word == "zk_packets_sent") words >> out.sent;
  }
  return out;
}

// ---------------------------------------------------------------- uncontended

void lone_pair(std::uint16_t port, std::vector<finding>& out) {
  const auto client = holdfast::client::open(url_of(port));
  holdfast::mutex lock{client, "pair"};
  c_client theirs{port};
  theirs.create_if_absent("/bare");
  recipe_lock recipe{theirs, "/recipe"};
  bare_session bare{port};
  std::vector<double> ours, plain, c_pair, c_recipe, to_plain, to_pair, to_recipe;
  ns_per(2s, [&] { bare.pair("/bare/lock-"); });  // Java compiles first what it does often
  for (int i = 0; i < rounds; ++i) {
    plain.push_back(ns_per(slice, [&] { bare.pair("/bare/lock-"); }));
    ours.push_back(ns_per(slice, [&] {
      lock.lock();
      lock.unlock();
    }));
    c_pair.push_back(ns_per(slice, [&] { bare_pair(theirs, "/bare"); }));
    c_recipe.push_back(ns_per(slice, [&] {
      recipe.lock();
      recipe.unlock();
    }));
    to_plain.push_back(ours.back() / plain.back());
    to_pair.push_back(ours.back() / c_pair.back());
    to_recipe.push_back(ours.back() / c_recipe.back());
  }
  const auto add = [&](const char* what, const std::vector<double>& theirs_ns,
                       const std::vector<double>& ratio, std::optional<double> target, bound want) {
    out.push_back({fmt::format("uncontended pair / {}", what),
                   fmt::format("{:.0f} / {:.0f} us", median(ours) / 1e3, median(theirs_ns) / 1e3),
                   median(ratio), target, "x", want});
  };
  add("create2 and delete in our codec, blocking", plain, to_plain, std::nullopt, bound::at_most);
  add("create and delete through the C client", c_pair, to_pair, 1.15, bound::at_most);
  add("the recipe on the C client", c_recipe, to_recipe, 1, bound::below);
}

// The pairs per second of `n` threads with a recipe lock each, at the session that `client_of` gives to each.
double recipe_threads(unsigned n, const std::function<c_client&(unsigned)>& client_of) {
  return pairs_per_second(n, slice, [&](unsigned i) -> std::function<void()> {
    auto lock = std::make_shared<recipe_lock>(client_of(i), fmt::format("/recipe-{}", i));
    return [lock] {
      lock->lock();
      lock->unlock();
    };
  });
}

void threads(std::uint16_t port, std::vector<finding>& out) {
  constexpr unsigned n = 64;
  const auto client = holdfast::client::open(url_of(port));
  c_client shared{port};
  std::list<c_client> own;
  std::vector<c_client*> own_of;
  for (unsigned i = 0; i < n; ++i) own_of.push_back(&own.emplace_back(port));
  for (unsigned i = 0; i < n; ++i) shared.create_if_absent(fmt::format("/bare-{}", i));
  std::vector<double> ours, bare, one, each, to_bare, to_one, to_each;
  for (int i = 0; i < rounds; ++i) {
    ours.push_back(our_threads(client, n, slice));
    bare.push_back(pairs_per_second(n, slice, [&](unsigned t) -> std::function<void()> {
      return [&shared, folder = fmt::format("/bare-{}", t)] { bare_pair(shared, folder); };
    }));
    one.push_back(recipe_threads(n, [&](unsigned) -> c_client& { return shared; }));
    each.push_back(recipe_threads(n, [&](unsigned t) -> c_client& { return *own_of[t]; }));
    to_bare.push_back(ours.back() / bare.back());
    to_one.push_back(ours.back() / one.back());
    to_each.push_back(ours.back() / each.back());
  }
  const auto add = [&](const char* what, const std::vector<double>& theirs,
                       const std::vector<double>& ratio) {
    out.push_back({fmt::format("{} threads, a name each / {}", n, what),
                   fmt::format("{:.0f} / {:.0f} pairs/s", median(ours), median(theirs)),
                   median(ratio), 1, "x", bound::at_least});
  };
  add("create and delete through the C client, one session", bare, to_bare);
  add("the recipe on the C client, one session", one, to_one);
  add("the recipe on the C client, a session each", each, to_each);
}

// ---------------------------------------------------------------- contended

void contended(std::uint16_t port, std::vector<finding>& out) {
  for (const unsigned n : {2U, 8U, 32U}) {
    std::vector<double> ours, recipe, ratio, p99, recipe_p99;
    for (int i = 0; i < 3; ++i) {
      const auto theirs = measure_contention(n, "contend-recipe", std::to_string(port), 1500ms);
      const auto own = measure_contention(n, "contend", url_of(port), 1500ms);
      ours.push_back(own.per_second);
      recipe.push_back(theirs.per_second);
      ratio.push_back(own.per_second / theirs.per_second);
      p99.push_back(own.p99 / 1e6);
      recipe_p99.push_back(theirs.p99 / 1e6);
    }
    out.push_back({fmt::format("acquires, {} processes / the recipe on the C client", n),
                   fmt::format("{:.0f} / {:.0f} per second; p99 of a hand-off {:.1f} / {:.1f} ms",
                               median(ours), median(recipe), median(p99), median(recipe_p99)),
                   median(ratio), 1, "x", bound::at_least});
  }
}

// Requests per hand-off of `n` processes of that role.
double crowd_of(unsigned n, const char* role, const std::string& where, std::uint16_t port,
                contention& seen) {
  counts before, after;
  seen = measure_contention(
      n, role, where, 3s, [&] { before = read_counts(port); }, [&] { after = read_counts(port); });
  return (after.requests - before.requests) / seen.handoffs;
}

void crowd(std::uint16_t port, std::vector<finding>& out) {
  std::map<unsigned, double> requests;
  for (const unsigned n : {8U, 32U, 128U}) {
    contention ours, theirs;
    const auto recipe = crowd_of(n, "contend-recipe", std::to_string(port), port, theirs);
    requests[n] = crowd_of(n, "contend", url_of(port), port, ours);
    out.push_back({fmt::format("requests per hand-off, {} processes", n),
                   fmt::format("{:.0f} hand-offs/s, p99 {:.1f} ms; the recipe: {:.2f}, {:.0f}/s",
                               ours.per_second, ours.p99 / 1e6, recipe, theirs.per_second),
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
    c_client client{static_cast<std::uint16_t>(std::stoi(argv[3]))};
    recipe_lock lock{client, "/contended-recipe"};
    contend(open_shared_state(argv[2]), lock);
    return 0;
  }
  bool json = false;
  std::uint16_t port = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--json") json = true;
    if (word.starts_with("zk://"))
      port = static_cast<std::uint16_t>(std::stoi(std::string{word.substr(word.rfind(':') + 1)}));
  }
  const folder where{memory_if_possible()};
  std::optional<process> own;
  if (port == 0) {
    port = free_port();
    own.emplace(server_command(port, where.path()));
  }
  wait_until([&] { return answers(port); });
  std::vector<finding> all;
  lone_pair(port, all);
  threads(port, all);
  contended(port, all);
  crowd(port, all);
  print(all, json);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "zk_baseline: %s\n", e.what());
  return 1;
}
