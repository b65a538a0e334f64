#include "support/zookeeper_server.hpp"

#include "support/loopback.hpp"
#include "support/shared_server.hpp"
#include "support/wait_until.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace holdfast::testing {

namespace {

constexpr auto debian_jars = "/usr/share/java";

std::filesystem::path zookeeper_jar() {
  if (const char* given = std::getenv("HOLDFAST_ZOOKEEPER_JAR")) return given;
  return std::filesystem::path{debian_jars} / "zookeeper.jar";
}

// Debian's jar names what it needs itself, without a logger and without all of netty, which TLS wants.
std::string class_path() {
  const auto jar = zookeeper_jar();
  if (jar.parent_path() != debian_jars)
    return fmt::format("{}:{}/*", jar.string(), jar.parent_path().string());
  auto path = jar.string();
  for (const auto* more :
       {"slf4j-simple", "netty-codec", "netty-resolver", "netty-transport-native-unix-common"})
    path += fmt::format(":{}/{}.jar", debian_jars, more);
  return path;
}

// Changes with all that makes an archive of classes useless.
std::string version_of_classes() {
  std::string all;
  for (const auto& file : {std::filesystem::canonical(*find_program("java")),
                           std::filesystem::canonical(zookeeper_jar())})
    all += fmt::format("{} {};", file.string(),
                       std::filesystem::last_write_time(file).time_since_epoch().count());
  return fmt::format("{:016x}", std::hash<std::string>{}(all));
}

}  // namespace

availability zookeeper_server::available() {
  if (!find_program("java"))
    return {false, "java is not in the PATH; tools/setup test installs it"};
  const auto jar = zookeeper_jar().string();
  if (::access(jar.c_str(), R_OK) != 0)
    return {false, jar + " is not there; tools/setup test installs the package zookeeper"};
  return {true, {}};
}

zookeeper_server::zookeeper_server() : zookeeper_server(options{}) {}

zookeeper_server::zookeeper_server(options how)
    : how_(std::move(how)), data_(memory_if_possible()) {
  if (const auto there = available(); !there) throw std::runtime_error(there.why);
  if (how_.tls) prepare_tls();
  for (std::size_t n = 0; n < how_.nodes; ++n) {
    nodes_.push_back(at(n, [] { return std::make_unique<member>(); }));
    nodes_[n]->folder = data_.file(name(n));
    std::filesystem::create_directory(nodes_[n]->folder);
    std::ofstream{nodes_[n]->folder + "/myid"} << n + 1;
  }
  for (std::size_t n = 0; n < how_.nodes; ++n) launch(n);
  for (std::size_t n = 0; n < how_.nodes; ++n) await_health(n);
}

zookeeper_server::~zookeeper_server() { kill_all(); }

// ---- configuration

void zookeeper_server::prepare_tls() {
  if (!how_.certificate) {
    authority_ = std::make_unique<certificate_authority>(dir_.path());
    how_.certificate = authority_->issue("server", how_.certified);
    how_.ca_file = authority_->file();
  }
  // ZooKeeper wants both in one file, and knows formats by the ends of their names.
  std::ofstream{dir_.file("server.pem")} << text_of_file(how_.certificate->key)
                                         << text_of_file(how_.certificate->file);
  std::ofstream{dir_.file("authority.pem")} << text_of_file(how_.ca_file);
}

std::string zookeeper_server::tls_config(std::size_t n) const {
  return fmt::format(
      "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
      "secureClientPort={}\n"
      "ssl.keyStore.location={}\nssl.keyStore.type=PEM\n"
      "ssl.trustStore.location={}\nssl.trustStore.type=PEM\n"
      "ssl.clientAuth={}\n",
      port(n), dir_.file("server.pem"), dir_.file("authority.pem"),
      how_.client_certificates ? "need" : "none");
}

