// What the bad days of `holdfast serve`, and of the engine that speaks to one, share. Services listen on the loopback,
// over a file: store of their own unless a test says otherwise; what is true is asked of that store, past the service.
//
//   HOLDFAST_REQUIRE_ENGINES=http   a build without serve fails instead of skipping (CI sets it; "all" is all)
#pragma once

#include "faults/faults.hpp"
#include "faults/serve_client.hpp"

#include "support/serve_process.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <nlohmann/json.hpp>

#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace holdfast::testing {

class serve_faults : public ::testing::Test {
 protected:
  void SetUp() override { need(serve_process::available(), "http"); }
};

// The same service by way of a bad network.
inline std::string serve_url(const fault_proxy& network, std::string_view options = {}) {
  return fmt::format("{}{}{}", network.url("http"), options.empty() ? "" : "?", options);
}

// ---- keys

// A line of the file of keys.
inline std::string key_line(std::string_view name, std::string_view scopes, std::string_view names,
                            std::string_view secret) {
  std::array<unsigned char, 32> digest{};
  unsigned size = 0;
  EVP_Digest(secret.data(), secret.size(), digest.data(), &size, EVP_sha256(), nullptr);
  return fmt::format("{} {} {} {:02x}", name, scopes, names, fmt::join(digest, ""));
}

inline std::string bearer(std::string_view key) {
  return fmt::format("Authorization: Bearer {}\r\n", key);
}

// ---- the store's view

inline lock_info seen_in_store(const serve_process& service, const std::string& name) {
  return client::open(service.store()).inspect(name).value();
}

inline bool is_locked(const serve_process& service, const std::string& name) {
  return !seen_in_store(service, name).holders.empty();
}

inline bool wait_for_queue(const serve_process& service, const std::string& name,
                           std::size_t length) {
  const auto looker = client::open(service.store());
  return wait_until([&] { return looker.inspect(name).value().waiters.size() == length; });
}

inline bool one_waits(const serve_process& service, const std::string& name) {
  return wait_for_queue(service, name, 1);
}

inline std::string left_behind(const serve_process& service) {
  std::string out;
  for (const auto& lock : client::open(service.store()).list().value())
    out +=
        fmt::format("{} ({} hold, {} wait) ", lock.name, lock.holders.size(), lock.waiters.size());
  return out;
}

inline bool leaves_nothing(const serve_process& service, nanoseconds within = patience) {
  return wait_until([&] { return left_behind(service).empty(); }, within);
}

// What is claimed is in the store: one holder, with this token.
inline ::testing::AssertionResult is_proven(const serve_process& service, const std::string& name,
                                            std::uint64_t token) {
  const auto seen = seen_in_store(service, name);
  if (seen.holders.size() == 1 && seen.holders.front().token.value == token)
    return ::testing::AssertionSuccess();
  auto out = ::testing::AssertionFailure()
             << name << ": the token is " << token << ", the store has";
  for (const auto& one : seen.holders) out << ' ' << one.token.value;
  return out;
}

inline ::testing::AssertionResult is_proven(const serve_process& service, const lease& held) {
  return is_proven(service, held.name(), held.token().value);
}

// ---- the service's view

// Who waits for a lock, in the service's own words.
inline std::size_t waiters_shown(http_line& line, std::string_view name) {
  const auto shown = line.ask("GET", fmt::format("/v1/locks/{}", name));
  const auto words = nlohmann::json::parse(shown.body, nullptr, false);
  return words.is_object() && words.contains("waiters") ? words["waiters"].size() : 0;
}

// A number without labels of its /metrics; 0: not there.
inline std::size_t metric_shown(http_line& line, std::string_view name) {
  const auto page = line.ask("GET", "/metrics").body;
  const auto at = page.find(fmt::format("\n{} ", name));
  return at == std::string::npos
             ? 0
             : static_cast<std::size_t>(std::stod(page.substr(at + name.size() + 2)));
}
inline std::size_t connections_shown(http_line& line) {
  return metric_shown(line, "holdfast_serve_connections");
}

// ---- those who must not notice

