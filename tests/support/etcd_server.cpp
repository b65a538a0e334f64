#include "support/etcd_server.hpp"

#include "support/loopback.hpp"
#include "support/shared_server.hpp"
#include "support/wait_until.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace holdfast::testing {

namespace fs = std::filesystem;

namespace {

std::optional<std::string> etcd_program() {
  if (const char* given = std::getenv("HOLDFAST_ETCD_SERVER")) return given;
  return find_program("etcd");
}

}  // namespace

availability etcd_server::available() {
  if (!etcd_program()) return {false, "etcd is not in the PATH; tools/setup test installs it"};
  if (!find_program("etcdctl"))
    return {false, "etcdctl is not in the PATH; tools/setup test installs it"};
  return {true, {}};
}

etcd_server::etcd_server() : etcd_server(options{}) {}

etcd_server::etcd_server(options how) : how_(std::move(how)), data_(memory_if_possible()) {
  if (const auto there = available(); !there) throw std::runtime_error(there.why);
  if (how_.tls && how_.certificate) {
    server_ = *how_.certificate;
  } else if (how_.tls) {
    authority_ = std::make_unique<certificate_authority>(dir_.path());
    server_ = authority_->issue("server", how_.certified);
    operator_ = authority_->issue("operator", "DNS:operator");
    how_.ca_file = authority_->file();
  }
  for (std::size_t n = 0; n < how_.nodes; ++n) {
    nodes_.push_back(at(n, [] { return std::make_unique<member>(); }));
    nodes_[n]->data = data_.file(name(n));
  }
  for (std::size_t n = 0; n < how_.nodes; ++n) launch(n);
  for (std::size_t n = 0; n < how_.nodes; ++n) await_health(n);
}

etcd_server::~etcd_server() { kill_all(); }

// ---- processes

std::string etcd_server::cluster() const {
  std::string all;
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    all += fmt::format("{}{}={}", n == 0 ? "" : ",", name(n), peer_url(n));
  }
  return all;
}

std::vector<std::string> etcd_server::command(std::size_t n, const char* state) const {
  const auto& self = *nodes_[n];
  const auto client = fmt::format("{}://{}", how_.tls ? "https" : "http", endpoint(n));
  const auto peer = peer_url(n);
  std::vector<std::string> words{
      *etcd_program(), "--name=" + name(n), "--data-dir=" + self.data,
      "--listen-client-urls=" + client, "--advertise-client-urls=" + client,
      "--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
      // Of the loopback also in a network: we go there to ask, whatever the node is cut off from.
      fmt::format("--listen-metrics-urls=http://127.0.0.1:{}", self.metrics.number()),
      "--initial-cluster=" + cluster(), fmt::format("--initial-cluster-state={}", state),
      // A node that finds a cluster of another test on a port that it remembers must not join it.
      fmt::format("--initial-cluster-token=holdfast-{}-{}", ::getpid(), nodes_[0]->peer.number()),
      fmt::format("--heartbeat-interval={}", how_.heartbeat.count()),
      fmt::format("--election-timeout={}", how_.election.count()), "--logger=zap",
      "--log-outputs=stderr",
      // Else members come and go only when all have been connected for five seconds.
      "--strict-reconfig-check=false"};
  if (how_.tls) {
    words.push_back("--cert-file=" + server_.file);
    words.push_back("--key-file=" + server_.key);
    if (how_.client_certificates) {
      words.push_back("--client-cert-auth");
      words.push_back("--trusted-ca-file=" + how_.ca_file);
    }
  }
  words.insert(words.end(), how_.flags.begin(), how_.flags.end());
  // The way to anything but the loopback may lead over a proxy of this machine, which is not there.
  if (how_.network != nullptr) words.insert(words.begin(), {*find_program("env"), "NO_PROXY=*"});
  return words;
}

void etcd_server::launch(std::size_t n, const char* state) {
  kill(n);
  at(n, [&] { nodes_[n]->server = process{command(n, state), dir_.file(name(n) + ".log")}; });
}

void etcd_server::await_health(std::size_t n) {
  auto& server = nodes_.at(n)->server;
  const bool up =
      wait_until([&] { return !server.is_running() || is_healthy(n); }, std::chrono::seconds{30});
  if (!up || !server.is_running())
    throw std::runtime_error("etcd does not start; it says:\n" + log(n));
}

void etcd_server::stop(std::size_t n) {
  nodes_.at(n)->server.pause();
  nodes_[n]->is_stopped = true;
}

void etcd_server::resume(std::size_t n) {
  nodes_.at(n)->server.resume();
  nodes_[n]->is_stopped = false;
}

void etcd_server::kill(std::size_t n) {
  nodes_.at(n)->server.kill();
  nodes_[n]->is_stopped = false;
}