std::string zookeeper_server::config(std::size_t n) const {
  auto text = fmt::format(
      "dataDir={}\nclientPort={}\ntickTime={}\ninitLimit={}\nsyncLimit={}\n"
      "minSessionTimeout={}\nmaxSessionTimeout={}\n4lw.commands.whitelist={}\n"
      "admin.enableServer=false\nforceSync=no\npreAllocSize=1024\nmaxClientCnxns=0\n"
      // A node that was cut off asks for votes at ever longer intervals, up to a minute, and waits for one that is cut
      // off for five seconds.
      "fastleader.maxNotificationInterval=1000\ncnxTimeout=1000\n",
      nodes_[n]->folder, plain_port(n), how_.tick.count(), how_.init_limit, how_.sync_limit,
      how_.session_min.count(), how_.session_max.count(), how_.four_letter_words);
  if (how_.tls) text += tls_config(n);
  // In a network also on the loopback of the place: we go there to ask, whatever the node is cut off from.
  if (how_.network == nullptr) {
    text += "clientPortAddress=127.0.0.1\n";
    if (how_.tls) text += "secureClientPortAddress=127.0.0.1\n";
  }
  for (std::size_t m = 0; m < nodes_.size() && nodes_.size() > 1; ++m)
    text += fmt::format("server.{}={}:{}:{}\n", m + 1, host(m), nodes_[m]->quorum.number(),
                        nodes_[m]->election.number());
  for (const auto& line : how_.config) text += line + "\n";
  return text;
}

std::vector<std::string> zookeeper_server::command(std::size_t n) const {
  // A server lives for seconds: what the thorough compiler and the parallel collector gain later is not worth its wait.
  std::vector<std::string> words{*find_program("java"),
                                 "-Xms16m",
                                 "-Xmx128m",
                                 "-XX:+UseSerialGC",
                                 "-XX:TieredStopAtLevel=1",
                                 "-XX:-UsePerfData",
                                 "-Xshare:auto",
                                 "-Djava.net.preferIPv4Stack=true",
                                 "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"};
  if (how_.class_archive)
    if (const auto archive = class_archive(); !archive.empty())
      words.push_back("-XX:SharedArchiveFile=" + archive);
  words.insert(words.end(), how_.flags.begin(), how_.flags.end());
  words.insert(words.end(),
               {"-cp", class_path(), "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                nodes_[n]->folder + "/zoo.cfg"});
  return words;
}

// ---- the archive of classes

// Made by the first test on this machine; one that comes meanwhile does without. An empty file: it cannot be made.
std::string zookeeper_server::class_archive() {
  static const std::string usable = [] {
    std::error_code failed;
    const std::filesystem::path cache{HOLDFAST_TEST_CACHE};
    std::filesystem::create_directories(cache, failed);
    const auto file = (cache / fmt::format("zookeeper-{}.jsa", version_of_classes())).string();
    const auto lock_path = (cache / "zookeeper.lock").string();
    if (const int lock = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600); lock >= 0) {
      if (::flock(lock, LOCK_EX | LOCK_NB) == 0 && !std::filesystem::exists(file, failed))
        make_class_archive(file);
      ::close(lock);
    }
    const auto size = std::filesystem::file_size(file, failed);
    return !failed && size > 0 ? file : std::string{};
  }();
  return usable;
}

// What a leader has loaded until it leads.
void zookeeper_server::make_class_archive(const std::string& file) {
  const auto unfinished = file + ".new";
  std::error_code ignored;
  std::filesystem::remove(unfinished, ignored);
  try {
    zookeeper_server pair{
        {.nodes = 2, .flags = {"-XX:ArchiveClassesAtExit=" + unfinished}, .class_archive = false}};
    auto& leader = pair.nodes_[pair.leader()]->server;
    ::kill(leader.pid(), SIGTERM);
    leader.wait(std::chrono::seconds{30});
  } catch (const std::exception&) {  // the test's own server will say why
  }
  if (!std::filesystem::exists(unfinished, ignored)) std::ofstream{unfinished};
  std::filesystem::rename(unfinished, file, ignored);
}

// ---- processes

void zookeeper_server::launch(std::size_t n) {
  kill(n);
  std::ofstream{nodes_[n]->folder + "/zoo.cfg"} << config(n);
  const auto words = command(n);
  at(n, [&] { nodes_[n]->server = process{words, dir_.file(name(n) + ".log")}; });
}

void zookeeper_server::await_health(std::size_t n) {
  auto& server = nodes_.at(n)->server;
  const bool up =
      wait_until([&] { return !server.is_running() || is_healthy(n); }, std::chrono::seconds{30});
  if (!up || !server.is_running())
    throw std::runtime_error("ZooKeeper does not start; it says:\n" + log(n));
  // Questions to a starting server may be counted and yet never answered.
  nodes_[n]->questions = metric_of(n, "zk_packets_received");
}

void zookeeper_server::stop(std::size_t n) {
  nodes_.at(n)->server.pause();
  nodes_[n]->is_stopped = true;
}

void zookeeper_server::resume(std::size_t n) {
  nodes_.at(n)->server.resume();
  nodes_[n]->is_stopped = false;
}

void zookeeper_server::kill(std::size_t n) {
  nodes_.at(n)->server.kill();
  nodes_[n]->is_stopped = false;
}

void zookeeper_server::restart(std::size_t n) {
  launch(n);
  await_health(n);
}

void zookeeper_server::kill_all() {
  for (std::size_t n = 0; n < nodes_.size(); ++n) kill(n);
}

void zookeeper_server::restart_all() {
  kill_all();
  for (std::size_t n = 0; n < nodes_.size(); ++n) launch(n);
  for (std::size_t n = 0; n < nodes_.size(); ++n) await_health(n);
}

void zookeeper_server::restart_with(std::vector<std::string> config) {
  how_.config = std::move(config);
  restart_all();
}

// ---- what the servers say about themselves

std::string zookeeper_server::log(std::size_t n) const {
  return text_of_file(dir_.file(name(n) + ".log"));
}

std::string zookeeper_server::ask(std::size_t n, std::string_view word,
                                  std::chrono::milliseconds limit) const {
  if (!nodes_.at(n)->is_up()) return {};
  auto said = at(n, [&] { return ask_loopback(plain_port(n), word, limit); });
  if (!said.empty()) ++nodes_[n]->questions;
  return said;
}

std::string zookeeper_server::four_letter(std::size_t n, std::string_view word) const {
  return ask(n, word, std::chrono::seconds{2});
}

// Empty while it does not serve. A server that is just starting may accept a question and never answer it.
std::string zookeeper_server::mode(std::size_t n) const {
  constexpr std::string_view title = "Mode: ";
  const auto said = ask(n, "srvr", std::chrono::milliseconds{100});
  const auto begin = said.find(title);
  if (begin == std::string::npos) return {};
  const auto word = begin + title.size();
  return said.substr(word, said.find('\n', word) - word);
}

bool zookeeper_server::is_healthy(std::size_t n) const {
  // The port for TLS opens after the other.
  return !mode(n).empty() && (!how_.tls || at(n, [&] { return accepts_connections(port(n)); }));
}

std::size_t zookeeper_server::leader() const {
  std::vector<std::size_t> found;
  wait_until([&] {
    found.clear();
    for (std::size_t n = 0; n < nodes_.size(); ++n)
      if (const auto is = mode(n); is == "leader" || is == "standalone") found.push_back(n);
    return found.size() == 1;
  });
  if (found.size() != 1) throw std::runtime_error(fmt::format("{} leaders", found.size()));
  return found.front();
}

std::int64_t zookeeper_server::metric_of(std::size_t n, std::string_view name) const {
  std::istringstream lines{four_letter(n, "mntr")};  // zk_watch_count<TAB>0
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(name) && line.substr(name.size(), 1) == "\t")
      return std::stoll(line.substr(name.size() + 1));
  return 0;
}