// Leases that their clients renew at a third of their ttl, as careful programs do; at once, with a rest, when no
// answer came. Whatever happens to others, or to the service: none of them may be lost, or change its token.
class lease_keeper {
 public:
  // Acquires all of them; throws when one is refused.
  lease_keeper(std::uint16_t port, std::string_view prefix, std::size_t count, nanoseconds ttl)
      : line_(port, 2s), ttl_(ttl) {
    for (std::size_t i = 0; i < count; ++i) {
      auto name = fmt::format("{}{}", prefix, i);
      const auto got = line_.acquire(name, 0s, ttl);
      if (got.status != 200) throw std::runtime_error(name + ": " + got.head + got.body);
      all_.push_back({std::move(name), got.text("lease"), got.number("token")});
    }
    thread_ = std::thread{[this] { keep(); }};
  }
  lease_keeper(const lease_keeper&) = delete;
  lease_keeper& operator=(const lease_keeper&) = delete;
  ~lease_keeper() { stop(); }
  void stop() {
    done_ = true;
    if (thread_.joinable()) thread_.join();
  }

  struct kept {
    std::string name, lease;
    std::uint64_t token = 0;
  };
  const std::vector<kept>& all() const noexcept { return all_; }
  // How often all of them were renewed.
  std::size_t rounds() const noexcept { return rounds_; }
  bool goes_on(std::size_t more = 1, nanoseconds within = 2 * patience) const {
    const auto floor = rounds();
    return wait_until([&] { return rounds() > floor + more; }, within);
  }
  // What should not have happened; empty: nothing.
  std::string complaints() const {
    const std::lock_guard lock{guard_};
    return complaints_;
  }
  nanoseconds slowest_answer() const noexcept { return nanoseconds{slowest_.load()}; }

 private:
  void keep() {
    while (!done_) {
      const auto begin = std::chrono::steady_clock::now();
      for (const auto& one : all_) renew(one);
      ++rounds_;
      wait_until([&] { return done_ || std::chrono::steady_clock::now() - begin > ttl_ / 3; },
                 ttl_);
    }
  }
  void renew(const kept& one) {
    while (!done_) {
      const auto asked = std::chrono::steady_clock::now();
      const auto said = line_.renew(one.lease);
      if (said.status == 0) {
        std::this_thread::sleep_for(10ms);  // a client's own rest between two attempts
        continue;
      }
      const auto took = std::chrono::steady_clock::now() - asked;
      slowest_ = std::max(slowest_.load(), nanoseconds{took}.count());
      // 503: the store cannot be asked at the moment, which says nothing about the lease.
      if (said.status == 503) continue;
      if (said.status != 200) complain(fmt::format("{}: {} {}", one.name, said.status, said.body));
      return;
    }
  }
  void complain(const std::string& what) {
    const std::lock_guard lock{guard_};
    if (complaints_.size() < 4000) complaints_ += what + '\n';
  }

  http_line line_;
  const nanoseconds ttl_;
  std::vector<kept> all_;
  std::atomic<bool> done_{false};
  std::atomic<std::size_t> rounds_{0};
  std::atomic<std::int64_t> slowest_{0};
  mutable std::mutex guard_;
  std::string complaints_;
  std::thread thread_;
};

// Gives them all back, and takes each once more: it is free, and the token has risen.
inline void expect_all_can_go_on(std::uint16_t port, const std::vector<lease_keeper::kept>& all) {
  http_line line{port};
  for (const auto& one : all) {
    const auto shown = line.ask("GET", fmt::format("/v1/leases/{}", one.lease));
    EXPECT_EQ(shown.status, 200) << one.name << ' ' << shown.body;
    EXPECT_EQ(shown.number("token"), one.token) << one.name;
    EXPECT_EQ(line.release(one.lease).status, 204) << one.name;
    const auto next = line.acquire(one.name, 0s, 2s);
    EXPECT_EQ(next.status, 200) << next.body;
    EXPECT_GT(next.number("token"), one.token) << one.name;
    EXPECT_EQ(line.release(next.text("lease")).status, 204) << one.name;
  }
}

}  // namespace holdfast::testing
