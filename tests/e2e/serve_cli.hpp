// A real `holdfast serve`, asked as other people's programs ask it (a socket, curl) and as the command does.
#pragma once

#include "e2e/store_cli.hpp"
#include "faults/serve_client.hpp"
#include "support/serve_process.hpp"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace e2e {

using holdfast::testing::http_line;
using holdfast::testing::http_request;
using holdfast::testing::said;
using holdfast::testing::serve_process;

// The header that says that a lock is to be taken away, and the body of an acquire that waits.
inline constexpr auto break_on_purpose = "X-Holdfast-Intent: break\r\n";
inline constexpr auto patient_acquire = R"({"ttl":"60s","wait":"10m"})";

// An answer, or an event, as what it says; null when it is no JSON.
inline nlohmann::json json_in(std::string_view text) {
  return nlohmann::json::parse(text, nullptr, false);
}
inline nlohmann::json json_in(const said& answer) { return json_in(answer.body); }

// Of a header in the head of an answer; "" when it has none.
inline std::string header_in(const said& answer, std::string_view name) {
  const auto line = fmt::format("\r\n{}: ", name);
  const auto at = answer.head.find(line);
  if (at == std::string::npos) return {};
  const auto begin = at + line.size();
  return answer.head.substr(begin, answer.head.find("\r\n", begin) - begin);
}

// A stream of server-sent events, on a connection of its own.
class event_line {
 public:
  event_line(std::uint16_t port, std::string_view method, std::string_view target,
             std::string_view body = {}, std::string_view headers = {})
      : line_(port, 3 * holdfast::testing::patience) {
    line_.send(http_request(method, target, body, headers));
  }
  // The data of the first such event behind those that were asked for before, or discarded when none comes in time.
  nlohmann::json until(std::string_view event) {
    const auto begin = fmt::format("event: {}\ndata: ", event);
    // Heartbeats come all the time, so silence alone does not end it.
    const auto deadline = std::chrono::steady_clock::now() + 3 * holdfast::testing::patience;
    for (;;) {
      const auto at = heard_.find(begin, seen_);
      const auto end = at == std::string::npos ? at : heard_.find("\n\n", at);
      if (end != std::string::npos) {
        seen_ = end;
        const auto from = at + begin.size();
        return json_in(std::string_view{heard_}.substr(from, end - from));
      }
      if (std::chrono::steady_clock::now() > deadline || !line_.receive(heard_))
        return nlohmann::json::value_t::discarded;
    }
  }
  // Does it end, without another event of ours?
  bool ends() {
    while (line_.receive(heard_)) {
    }
    return heard_.find("event: ", seen_) == std::string::npos && heard_.ends_with("0\r\n\r\n");
  }
  int status() {
    while (heard_.find("\r\n\r\n") == std::string::npos)
      if (!line_.receive(heard_)) return 0;
    return holdfast::testing::status_of(heard_);
  }
  const std::string& heard() const noexcept { return heard_; }
  void cut() { line_.drop(); }
  void reset() { line_.reset(); }

 private:
  http_line line_;
  std::string heard_;
  std::size_t seen_ = 0;
};

class serve_cli : public store_cli<serve_process> {
 protected:
  void SetUp() override { need(serve_process::available(), "http"); }

  // A connection that is kept.
  http_line line(std::string headers = {}) const {
    return http_line{running().port(), 3 * holdfast::testing::patience, std::move(headers)};
  }
  // One request on a connection of its own.
  said ask(std::string_view method, std::string_view target, std::string_view body = {},
           std::string headers = {}) const {
    return line(std::move(headers)).ask(method, target, body);
  }
  said acquire(std::string_view name, std::string_view body = R"({"ttl":"60s"})",
               std::string headers = {}) const {
    return ask("POST", fmt::format("/v1/locks/{}:acquire", name), body, std::move(headers));
  }
  said renew(const std::string& lease, std::string headers = {}) const {
    return ask("POST", fmt::format("/v1/leases/{}:renew", lease), "{}", std::move(headers));
  }
  said release(const std::string& lease, std::string headers = {}) const {
    return ask("DELETE", fmt::format("/v1/leases/{}", lease), {}, std::move(headers));
  }
  said lease(const std::string& id, std::string headers = {}) const {
    return ask("GET", fmt::format("/v1/leases/{}", id), {}, std::move(headers));
  }
  // Sends an acquire, or another request that waits, and does not hear.
  http_line waiting(std::string_view name, std::string_view body, std::string headers = {}) const {
    auto out = line();
    out.send(http_request("POST", fmt::format("/v1/locks/{}:acquire", name), body, headers));
    return out;
  }
  event_line events(std::string_view target, std::string_view headers = {}) const {
    return {running().port(), "GET", target, {}, headers};
  }
  event_line hold(std::string_view name, std::string_view body,
                  std::string_view headers = {}) const {
    return {running().port(), "POST", fmt::format("/v1/locks/{}:hold", name), body, headers};
  }

  // How many hold it and how many wait for it, as the service shows it.
  std::pair<std::size_t, std::size_t> counts(std::string_view name) const {
    const auto shown = json_in(ask("GET", fmt::format("/v1/locks/{}", name)));
    return {shown["holders"].size(), shown["waiters"].size()};
  }
  bool has_waiters(std::string_view name, std::size_t count) const {
    return eventually([&] { return counts(name).second == count; });
  }
  bool is_free(std::string_view name) const {
    return eventually([&] { return counts(name) == std::pair<std::size_t, std::size_t>{0, 0}; });
  }
  std::size_t waiting_now() const {
    return json_in(ask("GET", "/v1/stats"))["waiting"].get<std::size_t>();
  }
};

// With a service as it is without any settings.
class serve_plain : public serve_cli {
 protected:
  void SetUp() override {
    serve_cli::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) start();
  }
};

}  // namespace e2e
