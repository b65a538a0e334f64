// What `holdfast serve` is told.
#pragma once

#include <holdfast/client.hpp>
#include <holdfast/engine.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::server {

struct listen_address {
  std::string host = "127.0.0.1";  // IPv6 without its brackets
  std::uint16_t port = 7420;       // 0: any that is free
};

// The command's own words for what operators see, so that `ls --json` and the service cannot disagree.
struct renderings {
  std::string (*locks)(std::span<const lock_info>) = nullptr;
  std::string (*lock)(const lock_info&) = nullptr;
  std::string (*promises)(const std::string& url, const capabilities&) = nullptr;
  std::string (*findings)(const std::string& url, const std::string& engine,
                          std::span<const finding>) = nullptr;
};

struct options {
  listen_address listen;
  std::string store;  // its address; may hold a password
  // TLS: all files are PEM.
  std::string tls_cert, tls_key;
  std::string client_ca;           // of client certificates, which are then required
  std::string keys;                // file of keys (keys.hpp)
  std::string state;               // folder; empty: this user's
  std::vector<std::string> hosts;  // other names by which browsers may call it
  // ---- limits
  std::size_t connections = 20'000;  // in all; fewer where the system allows fewer files
  std::size_t connections_per_address = 12'000;
  std::size_t leases_per_key = 50'000;
  std::size_t waiters_per_key = 10'000;
  std::size_t processes = 1'000;  // that are watched; fewer where the system allows fewer files
  std::size_t sessions = 2'000;   // each with an engine, and most with a thread; the same
  std::size_t watchers = 6'000;   // readers of events
  std::chrono::nanoseconds request_time = std::chrono::seconds{10};  // for a request to arrive
  std::chrono::nanoseconds idle_time = std::chrono::seconds{75};     // between two requests
  renderings show;
  std::string_view version;
};

// By the name of its flag without the dashes. misconfigured: no such setting, or no such value.
result<void> set(options& of, std::string_view name, std::string_view value);
// Lines "NAME = VALUE"; # begins a comment.
result<void> read_config(options& into, const std::string& file);
bool is_loopback(const listen_address& at);
// No more of everything than so many open files allow. is_embedded: the store of a session needs no sockets.
void fit(options& of, std::size_t files, bool is_embedded);
// Why these options are refused, or nothing: open to others only with keys and TLS.
result<void> check(const options& of);

}  // namespace holdfast::server
