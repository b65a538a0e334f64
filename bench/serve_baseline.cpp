// `holdfast serve` on the embedded store: what a lock costs by HTTP, against requests that do nothing in the same
// service, and against nginx, which answers every request with a fixed text; what a waiting client costs; and whether
// a hand-off costs more the more clients wait.
//
// As in file_baseline, ratios count and the median of the rounds is shown. Always exits with 0.
//
//   serve_baseline [--json]      starts an nginx, and a service of its own: HOLDFAST_CLI, or the holdfast of this build
#include "http_bare.hpp"
#include "report.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

using namespace std::chrono_literals;
using namespace baseline;

namespace {

constexpr int rounds = 5;
constexpr auto slice = 700ms;

// ---------------------------------------------------------------- the servers

std::string program() {
  if (const char* const given = std::getenv("HOLDFAST_CLI")) return given;
  const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  return (here.parent_path() / "cli" / "holdfast").string();
}

bool answers(std::uint16_t port) {
  try {
    return http_connection{port}.ask(http_request("GET", "/healthz")).status == 200;
  } catch (const std::exception&) {
    return false;
  }
}

std::vector<std::string> service_command(const folder& where, std::uint16_t port) {
  return {program(),  "serve",
          "--store",  where.store(),
          "--listen", fmt::format("127.0.0.1:{}", port),
          "--state",  where.path() + "/state"};
}

// One worker: the other processor is ours.
std::vector<std::string> nginx_command(const folder& where, std::uint16_t port,
                                       std::string_view body) {
  const auto file = where.path() + "/nginx.conf";
  std::ofstream{file} << fmt::format(
      "daemon off; master_process off; worker_processes 1; pid {0}/nginx.pid; error_log /dev/null "
      "crit;\n"
      "events {{ worker_connections 4096; }}\n"
      "http {{ access_log off; keepalive_requests 100000000; default_type application/json;\n"
      "  client_body_temp_path {0}; proxy_temp_path {0}; fastcgi_temp_path {0}; uwsgi_temp_path "
      "{0}; scgi_temp_path {0};\n"
      "  server {{ listen 127.0.0.1:{1}; location / {{ return 200 '{2}'; }} }} }}\n",
      where.path(), port, body);
  return {"nginx", "-e", "/dev/null", "-c", file};
}

double resident_bytes(pid_t pid) {
  std::ifstream status{fmt::format("/proc/{}/status", pid)};
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::stod(line.substr(6)) * 1024;
  return 0;
}

// ---------------------------------------------------------------- requests

constexpr std::string_view ask_body = R"({"ttl":"30s","wait":0})";

std::string acquire(std::string_view name) {
  return http_request("POST", fmt::format("/v1/locks/{}:acquire", name), ask_body);
}
std::string release(std::string_view lease) {
  return http_request("DELETE", fmt::format("/v1/leases/{}", lease));
}

// As many bytes, to a handler that does nothing: the difference is put into the query.
std::string nothing_like(std::string_view request) {
  auto out = http_request("GET", "/healthz");
  if (out.size() + 9 > request.size()) return out;
  return http_request("GET", "/healthz")
      .insert(out.find("\r\n\r\n"),
              "\r\nX-Pad: " + std::string(request.size() - out.size() - 9, 'x'));
}

void need(bool good, std::string_view what, const http_answer& got) {
  if (!good)
    throw std::runtime_error(
        fmt::format("{} was answered with {}: {}", what, got.status, got.body));
}

// ---------------------------------------------------------------- uncontended

void lone_pair(std::uint16_t port, std::vector<finding>& out) {
  http_connection line{port};
  const auto take = acquire("pair");
  const auto same_size = nothing_like(take);
  const auto like_release = nothing_like(release(std::string(32, 'a')));
  std::vector<double> pair, nothing, ratio;
  for (int i = 0; i < rounds; ++i) {
    nothing.push_back(ns_per(slice, [&] {
      line.ask(same_size);
      line.ask(like_release);
    }));
    pair.push_back(ns_per(slice, [&] {
      const auto got = line.ask(take);
      need(got.status == 200, "an acquire", got);
      const auto ended = line.ask(release(text_in(got.body, "lease")));
      need(ended.status == 204, "a release", ended);
    }));
    ratio.push_back(pair.back() / nothing.back());
  }
  out.push_back({"acquire, release / two requests that do nothing",
                 fmt::format("{:.0f} / {:.0f} us", median(pair) / 1e3, median(nothing) / 1e3),
                 median(ratio), 2.0, "x"});
}

double requests_per_second(
    std::uint16_t port, std::size_t connections,
    const std::function<std::string(std::size_t, const http_answer&)>& next) {
  http_crowd crowd{port, connections};
  std::uint64_t done = 0;
  for (std::size_t i = 0; i < connections; ++i) crowd.send(i, next(i, {}));
  const auto begin = now();
  crowd.run(slice, [&](std::size_t which, const http_answer& got) {
    ++done;
    return next(which, got);
  });
  return static_cast<double>(done) * 1e9 / static_cast<double>(now() - begin);
}

void throughput(std::uint16_t service, std::uint16_t nginx, std::vector<finding>& out) {
  for (const std::size_t n : {1U, 16U, 64U}) {
    const auto nothing = nothing_like(acquire("load-1-1-00"));
    std::vector<double> ours, theirs, ratio;
    for (int i = 0; i < rounds; ++i) {
      theirs.push_back(requests_per_second(nginx, n, [&](auto, const auto&) { return nothing; }));
      ours.push_back(
          requests_per_second(service, n, [&](std::size_t which, const http_answer& got) {
            if (got.status == 200) return release(text_in(got.body, "lease"));
            need(got.status == 0 || got.status == 204, "a request", got);
            // What the crowd of an earlier round had at its end it has still.
            return acquire(fmt::format("load-{}-{}-{:02}", n, i, which));
          }));
      ratio.push_back(ours.back() / theirs.back());
    }
    out.push_back({fmt::format("requests that take and give locks / nginx, {} connections", n),
                   fmt::format("{:.0f} / {:.0f} per second", median(ours), median(theirs)),
                   median(ratio), n == 1 ? std::optional{0.7} : std::nullopt, "x",
                   bound::at_least});
  }
}

// ---------------------------------------------------------------- waiting

struct crowd_result {
  double bytes_each = 0;
  double handoffs_per_second = 0;
};

crowd_result wait_in_a_crowd(std::uint16_t port, pid_t service, std::size_t many) {
  http_connection operators{port};
  const auto name = fmt::format("crowd-{}", many);
  const auto first = operators.ask(acquire(name));
  need(first.status == 200, "an acquire", first);
  const std::string lease{text_in(first.body, "lease")};
  const auto before = resident_bytes(service);
  http_crowd crowd{port, many};
  const auto ask = http_request("POST", fmt::format("/v1/locks/{}:acquire", name),
                                R"({"ttl":"60s","wait":"600s"})");
  for (std::size_t i = 0; i < many; ++i) crowd.send(i, ask);
  const auto waits = [&] {
    const auto got = operators.ask(http_request("GET", "/v1/stats"));
    const auto at = got.body.find("\"waiting\":");
    return at != std::string_view::npos &&
           std::stoul(std::string{got.body.substr(at + 10, 12)}) >= many;
  };
  wait_until(waits);
  crowd_result out;
  out.bytes_each = (resident_bytes(service) - before) / static_cast<double>(many);
  operators.ask(release(lease));
  std::uint64_t grants = 0;
  const auto begin = now();
  crowd.run(3s, [&](std::size_t, const http_answer& got) {
    if (got.status == 204) return ask;  // to the end of the queue
    need(got.status == 200, "a wait", got);
    ++grants;
    return release(text_in(got.body, "lease"));
  });
  out.handoffs_per_second = static_cast<double>(grants) * 1e9 / static_cast<double>(now() - begin);
  return out;
}

void waiting(std::uint16_t port, pid_t service, std::vector<finding>& out) {
  std::map<std::size_t, crowd_result> by_size;
  for (const std::size_t n : {10U, 100U, 1000U, 5000U}) {
    by_size[n] = wait_in_a_crowd(port, service, n);
    out.push_back({fmt::format("hand-offs, {} waiting", n),
                   fmt::format("{:.0f} per second", by_size[n].handoffs_per_second),
                   by_size[n].handoffs_per_second, std::nullopt, "/s"});
  }
  out.push_back({"hand-offs, 10 waiting / 5,000 waiting",
                 fmt::format("{:.0f} / {:.0f} per second", by_size[10].handoffs_per_second,
                             by_size[5000].handoffs_per_second),
                 by_size[10].handoffs_per_second / by_size[5000].handoffs_per_second, 1.25, "x"});
  out.push_back({"memory for each of 5,000 waiting clients", "resident",
                 by_size[5000].bytes_each / 1000, 20.0, "kB"});
}

}  // namespace

int main(int argc, char** argv) try {
  const bool json = argc > 1 && std::string_view{argv[1]} == "--json";
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  const folder where;
  const auto port = free_port();
  process service{service_command(where, port)};
  wait_until([&] { return answers(port); });
  std::vector<finding> all;
  lone_pair(port, all);
  const auto nginx_port = free_port();
  // As long as the answer to an acquire.
  process nginx{nginx_command(where, nginx_port, std::string(180, 'x'))};
  wait_until([&] { return answers(nginx_port); });
  throughput(port, nginx_port, all);
  nginx.kill();
  waiting(port, service.pid(), all);
  print(all, json);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "serve_baseline: %s\n", e.what());
  return 1;
}
