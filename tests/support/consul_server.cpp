#include "support/consul_server.hpp"

#include "support/shared_server.hpp"
#include "support/wait_until.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace holdfast::testing {

namespace {

using nlohmann::json;

std::optional<std::string> consul_program() {
  if (const char* given = std::getenv("HOLDFAST_CONSUL")) return given;
  if (auto found = find_program("consul")) return found;
  if (::access(HOLDFAST_FETCHED_CONSUL, X_OK) == 0) return HOLDFAST_FETCHED_CONSUL;
  return std::nullopt;
}

}  // namespace

availability consul_server::available() {
  if (consul_program()) return {true, {}};
  return {false, "consul is neither in the PATH nor in build/tools; tools/setup test fetches it"};
}

std::string consul_server::program() { return consul_program().value(); }

consul_server::consul_server() : consul_server(options{}) {}

consul_server::consul_server(options how) : how_(std::move(how)), data_(memory_if_possible()) {
  if (const auto there = available(); !there) throw std::runtime_error(there.why);
  if (how_.tls && !how_.certificate) {
    authority_ = std::make_unique<certificate_authority>(dir_.path());
    how_.certificate = authority_->issue("server", how_.certified);
    how_.ca_file = authority_->file();
  }
  for (std::size_t n = 0; n < how_.nodes; ++n) {
    nodes_.push_back(std::make_unique<member>());
    nodes_[n]->folder = data_.file(name(n));
    std::filesystem::create_directory(nodes_[n]->folder);
  }
  for (std::size_t n = 0; n < how_.nodes; ++n) launch(n);
  for (std::size_t n = 0; n < how_.nodes; ++n) await_health(n);
}

consul_server::~consul_server() { kill_all(); }

// ---- processes

std::string consul_server::config(std::size_t n) const {
  const auto& self = *nodes_[n];
  json out{{"node_name", name(n)},
           {"data_dir", self.folder + "/data"},
           {"server", true},
           {"bootstrap_expect", nodes_.size()},
           {"bind_addr", "127.0.0.1"},
           {"client_addr", "127.0.0.1"},
           {"ports",
            {{"http", self.http.number()},
             {"https", how_.tls ? static_cast<int>(self.https.number()) : -1},
             {"server", self.rpc.number()},
             {"serf_lan", self.serf.number()},
             {"serf_wan", -1},
             {"dns", -1},
             {"grpc", -1}}},
           {"performance", {{"raft_multiplier", 2}}},
           // A node that was dead for a while is a member all the same.
           {"autopilot", {{"cleanup_dead_servers", false}}},
           // For requests(): counters that go on counting.
           {"telemetry", {{"prometheus_retention_time", "24h"}, {"disable_hostname", true}}},
           {"limits", {{"http_max_conns_per_client", 2000}}},
           {"disable_update_check", true},
           {"disable_host_node_id", true},
           {"leave_on_terminate", false},
           {"log_level", "WARN"}};
  for (const auto& other : nodes_)
    if (nodes_.size() > 1)
      out["retry_join"].push_back(fmt::format("127.0.0.1:{}", other->serf.number()));
  if (nodes_.size() > 1) out["retry_interval"] = "1s";
  if (how_.tls) {
    out["cert_file"] = how_.certificate->file;
    out["key_file"] = how_.certificate->key;
    out["ca_file"] = how_.ca_file;
    out["verify_incoming_https"] = how_.client_certificates;
  }
  if (!how_.master_token.empty())
    out["acl"] = {{"enabled", true},
                  {"default_policy", "deny"},
                  {"tokens", {{"master", how_.master_token}, {"agent", how_.master_token}}}};
  return out.dump(2);
}

void consul_server::launch(std::size_t n) {
  kill(n);
  const auto& folder = nodes_[n]->folder;
  std::ofstream{folder + "/config.json"} << config(n);
  // Nothing of the user's: neither proxies nor tokens.
  std::vector<std::string> words{find_program("env").value()};
  for (const char* variable : {"http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY",
                               "HTTPS_PROXY", "ALL_PROXY", "CONSUL_HTTP_TOKEN"})
    words.insert(words.end(), {"-u", variable});
  words.insert(words.end(), {program(), "agent", "-config-file=" + folder + "/config.json"});
  for (std::size_t i = 0; i < how_.config.size(); ++i) {
    const auto more = fmt::format("{}/config-{}.json", folder, i);
    std::ofstream{more} << how_.config[i];
    words.push_back("-config-file=" + more);
  }
  nodes_[n]->server = process{std::move(words), dir_.file(name(n) + ".log")};
  nodes_[n]->questions = 0;  // its counters begin anew
}

