// The Redis engine against a plain blocking hiredis loop on the same server, side by side in one run.
//
// The plain loop is what most people have: SET NX PX, then a compare-and-delete script, one connection per thread.
// As in file_baseline, ratios count and the median of the rounds is shown. Always exits with 0.
//
//   redis_baseline [--json] [redis://127.0.0.1:PORT]      starts a server of its own unless given one
#include "load.hpp"
#include "report.hpp"

#include <holdfast/holdfast.hpp>

#include <fmt/format.h>
#include <hiredis/hiredis.h>

#include <array>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

using namespace std::chrono_literals;
using namespace baseline;

namespace {

constexpr int rounds = 5;
constexpr auto slice = 400ms;

// ---------------------------------------------------------------- the server

struct target {
  std::string host = "127.0.0.1";
  int port = 0;
  std::string url() const { return fmt::format("redis://{}:{}", host, port); }
};

std::vector<std::string> server_command(int port, const folder& where) {
  return {"redis-server", "--port",    std::to_string(port), "--bind", "127.0.0.1",
          "--save",       "",          "--appendonly",       "no",     "--dir",
          where.path(),   "--logfile", "redis.log"};
}

// ---------------------------------------------------------------- the plain client

using reply = std::unique_ptr<redisReply, decltype(&freeReplyObject)>;

class plain_client {
 public:
  explicit plain_client(const target& at) : context_(redisConnect(at.host.c_str(), at.port)) {
    if (context_ == nullptr || context_->err != 0)
      throw std::runtime_error("hiredis cannot connect");
    const auto loaded = run({"SCRIPT", "LOAD",
                             "if redis.call('GET', KEYS[1]) == ARGV[1] then return "
                             "redis.call('DEL', KEYS[1]) else return 0 end"});
    release_.assign(loaded->str, loaded->len);
  }
  ~plain_client() { redisFree(context_); }
  plain_client(const plain_client&) = delete;
  plain_client& operator=(const plain_client&) = delete;

  reply run(const std::vector<std::string>& words) {
    std::vector<const char*> texts;
    std::vector<std::size_t> sizes;
    for (const auto& word : words) {
      texts.push_back(word.c_str());
      sizes.push_back(word.size());
    }
    return take(
        redisCommandArgv(context_, static_cast<int>(words.size()), texts.data(), sizes.data()));
  }
  void pair(const std::string& name) {
    take(redisCommand(context_, "SET %s 0123456789abcdef0123456789abcdef NX PX 30000",
                      name.c_str()));
    take(redisCommand(context_, "EVALSHA %s 1 %s 0123456789abcdef0123456789abcdef",
                      release_.c_str(), name.c_str()));
  }

 private:
  reply take(void* got) {
    if (got == nullptr) throw std::runtime_error("hiredis lost its connection");
    return {static_cast<redisReply*>(got), &freeReplyObject};
  }
  redisContext* context_;
  std::string release_;
};

// How often the server ran a command, and for how long, since the last look.
class command_stats {
 public:
  explicit command_stats(const target& at) : client_(at) {}
  void reset() { client_.run({"CONFIG", "RESETSTAT"}); }
  struct usage {
    std::uint64_t calls = 0;
    double us_per_call = 0;
  };
  usage of(const std::string& command) {
    const auto info = client_.run({"INFO", "commandstats"});
    const std::string text{info->str, info->len};
    const auto at = text.find("cmdstat_" + command + ":");
    usage out;
    if (at == std::string::npos) return out;
    unsigned long long calls = 0, usec = 0;
    double each = 0;
    std::sscanf(text.c_str() + text.find(':', at), ":calls=%llu,usec=%llu,usec_per_call=%lf",
                &calls, &usec, &each);
    return {calls, each};
  }

