#include "support/serve_process.hpp"

#include "support/shared_server.hpp"
#include "support/wait_until.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace holdfast::testing {

namespace {

void write_lines(const std::string& path, const std::vector<std::string>& lines) {
  std::ofstream to{path};
  ::chmod(path.c_str(), 0600);
  for (const auto& line : lines) to << line << '\n';
}

std::size_t count_of(std::string_view text, std::string_view part) {
  std::size_t out = 0;
  for (auto at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++out;
  return out;
}

}  // namespace

std::string holdfast_command() {
#ifdef HOLDFAST_CLI
  return HOLDFAST_CLI;
#else
  return {};
#endif
}

availability serve_process::available() {
#ifdef HOLDFAST_CLI
  if (HOLDFAST_SERVE) return {true, {}};
  return {false, "this holdfast was built without serve: Boost 1.81 or OpenSSL was not found"};
#else
  return {false, "this build has no command"};
#endif
}

serve_process::serve_process() : serve_process(options{}) {}

serve_process::serve_process(options how) : how_(std::move(how)), state_(dir_.file("state")) {
  if (const auto there = available(); !there) throw std::runtime_error(there.why);
  write_files();
  start();
}

serve_process::~serve_process() { process_.kill(); }

std::string serve_process::url() const {
  return fmt::format("{}://127.0.0.1:{}", how_.tls ? "https" : "http", port());
}

std::string serve_process::store() const {
  return how_.store.empty() ? "file:" + dir_.file("store") : how_.store;
}

std::string serve_process::log() const { return text_of_file(dir_.file("log")); }

void serve_process::write_files() {
  if (!how_.config.empty()) write_lines(dir_.file("config"), how_.config);
  if (!how_.keys.empty()) write_lines(dir_.file("keys"), how_.keys);
  if (!how_.tls) return;
  authority_ = std::make_unique<certificate_authority>(dir_.path());
  certificate_ = authority_->issue("server", "DNS:localhost,IP:127.0.0.1");
  ca_file_ = authority_->file();
}

std::vector<std::string> serve_process::command() const {
  std::vector<std::string> words{
      holdfast_command(), "serve", "--listen", fmt::format("127.0.0.1:{}", port()),
      "--store",          store(), "--state",  state_};
  const auto add = [&words](const char* flag, const std::string& value) {
    words.insert(words.end(), {flag, value});
  };
  if (!how_.config.empty()) add("--config", dir_.file("config"));
  if (!how_.keys.empty()) add("--keys", dir_.file("keys"));
  if (how_.tls) add("--tls-cert", certificate_.file), add("--tls-key", certificate_.key);
  if (how_.client_certificates) add("--client-ca", ca_file_);
  words.insert(words.end(), how_.flags.begin(), how_.flags.end());
  return words;
}

// It listens before it prints its line, one in each of its lives.
void serve_process::start() {
  const auto line = fmt::format(" on {}", url());
  const auto before = count_of(log(), line);
  process_ = process{command(), dir_.file("log")};
  const bool up =
      wait_until([&] { return !process_.is_running() || count_of(log(), line) > before; },
                 std::chrono::seconds{30});
  if (!up || !process_.is_running())
    throw std::runtime_error("holdfast serve does not start; it says:\n" + log());
}

void serve_process::restart() {
  kill();
  start();
}

void serve_process::terminate() const {
  if (pid() > 0) ::kill(pid(), SIGTERM);
}

std::size_t serve_process::status(std::string_view word) const {
  std::istringstream lines{text_of_file(fmt::format("/proc/{}/status", pid()))};
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(word)) return std::stoull(line.substr(word.size())) * 1024;
  return 0;
}

std::string peer_program(const std::string& name) { return HOLDFAST_TEST_PEERS "/" + name; }

serve_process& shared_serve() {
  static shared_server<serve_process> service;
  return *service;
}

}  // namespace holdfast::testing
