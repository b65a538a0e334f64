// The Redis engine against a plain blocking hiredis loop on the same server, side by side in one run.
//
// The plain loop is what most people have: SET NX PX, then a compare-and-delete script, one connection per thread.
// As in file_baseline, ratios count and the median of the rounds is shown. Always exits with 0.
//
//   redis_baseline [--json] [redis://127.0.0.1:PORT]      starts a server of its own unless given one
#include "stage.hpp"

#include <holdfast/holdfast.hpp>

#include <fmt/format.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <semaphore>
#include <string_view>

using namespace std::chrono_literals;
using namespace baseline;

namespace {

constexpr int rounds = 5;
constexpr auto slice = 400ms;

struct finding {
  std::string what;
  std::string value;
  double number;
  double target;
  std::string unit;
  bool at_least = false;
  bool met() const { return at_least ? number >= target : number <= target; }
};

// ---------------------------------------------------------------- the server

struct target {
  std::string host = "127.0.0.1";
  int port = 0;
  std::string url() const { return fmt::format("redis://{}:{}", host, port); }
};

int free_port() {
  const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  if (probe < 0 || ::bind(probe, reinterpret_cast<sockaddr*>(&at), size) != 0 ||
      ::getsockname(probe, reinterpret_cast<sockaddr*>(&at), &size) != 0)
    fail("No port can be had");
  ::close(probe);
  return ntohs(at.sin_port);
}

class redis_process {
 public:
  explicit redis_process(const folder& where) {
    at_.port = free_port();
    const auto port = std::to_string(at_.port);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) fail("A process cannot be started");
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      ::execlp("redis-server", "redis-server", "--port", port.c_str(), "--bind", "127.0.0.1",
               "--save", "", "--appendonly", "no", "--dir", where.path().c_str(), "--logfile",
               "redis.log", nullptr);
      ::_exit(127);
    }
  }
  ~redis_process() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  redis_process(const redis_process&) = delete;
  redis_process& operator=(const redis_process&) = delete;
  const target& at() const noexcept { return at_; }

 private:
  target at_;
  pid_t pid_ = -1;
};

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

// Pairs per second of `n` threads that run `body(i)` for a slice.
double pairs_per_second(unsigned n, const std::function<std::function<void()>(unsigned)>& make) {
  std::vector<std::function<void()>> bodies;
  for (unsigned i = 0; i < n; ++i) bodies.push_back(make(i));
  for (auto& one : bodies) one();  // connected, and known to the server
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> done{0};
  const auto begin = now();
  std::vector<std::jthread> threads;
  for (auto& one : bodies)
    threads.emplace_back([&] {
      std::uint64_t mine = 0;
      for (; !stop.load(std::memory_order_relaxed); ++mine) one();
      done += mine;
    });
  std::this_thread::sleep_for(slice);
  stop = true;
  threads.clear();
  return static_cast<double>(done) * 1e9 / static_cast<double>(now() - begin);
}

double plain_threads(const target& at, unsigned n) {
  return pairs_per_second(n, [&](unsigned i) -> std::function<void()> {
    auto client = std::make_shared<plain_client>(at);
    return [client, name = fmt::format("plain-{}", i)] { client->pair(name); };
  });
}

double our_threads(const holdfast::client& client, unsigned n) {
  return pairs_per_second(n, [&](unsigned i) -> std::function<void()> {
    auto lock = std::make_shared<holdfast::mutex>(client, fmt::format("thread-{}", i));
    return [lock] {
      lock->lock();
      lock->unlock();
    };
  });
}

holdfast::task<> take_turns(holdfast::mutex& lock, const std::atomic<bool>& stop,
                            std::atomic<std::uint64_t>& done, std::counting_semaphore<>& ended) {
  std::uint64_t mine = 0;
  while (!stop.load(std::memory_order_relaxed)) {
    auto held = co_await lock.async_acquire();
    if (!held) break;
    ++mine;
    // Dropped at the end of the turn: the release is sent, not awaited.
  }
  done += mine;
  ended.release();
}

double our_coroutines(const holdfast::client& client, unsigned n) {
  std::vector<std::unique_ptr<holdfast::mutex>> locks;
  for (unsigned i = 0; i < n; ++i)
    locks.push_back(std::make_unique<holdfast::mutex>(client, fmt::format("coroutine-{}", i)));
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> done{0};
  std::counting_semaphore<> ended{0};
  const auto begin = now();
  for (auto& lock : locks) holdfast::spawn(take_turns(*lock, stop, done, ended));
  std::this_thread::sleep_for(slice);
  stop = true;
  for (unsigned i = 0; i < n; ++i) ended.acquire();
  return static_cast<double>(done) * 1e9 / static_cast<double>(now() - begin);
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
    ours64.push_back(our_threads(client, 64));
    many.push_back(our_coroutines(client, 1000));
    ratio64.push_back(ours64.back() / bare64.back());
    ratio_many.push_back(many.back() / bare64.back());
  }
  out.push_back({"uncontended lock/unlock pair / plain hiredis pair",
                 fmt::format("{:.1f} / {:.1f} us", median(ours) / 1e3, median(bare) / 1e3),
                 median(ratio), 0.6, "x"});
  out.push_back(
      {"64 threads, distinct names / 64 hiredis connections",
       fmt::format("{:.1f}k / {:.1f}k pairs/s", median(ours64) / 1e3, median(bare64) / 1e3),
       median(ratio64), 1.6, "x", true});
  out.push_back({"1000 coroutines / 64 hiredis connections",
                 fmt::format("{:.1f}k / {:.1f}k pairs/s", median(many) / 1e3, median(bare64) / 1e3),
                 median(ratio_many), 2.5, "x", true});
}

