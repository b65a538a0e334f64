// A real `holdfast serve` for a test, over a store and with a state folder of its own.
//
//   if (const auto serve = serve_process::available(); !serve) GTEST_SKIP() << serve.why;
//   serve_process service{{.config = {"request-time = 1s"}}};
//   client::open(service.url());
//   service.kill(), service.restart();                // same port, same store, same state
//
// The folders are in memory where that is possible, and outlive a kill.
#pragma once

#include "support/certificates.hpp"
#include "support/process.hpp"
#include "support/required.hpp"
#include "support/reserved_port.hpp"
#include "support/temp_dir.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::testing {

class serve_process {
 public:
  struct options {
    std::string store{};                // empty: file: in its own folder
    std::vector<std::string> config{};  // lines of --config: "leases-per-key = 3"
    std::vector<std::string> flags{};   // of the command line
    std::vector<std::string> keys{};    // lines of --keys; none: no keys
    bool tls = false;
    bool client_certificates = false;  // with tls: a client without one is sent away
  };

  // Has this build a command that can serve?
  static availability available();

  // Returns when it listens. Throws, with what it printed, when it does not.
  serve_process();
  explicit serve_process(options how);
  serve_process(const serve_process&) = delete;
  serve_process& operator=(const serve_process&) = delete;
  ~serve_process();

  std::string url() const;  // http://127.0.0.1:PORT, or https://
  std::uint16_t port() const noexcept { return port_.number(); }
  std::string store() const;
  const std::string& ca_file() const noexcept { return ca_file_; }        // tls
  const certificate_authority& authority() const { return *authority_; }  // tls
  const std::string& state() const noexcept { return state_; }
  std::string file(const std::string& name) const { return dir_.file(name); }
  pid_t pid() const noexcept { return process_.pid(); }
  std::string log() const;  // what it printed so far, of all its lives

  void stop() { process_.pause(); }     // SIGSTOP: connections stay open, nothing answers
  void resume() { process_.resume(); }  // SIGCONT
  void kill() { process_.kill(); }      // SIGKILL
  void terminate() const;               // SIGTERM
  // Its exit code, 128 + n when signal n ended it; nothing when it does not end in time.
  std::optional<int> wait(std::chrono::nanoseconds limit = std::chrono::seconds{10}) {
    return process_.wait(limit);
  }
  bool is_running() { return process_.is_running(); }
  void restart();  // kills it first when it runs

  // ---- what the kernel says about its memory, in bytes
  std::size_t memory() const { return status("VmRSS:"); }
  std::size_t most_memory() const { return status("VmHWM:"); }

 private:
  std::vector<std::string> command() const;
  void write_files();
  void start();
  std::size_t status(std::string_view word) const;

  options how_;
  temp_dir dir_{memory_if_possible()};
  reserved_port port_;
  std::unique_ptr<certificate_authority> authority_;
  certificate certificate_;
  std::string ca_file_, state_;
  process process_;
};

// The command itself, for tests that run it without a service: "" when this build has none.
std::string holdfast_command();

// A program that asks a service, in e2e/peers.
std::string peer_program(const std::string& name);

// One service for all tests of this process, started when first asked for. Ask on the main thread, see process.hpp.
serve_process& shared_serve();

}  // namespace holdfast::testing
