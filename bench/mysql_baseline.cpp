// The mysql engine against its own two statements in a bare loop, and against the lock that polls, on the same server.
//
// As in file_baseline, ratios count and the median of the rounds is shown. The server syncs every commit, its default.
//
//   mysql_baseline [--json] [mysql://root@127.0.0.1:PORT/DATABASE]     starts a server of its own unless given one
#include "load.hpp"
#include "mysql_bare.hpp"
#include "report.hpp"

#include <fstream>
#include <map>
#include <optional>
#include <string_view>

using namespace std::chrono_literals;
using namespace baseline;

namespace {

constexpr int rounds = 7;
constexpr auto slice = 600ms;
constexpr auto window = 3s;

// ---------------------------------------------------------------- the server

// Debian has the server where few have their PATH.
std::vector<std::string> in_shell(const std::string& line) {
  return {"sh", "-c", "PATH=$PATH:/usr/sbin; exec " + line};
}

std::vector<std::string> install_command(const std::string& folder) {
  return in_shell(
      fmt::format("mariadb-install-db --no-defaults --datadir={0}/data --user=root --skip-test-db "
                  "--skip-name-resolve --auth-root-authentication-method=normal >{0}/install 2>&1",
                  folder));
}

std::vector<std::string> server_command(const std::string& folder, std::uint16_t port) {
  return in_shell(fmt::format(
      "mariadbd --no-defaults --user=root --datadir={0}/data --socket={0}/socket --port={1} "
      "--bind-address=127.0.0.1 --skip-name-resolve --max-connections=500 --pid-file={0}/pid "
      "--log-error={0}/log --init-file={0}/init",
      folder, port));
}

// ---------------------------------------------------------------- without contention

void lone_pair(const std::string& url, std::vector<finding>& out) {
  bare_lock bare{url, logged_pair(url), "bare"};
  holdfast::mutex lock{holdfast::client::open(url), "ours"};
  std::vector<double> plain, explicitly, std_face, ratio, std_ratio;
  for (int i = 0; i <= rounds; ++i) {
    plain.push_back(ns_per(slice, [&] {
      bare.try_lock();
      bare.unlock();
    }));
    explicitly.push_back(ns_per(slice, [&] {
      auto held = lock.acquire().value();
      held.release().value();
    }));
    std_face.push_back(ns_per(slice, [&] {
      lock.lock();
      lock.unlock();
    }));
    ratio.push_back(explicitly.back() / plain.back());
    std_ratio.push_back(std_face.back() / plain.back());
  }
  const auto against = [&](const std::vector<double>& ours) {
    return fmt::format("{:.0f} / {:.0f} us", median(ours) / 1e3, median(plain) / 1e3);
  };
  out.push_back({"uncontended acquire, release / the same two statements, bare",
                 against(explicitly), median(ratio), 1.15, "x"});
  out.push_back({"uncontended lock, unlock / the same two statements, bare", against(std_face),
                 median(std_ratio), 1.15, "x"});
}

// ---------------------------------------------------------------- contention

void contended(const std::string& url, std::vector<finding>& out) {
  sql_client look{url};
  std::map<unsigned, double> statements;
  for (const unsigned n : {2U, 8U, 32U, 64U}) {
    double before = 0, after = 0;
    const auto ours = measure_contention(
        n, "contend", url, window, [&] { before = look.statements(); },
        [&] { after = look.statements(); });
    statements[n] = (after - before) / ours.handoffs;
    out.push_back({fmt::format("statements per hand-off, {} processes", n),
                   fmt::format("{:.0f} hand-offs/s, p50 {:.2f} ms, p99 {:.1f} ms", ours.per_second,
                               ours.p50 / 1e6, ours.p99 / 1e6),
                   statements[n], std::nullopt, ""});
    if (n != 32) continue;
    // A client that polls takes it again and again while the others sleep; only what reached another is a hand-off.
    const auto polling = measure_contention(n, "contend-polling", url, window);
    out.push_back({"hand-offs, 32 processes / a loop that asks every 50 ms",
                   fmt::format("{:.0f} / {:.0f} per second", ours.changes_per_second,
                               polling.changes_per_second),
                   ours.changes_per_second / polling.changes_per_second, 5, "x", bound::at_least});
  }
  out.push_back({"statements per hand-off, 64 / 8 processes",
                 fmt::format("{:.2f} / {:.2f}", statements[64], statements[8]),
                 statements[64] / statements[8], 1.1, "x"});
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (argc == 4 && first == "contend") {
    contend_with_ours(argv[2], argv[3]);
    return 0;
  }
  if (argc == 4 && first == "contend-polling") {
    bare_lock lock{argv[3], logged_pair(argv[3]), "polled"};
    contend(open_shared_state(argv[2]), lock);
    return 0;
  }
  bool json = false;
  std::string url;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--json") json = true;
    if (word.starts_with("mysql://")) url = word;
  }
  const folder where;
  std::optional<process> own;
  if (url.empty()) {
    const auto port = free_port();
    url = fmt::format("mysql://root@127.0.0.1:{}/bench?create=1", port);
    process{install_command(where.path())}.wait();
    std::ofstream{where.path() + "/init"} << "CREATE DATABASE bench;\n";
    own.emplace(server_command(where.path(), port));
  }
  wait_until([&] { return holdfast::client::try_open(url).has_value(); });
  log_a_pair(url);
  std::vector<finding> all;
  lone_pair(url, all);
  contended(url, all);
  print(all, json);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "mysql_baseline: %s\n", e.what());
  return 1;
}