// ---------------------------------------------------------------- contention

// One contender: takes the lock again and again, and counts on the board.
int contend(const char* path, const char* url) {
  auto& shared = open_board(path);
  holdfast::mutex lock{holdfast::client::open(url, {.handoff_limit = 0}), "contended"};
  ++shared.ready;
  while (!shared.stop) {
    lock.lock();
    ++shared.handoffs;
    lock.unlock();
  }
  return 0;
}

class contender {
 public:
  contender(const folder& where, const std::string& url) {
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) fail("A process cannot be started");
    if (pid_ > 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    ::execl("/proc/self/exe", "redis_baseline", "contend", where.path().c_str(), url.c_str(),
            nullptr);
    ::_exit(127);
  }
  ~contender() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  contender(contender&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  contender& operator=(contender&&) = delete;

 private:
  pid_t pid_ = -1;
};

void contended(const target& at, std::vector<finding>& out) {
  command_stats stats{at};
  for (const unsigned n : {2U, 8U, 32U, 128U}) {
    const folder where;
    auto& shared = open_board(where.path());
    std::vector<contender> all;
    for (unsigned i = 0; i < n; ++i) all.emplace_back(where, at.url());
    wait_until([&] { return shared.ready == n; });
    std::this_thread::sleep_for(200ms);  // past the start
    stats.reset();
    const auto before = shared.handoffs.load();
    std::this_thread::sleep_for(1500ms);
    const auto used = stats.of("evalsha");
    const auto handoffs = static_cast<double>(shared.handoffs - before);
    shared.stop = true;
    out.push_back({fmt::format("commands per hand-off, {} processes", n),
                   fmt::format("{:.0f} hand-offs/s, {:.1f} us in the server each", handoffs / 1.5,
                               used.us_per_call * static_cast<double>(used.calls) / handoffs),
                   static_cast<double>(used.calls) / handoffs, 3, ""});
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
  for (auto& one : leases)
    if (!one.valid()) std::puts("A lease was lost.");
}

// ---------------------------------------------------------------- the server's own speed

// redis-benchmark with the very commands that a pair of ours sends, as MONITOR shows them, on random names.
struct monitored {
  std::vector<std::string> words;
};

std::vector<monitored> watch_a_pair(const target& at) {
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
  std::vector<monitored> out;
  for (std::size_t i = log->elements; i-- > 0;) {
    const auto* words = log->element[i]->element[3];
    monitored one;
    for (std::size_t k = 0; k < words->elements; ++k)
      one.words.emplace_back(words->element[k]->str, words->element[k]->len);
    if (one.words[0] == "EVALSHA" && one.words[3].ends_with("__rand_int__"))
      out.push_back(std::move(one));
  }
  return out;
}

void server_speed(const target& at, double coroutines, std::vector<finding>& out) {
  const auto seen = watch_a_pair(at);
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
       coroutines * seconds_per_pair, 0.5, "x", true});
}

// ---------------------------------------------------------------- output

void print(const std::vector<finding>& all, bool json) {
  if (json) {
    std::puts("[");
    for (std::size_t i = 0; i < all.size(); ++i)
      fmt::print(
          "  {{\"what\": \"{}\", \"value\": \"{}\", \"number\": {:.3f}, \"target\": {}, \"met\": "
          "{}}}{}\n",
          all[i].what, all[i].value, all[i].number, all[i].target, all[i].met(),
          i + 1 < all.size() ? "," : "");
    std::puts("]");
    return;
  }
  for (const auto& one : all)
    fmt::print("{:<70} {:>34}  {:6.2f}{} ({} {}) {}\n", one.what, one.value, one.number, one.unit,
               one.at_least ? ">=" : "<=", one.target, one.met() ? "ok" : "MISSED");
}

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
  if (argc == 4 && std::string_view{argv[1]} == "contend") return contend(argv[2], argv[3]);
  bool json = false;
  std::optional<target> given;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view{argv[i]} == "--json") json = true;
    if (std::string_view{argv[i]}.starts_with("redis://")) given = parse(argv[i]);
  }
  const folder where;
  std::optional<redis_process> own;
  if (!given) given = own.emplace(where).at();
  wait_until([&] { return holdfast::client::try_open(given->url()).has_value(); });
  std::vector<finding> all;
  throughput(*given, all);
  double coroutines = 0;
  {
    const auto client = holdfast::client::open(given->url());
    coroutines = our_coroutines(client, 1000);
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