// Right after an election keys can be written, but the nodes are not in the catalog yet.
bool consul_server::grants_sessions(std::size_t n) const {
  const auto made = try_ask(n, "PUT", "/v1/session/create", R"({"TTL": "60s", "LockDelay": "0s"})");
  if (!made || made->status != 200) return false;
  const auto id = json::parse(made->body).at("ID").get<std::string>();
  const auto gone = try_ask(n, "PUT", "/v1/session/destroy/" + id);
  return gone && gone->status == 200;
}

void consul_server::await_health(std::size_t n) {
  auto& server = nodes_.at(n)->server;
  const bool up =
      wait_until([&] { return !server.is_running() || (is_healthy(n) && grants_sessions(n)); },
                 std::chrono::seconds{30});
  if (!up || !server.is_running())
    throw std::runtime_error("Consul does not start; it says:\n" + log(n));
}

void consul_server::stop(std::size_t n) {
  nodes_.at(n)->server.pause();
  nodes_[n]->is_stopped = true;
}

void consul_server::resume(std::size_t n) {
  nodes_.at(n)->server.resume();
  nodes_[n]->is_stopped = false;
}

void consul_server::kill(std::size_t n) {
  nodes_.at(n)->server.kill();
  nodes_[n]->is_stopped = false;
}

void consul_server::restart(std::size_t n) {
  launch(n);
  await_health(n);
}

void consul_server::kill_all() {
  for (std::size_t n = 0; n < nodes_.size(); ++n) kill(n);
}

void consul_server::restart_all() {
  kill_all();
  for (std::size_t n = 0; n < nodes_.size(); ++n) launch(n);
  for (std::size_t n = 0; n < nodes_.size(); ++n) await_health(n);
}

// ---- what the servers say about themselves

std::string consul_server::log(std::size_t n) const {
  return text_of_file(dir_.file(name(n) + ".log"));
}

bool consul_server::is_healthy(std::size_t n) const {
  const auto read = try_ask(n, "GET", "/v1/kv/no-such-key?consistent");
  return read && (read->status == 200 || read->status == 404);
}

std::optional<std::size_t> consul_server::leader_seen_by(std::size_t n) const {
  const auto said = try_ask(n, "GET", "/v1/status/leader");  // "127.0.0.1:8300", quotes included
  if (!said) return std::nullopt;
  for (std::size_t m = 0; m < nodes_.size(); ++m)
    if (said->body.find(fmt::format(":{}\"", nodes_[m]->rpc.number())) != std::string::npos)
      return m;
  return std::nullopt;
}

std::size_t consul_server::leader() const {
  std::optional<std::size_t> found;
  const bool agreed = wait_until([&] {
    found.reset();
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      if (!is_up(n)) continue;
      const auto seen = leader_seen_by(n);
      if (!seen || !is_up(*seen) || (found && found != seen)) return false;
      found = seen;
    }
    return found && is_healthy(*found);
  });
  if (!agreed) throw std::runtime_error("the nodes do not agree on a leader");
  return *found;
}

std::uint64_t consul_server::requests() const {
  std::uint64_t sum = 0;
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    if (!is_up(n)) continue;
    // consul_http_GET_v1_kv___count 12; one line for each kind of request
    const auto said = try_ask(n, "GET", "/v1/agent/metrics?format=prometheus");
    std::istringstream lines{said ? said->body : std::string{}};
    std::uint64_t counted = 0;
    for (std::string line; std::getline(lines, line);) {
      const auto blank = line.find(' ');
      if (line.starts_with("consul_http_") && blank != std::string::npos &&
          std::string_view{line}.substr(0, blank).ends_with("_count"))
        counted += std::stoull(line.substr(blank + 1));
    }
    // This very question is among our own, but it is not counted yet.
    sum += counted + 1 - std::min<std::uint64_t>(nodes_[n]->questions, counted + 1);
  }
  return sum;
}

// ---- addresses

std::uint16_t consul_server::port(std::size_t n) const {
  return how_.tls ? nodes_.at(n)->https.number() : plain_port(n);
}

std::string consul_server::url() const {
  std::string all;
  for (std::size_t n = 0; n < nodes_.size(); ++n)
    all += fmt::format("{}127.0.0.1:{}", n == 0 ? "" : ",", port(n));
  return fmt::format("{}://{}", how_.tls ? "consuls" : "consul", all);
}

std::string consul_server::url(std::size_t n) const {
  return fmt::format("{}://127.0.0.1:{}", how_.tls ? "consuls" : "consul", port(n));
}

// ---- shared

consul_server& shared_consul() {
  static shared_server<consul_server> single;
  return *single;
}

consul_server& shared_consul3() {
  static shared_server<consul_server> three{{.nodes = 3}};
  return *three;
}

}  // namespace holdfast::testing