void etcd_server::restart(std::size_t n) {
  launch(n);
  await_health(n);
}

void etcd_server::kill_all() {
  for (std::size_t n = 0; n < nodes_.size(); ++n) kill(n);
}

void etcd_server::restart_all() {
  kill_all();
  for (std::size_t n = 0; n < nodes_.size(); ++n) launch(n);
  for (std::size_t n = 0; n < nodes_.size(); ++n) await_health(n);
}

void etcd_server::restart_with(std::vector<std::string> flags) {
  how_.flags = std::move(flags);
  restart_all();
}

void etcd_server::replace(std::size_t n) {
  std::string id;  // 8e9e05c52164694d, started, n0, http://..., http://..., false
  std::istringstream members{etcdctl({"member", "list"})};
  for (std::string line; std::getline(members, line);)
    if (line.find(", " + name(n) + ",") != std::string::npos) id = line.substr(0, line.find(','));
  if (id.empty()) throw std::runtime_error("no member is called " + name(n));
  kill(n);
  leader();  // what is asked while there is none can go astray
  etcdctl({"member", "remove", id});
  fs::remove_all(nodes_[n]->data);
  etcdctl({"member", "add", name(n), "--peer-urls=" + peer_url(n)});
  launch(n, "existing");
  await_health(n);
}

// ---- what the servers say about themselves

std::string etcd_server::log(std::size_t n) const {
  return text_of_file(dir_.file(name(n) + ".log"));
}

std::optional<std::string> etcd_server::http_get(std::size_t n, std::string_view path) const {
  if (!nodes_[n]->is_up()) return std::nullopt;
  const auto request = fmt::format("GET {} HTTP/1.0\r\n\r\n", path);
  const auto reply = at(n, [&] { return ask_loopback(nodes_[n]->metrics.number(), request); });
  const auto body = reply.find("\r\n\r\n");
  if (body == std::string::npos) return std::nullopt;
  return reply.substr(body + 4);
}

bool etcd_server::is_healthy(std::size_t n) const {
  const auto said = http_get(n, "/health");
  return said && said->find("true") != std::string::npos;
}

double etcd_server::metric_of(std::size_t n, std::string_view begin) const {
  std::istringstream lines{http_get(n, "/metrics").value_or(std::string{})};
  double sum = 0;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(begin)) sum += std::stod(line.substr(line.rfind(' ')));
  return sum;
}

double etcd_server::metric(std::string_view begin) const {
  double sum = 0;
  for (std::size_t n = 0; n < nodes_.size(); ++n) sum += metric_of(n, begin);
  return sum;
}

std::uint64_t etcd_server::requests() const {
  return static_cast<std::uint64_t>(metric("grpc_server_msg_received_total{"));
}

bool etcd_server::has_leader(std::size_t n) const {
  return metric_of(n, "etcd_server_has_leader ") > 0;
}

std::size_t etcd_server::leader() const {
  std::vector<std::size_t> found;
  wait_until([&] {
    found.clear();
    for (std::size_t n = 0; n < nodes_.size(); ++n)
      if (metric_of(n, "etcd_server_is_leader ") > 0) found.push_back(n);
    return found.size() == 1;
  });
  if (found.size() != 1) throw std::runtime_error(fmt::format("{} leaders", found.size()));
  return found.front();
}

// ---- addresses and etcdctl

std::string etcd_server::host(std::size_t n) const {
  return how_.network == nullptr ? "127.0.0.1" : how_.network->address(n);
}

std::string etcd_server::endpoint(std::size_t n) const {
  return fmt::format("{}:{}", host(n), port(n));
}

std::string etcd_server::peer_url(std::size_t n) const {
  return fmt::format("http://{}:{}", host(n), nodes_[n]->peer.number());
}

std::string etcd_server::url() const {
  std::string all;
  for (std::size_t n = 0; n < nodes_.size(); ++n) all += (n == 0 ? "" : ",") + endpoint(n);
  return fmt::format("{}://{}", how_.tls ? "etcds" : "etcd", all);
}

std::string etcd_server::url(std::size_t n) const {
  return fmt::format("{}://{}", how_.tls ? "etcds" : "etcd", endpoint(n));
}

std::string etcd_server::endpoints() const {
  std::string all;
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    const bool is_there =
        nodes_[n]->is_up() && (how_.network == nullptr || !how_.network->is_cut(n));
    if (is_there) all += (all.empty() ? "" : ",") + endpoint(n);
  }
  return all;
}

// ---- shared

etcd_server& shared_etcd() {
  static shared_server<etcd_server> single;
  return *single;
}

etcd_server& shared_etcd3() {
  static shared_server<etcd_server> three{{.nodes = 3}};
  return *three;
}

}  // namespace holdfast::testing
