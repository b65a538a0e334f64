// What tests ask the servers with etcdctl, which knows nothing of our code.
#include "support/etcd_server.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace holdfast::testing {

namespace {

std::string base64_decoded(std::string_view text) {
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  unsigned pending = 0, bits = 0;
  for (const char c : text) {
    const auto digit = digits.find(c);
    if (digit == std::string_view::npos) break;
    pending = (pending << 6U) | static_cast<unsigned>(digit);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes.push_back(static_cast<char>((pending >> bits) & 0xffU));
  }
  return bytes;
}

// The value of a field of one flat JSON object as etcdctl prints it: numbers, or base64 in quotes. Empty when absent.
std::string_view field(std::string_view object, std::string_view name) {
  const auto at = object.find(fmt::format("\"{}\":", name));
  if (at == std::string_view::npos) return {};
  object.remove_prefix(at + name.size() + 3);
  if (object.starts_with('"')) {
    object.remove_prefix(1);
    return object.substr(0, object.find('"'));
  }
  return object.substr(0, object.find_first_of(",}]"));
}

std::int64_t number(std::string_view digits) {
  return digits.empty() ? 0 : std::stoll(std::string{digits});
}

std::string said_by(etcd_server::outcome ended, const std::vector<std::string>& words) {
  if (ended.code == 0) return std::move(ended.said);
  throw std::runtime_error(fmt::format("etcdctl {}: {}", fmt::join(words, " "),
                                       ended.code ? ended.said : "no answer in time"));
}

}  // namespace

std::vector<std::string> etcd_server::etcdctl_command(const std::vector<std::string>& words) const {
  return command_over(endpoints(), words);
}

std::vector<std::string> etcd_server::command_over(const std::string& endpoints,
                                                   const std::vector<std::string>& words) const {
  // Version 2 of the API is what an old etcdctl speaks unless told otherwise.
  std::vector<std::string> all{find_program("env").value(),
                               "ETCDCTL_API=3",
                               "NO_PROXY=*",
                               find_program("etcdctl").value(),
                               "--endpoints=" + endpoints,
                               "--command-timeout=15s"};
  if (how_.tls) {
    all.push_back("--cacert=" + how_.ca_file);
    all.emplace_back("--insecure-skip-tls-verify");
    if (how_.client_certificates) {
      all.push_back("--cert=" + operator_.file);
      all.push_back("--key=" + operator_.key);
    }
  }
  if (has_auth_) all.emplace_back("--user=root:root");
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

etcd_server::outcome etcd_server::run(std::size_t place, const std::vector<std::string>& command,
                                      std::chrono::nanoseconds limit) const {
  const auto output = dir_.file(fmt::format("etcdctl.{}", ++commands_));
  outcome ended;
  ended.code = at(place, [&] { return process{command, output}.wait(limit); });
  ended.said = text_of_file(output);
  std::filesystem::remove(output);
  while (ended.said.ends_with('\n')) ended.said.pop_back();
  return ended;
}

etcd_server::outcome etcd_server::try_etcdctl(const std::vector<std::string>& words,
                                              std::chrono::nanoseconds limit) const {
  return run(network_lab::hub, etcdctl_command(words), limit);
}

std::string etcd_server::etcdctl(const std::vector<std::string>& words) const {
  return said_by(try_etcdctl(words), words);
}

std::string etcd_server::etcdctl_at(std::size_t n, const std::vector<std::string>& words) const {
  return said_by(run(n, command_over(endpoint(n), words), std::chrono::seconds{20}), words);
}

void etcd_server::enable_auth(const std::string& user, const std::string& password,
                              const std::string& prefix) {
  etcdctl({"user", "add", "root:root"});
  etcdctl({"role", "add", "root"});
  etcdctl({"user", "grant-role", "root", "root"});
  etcdctl({"user", "add", user + ":" + password});
  etcdctl({"role", "add", user});
  etcdctl({"role", "grant-permission", "--prefix=true", user, "readwrite", prefix});
  etcdctl({"user", "grant-role", user, user});
  etcdctl({"auth", "enable"});
  has_auth_ = true;
}

std::vector<etcd_server::key_value> etcd_server::all(const std::string& prefix) const {
  const auto said =
      etcdctl({"get", "--prefix", "--sort-by=CREATE", "--order=ASCEND", "-w=json", "--", prefix});
  std::vector<key_value> found;
  auto at = said.find("\"kvs\":[");
  if (at == std::string::npos) return found;
  for (at = said.find('{', at); at != std::string::npos; at = said.find('{', at + 1)) {
    const auto object = std::string_view{said}.substr(at, said.find('}', at) - at);
    found.push_back({base64_decoded(field(object, "key")), number(field(object, "create_revision")),
                     number(field(object, "mod_revision")), base64_decoded(field(object, "value")),
                     number(field(object, "lease"))});
  }
  return found;
}

std::vector<std::string> etcd_server::keys(const std::string& prefix) const {
  std::vector<std::string> found;
  for (auto& entry : all(prefix)) found.push_back(std::move(entry.key));
  return found;
}

std::int64_t etcd_server::revision() const {
  return number(field(etcdctl({"get", "-w=json", "no such key"}), "revision"));
}

void etcd_server::put(const std::string& key, const std::string& value) const {
  etcdctl({"put", "--", key, value});
}

void etcd_server::erase(const std::string& key) const {
  if (etcdctl({"del", "--", key}) != "1") throw std::runtime_error("there is no key " + key);
}

void etcd_server::revoke(std::int64_t lease) const {
  etcdctl({"lease", "revoke", fmt::format("{:x}", lease)});
}

std::vector<std::int64_t> etcd_server::leases() const {
  std::vector<std::int64_t> found;
  std::istringstream lines{etcdctl({"lease", "list"})};  // "found 2 leases", then one each
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) found.push_back(std::stoll(line, nullptr, 16));
  std::sort(found.begin(),
            found.end());  // etcd's order is that of their ends, which heartbeats change
  return found;
}

void etcd_server::compact() const {
  etcdctl({"compact", "--physical", std::to_string(revision())});
}

}  // namespace holdfast::testing