std::int64_t zookeeper_server::metric(std::string_view name) const {
  std::int64_t sum = 0;
  for (std::size_t n = 0; n < nodes_.size(); ++n) sum += metric_of(n, name);
  return sum;
}

std::int64_t zookeeper_server::requests() const {
  std::int64_t sum = 0;
  for (std::size_t n = 0; n < nodes_.size(); ++n)
    if (nodes_[n]->is_up()) sum += metric_of(n, "zk_packets_received") - nodes_[n]->questions;
  return sum;
}

// ---- addresses

std::uint16_t zookeeper_server::plain_port(std::size_t n) const {
  return how_.tls ? nodes_.at(n)->plain.number() : port(n);
}

std::string zookeeper_server::host(std::size_t n) const {
  return how_.network == nullptr ? "127.0.0.1" : how_.network->address(n);
}

std::string zookeeper_server::endpoint(std::size_t n) const {
  return fmt::format("{}:{}", host(n), port(n));
}

std::string zookeeper_server::url() const {
  std::string all;
  for (std::size_t n = 0; n < nodes_.size(); ++n) all += (n == 0 ? "" : ",") + endpoint(n);
  return fmt::format("{}://{}", how_.tls ? "zks" : "zk", all);
}

std::string zookeeper_server::url(std::size_t n) const {
  return fmt::format("{}://{}", how_.tls ? "zks" : "zk", endpoint(n));
}

// ---- shared

zookeeper_server& shared_zookeeper() {
  static shared_server<zookeeper_server> single;
  return *single;
}

zookeeper_server& shared_zookeeper3() {
  static shared_server<zookeeper_server> three{{.nodes = 3}};
  return *three;
}

}  // namespace holdfast::testing