 private:
  plain_client client_;
};

// ---------------------------------------------------------------- throughput

double plain_threads(const target& at, unsigned n) {
  return pairs_per_second(n, slice, [&](unsigned i) -> std::function<void()> {
    auto client = std::make_shared<plain_client>(at);
    return [client, name = fmt::format("plain-{}", i)] { client->pair(name); };
  });
}

void throughput(const target& at, std::vector<finding>& out) {
  const auto client = holdfast::client::open(at.url());
  plain_client plain{at};
  holdfast::mutex lock{client, "pair"};
  std::vector<double> bare, ours, ratio, bare64, ours64, ratio64, many, ratio_many;
  for (int i = 0; i < rounds; ++i) {
    bare.push_back(ns_per(slice, [&] { plain.pair("plain"); }));
    ours.push_back(ns_per(slice, [&] {
      lock.lock();
      lock.unlock();
    }));
    ratio.push_back(ours.back() / bare.back());
    bare64.push_back(plain_threads(at, 64));
    ours64.push_back(our_threads(client, 64, slice));
    many.push_back(our_coroutines(client, 1000, slice));
    ratio64.push_back(ours64.back() / bare64.back());
    ratio_many.push_back(many.back() / bare64.back());
  }
  out.push_back({"uncontended lock/unlock pair / plain hiredis pair",
                 fmt::format("{:.1f} / {:.1f} us", median(ours) / 1e3, median(bare) / 1e3),
                 median(ratio), 0.6, "x"});
  out.push_back(
      {"64 threads, distinct names / 64 hiredis connections",
       fmt::format("{:.1f}k / {:.1f}k pairs/s", median(ours64) / 1e3, median(bare64) / 1e3),
       median(ratio64), 1.6, "x", bound::at_least});
  out.push_back({"1000 coroutines / 64 hiredis connections",
                 fmt::format("{:.1f}k / {:.1f}k pairs/s", median(many) / 1e3, median(bare64) / 1e3),
                 median(ratio_many), 2.5, "x", bound::at_least});
}

// ---------------------------------------------------------------- contention

void contended(const target& at, std::vector<finding>& out) {
  command_stats stats{at};
  for (const unsigned n : {2U, 8U, 32U, 128U}) {
    command_stats::usage used;
    const auto seen = measure_contention(
        n, "contend", at.url(), 1500ms, [&] { stats.reset(); },
        [&] { used = stats.of("evalsha"); });
    const auto calls = static_cast<double>(used.calls);
    out.push_back({fmt::format("commands per hand-off, {} processes", n),
                   fmt::format("{:.0f} hand-offs/s, {:.1f} us in the server each", seen.per_second,
                               used.us_per_call * calls / seen.handoffs),
                   calls / seen.handoffs, 3, ""});
  }
}

// ---------------------------------------------------------------- many held locks

void held(const target& at, std::vector<finding>& out) {
  constexpr unsigned n = 10'000;
  constexpr auto ttl = 6s;
  const auto client = holdfast::client::open(at.url(), {.ttl = ttl});
  std::vector<holdfast::lease> leases;
  for (unsigned i = 0; i < n; ++i) {
    holdfast::mutex lock{client, fmt::format("held-{}", i)};
    leases.push_back(lock.acquire().value());
  }
  std::this_thread::sleep_for(ttl / 2);  // in step by now
  command_stats stats{at};
  stats.reset();
  std::this_thread::sleep_for(ttl);
  const auto used = stats.of("evalsha");
  out.push_back({"renewal commands per ttl/3 with 10,000 held locks",
                 fmt::format("{} in a ttl of 6 s, {:.1f} ms in the server each", used.calls,
                             used.us_per_call / 1e3),
                 static_cast<double>(used.calls) / 3, 1.34, ""});
  for (auto& lease : leases)
    if (!lease.valid()) std::puts("A lease was lost.");
}

// ---------------------------------------------------------------- the server's own speed

// redis-benchmark with the very commands that a pair of ours sends, as MONITOR shows them, on random names.
struct logged_command {
  std::vector<std::string> words;
};

std::vector<logged_command> log_pair_commands(const target& at) {
  plain_client watcher{at};
  const auto client = holdfast::client::open(at.url());
  holdfast::mutex lock{client, "__rand_int__"};
  lock.lock();  // the scripts are known to the server
  lock.unlock();
  watcher.run({"SLOWLOG", "RESET"});
  watcher.run({"CONFIG", "SET", "slowlog-log-slower-than", "0"});
  lock.lock();
  lock.unlock();
  holdfast::mutex{client, "after"}.lock();
  watcher.run({"CONFIG", "SET", "slowlog-log-slower-than", "10000"});
  const auto log = watcher.run({"SLOWLOG", "GET", "20"});
  std::vector<logged_command> out;
  for (std::size_t i = log->elements; i-- > 0;) {
    const auto* words = log->element[i]->element[3];
    logged_command command;
    for (std::size_t k = 0; k < words->elements; ++k)
      command.words.emplace_back(words->element[k]->str, words->element[k]->len);
    if (command.words[0] == "EVALSHA" && command.words[3].ends_with("__rand_int__"))
      out.push_back(std::move(command));
  }
  return out;
}

void server_speed(const target& at, double coroutines, std::vector<finding>& out) {
  const auto seen = log_pair_commands(at);
  if (seen.size() < 2) return;
  double seconds_per_pair = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    std::string line = fmt::format(
        "redis-benchmark -h {} -p {} -c 64 -n 100000 -r 1000000 -P 16 --csv", at.host, at.port);
    for (const auto& word : seen[i].words) line += " '" + word + "'";
    line += " 2>/dev/null";
    auto* pipe = ::popen(line.c_str(), "r");
    if (pipe == nullptr) return;
    std::string text;
    std::array<char, 512> part{};
    while (std::fgets(part.data(), part.size(), pipe) != nullptr) text = part.data();
    ::pclose(pipe);
    const auto comma = text.rfind("\",\"");
    // "name","rps","avg",... : the second field is what counts
    const auto first = text.find("\",\"");
    if (comma == std::string::npos) return;
    seconds_per_pair += 1 / std::stod(text.substr(first + 3));
  }
  out.push_back(
      {"1000 coroutines / redis-benchmark -c 64 -P 16 on the same two scripts",
       fmt::format("{:.1f}k / {:.1f}k pairs/s", coroutines / 1e3, 1 / seconds_per_pair / 1e3),
       coroutines * seconds_per_pair, 0.5, "x", bound::at_least});
}

// ---------------------------------------------------------------- main

target parse(std::string_view url) {
  target out;
  url.remove_prefix(std::string_view{"redis://"}.size());
  const auto colon = url.rfind(':');
  out.host = url.substr(0, colon);
  out.port = std::atoi(std::string{url.substr(colon + 1)}.c_str());
  return out;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc == 4 && std::string_view{argv[1]} == "contend") {
    contend_with_ours(argv[2], argv[3]);
    return 0;
  }
  bool json = false;
  std::optional<target> given;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view{argv[i]} == "--json") json = true;
    if (std::string_view{argv[i]}.starts_with("redis://")) given = parse(argv[i]);
  }
  const folder where;
  std::optional<process> own;
  if (!given) {
    given = target{.port = free_port()};
    own.emplace(server_command(given->port, where));
  }
  wait_until([&] { return holdfast::client::try_open(given->url()).has_value(); });
  std::vector<finding> all;
  throughput(*given, all);
  double coroutines = 0;
  {
    const auto client = holdfast::client::open(given->url());
    coroutines = our_coroutines(client, 1000, slice);
  }
  server_speed(*given, coroutines, all);
  contended(*given, all);
  held(*given, all);
  print(all, json);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "redis_baseline: %s\n", e.what());
  return 1;
}
