// A proxy in front of a real service that understands requests: it repeats them, keeps them for later, answers some
// itself, or changes what the service says.
//
//   serve_relay relay{service.port()};
//   client::open(relay.url());
//   relay.repeat();                                    // every request is sent twice; the second answer is heard
//   relay.edit_answers([](auto& asked, auto& answer) { ... });
//
// It speaks as much of HTTP/1.1 as clients do here: one request after the other on a connection, and lengths are
// given. A stream of events is passed on as it comes.
#pragma once

#include "faults/fake_server.hpp"
#include "faults/serve_client.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace holdfast::testing {

class serve_relay final : public fake_server {
 public:
  struct question {
    std::string method, target, bytes;  // all of it
    // "enter" of /v1/sessions/ID:enter, "acquire" of /v1/locks/NAME:acquire; empty: it has none.
    std::string verb() const {
      const auto at = target.rfind(':');
      return at == std::string::npos ? std::string{} : target.substr(at + 1);
    }
    bool is_stream() const { return method == "GET" && target.ends_with("/events"); }
  };
  // The whole answer, bytes as they are; or nothing: then the service is asked. An empty one: the connection is
  // closed.
  using answerer = std::function<std::optional<std::string>(const question&)>;
  using editor = std::function<void(const question&, std::string& answer)>;

  explicit serve_relay(std::uint16_t upstream) : upstream_(upstream) { begin(); }
  ~serve_relay() override {
    is_over_ = true;
    end();
  }

  std::string url(std::string_view options = {}) const {
    return fmt::format("http://127.0.0.1:{}{}{}", port(), options.empty() ? "" : "?", options);
  }
  // From now on. All are called on several threads.
  void answer_with(answerer act) {
    const std::lock_guard lock{guard_};
    answer_ = std::move(act);
  }
  void edit_answers(editor act) {
    const std::lock_guard lock{guard_};
    edit_ = std::move(act);
  }
  // What comes on streams of events, piece by piece as the service sends them (its chunks).
  void edit_events(std::function<std::string(std::string)> act) {
    const std::lock_guard lock{guard_};
    edit_events_ = std::move(act);
  }
  void heal() { answer_with({}), edit_answers({}), edit_events({}); }
  void repeat(bool on = true) { repeats_ = on; }
  void keep(bool on = true) { keeps_ = on; }
  void drip(bool on = true) { drips_ = on; }  // answers, byte by byte, with rests
  std::size_t asked() const noexcept { return asked_; }
  std::size_t repeated() const noexcept { return repeated_; }
  // What was kept so far is sent once more, each over a connection of its own, as a proxy does that tries again when
  // everybody has forgotten. Their answers.
  std::vector<said> replay() {
    std::vector<std::string> all;
    {
      const std::lock_guard lock{guard_};
      all = kept_;
    }
    std::vector<said> out;
    for (const auto& one : all) {
      http_line line{upstream_, 3 * patience};
      if (line.send(one)) out.push_back(line.hear());
    }
    return out;
  }

  static std::string reply(int status, std::string_view body, std::string_view headers = {},
                           std::string_view type = "application/json") {
    return fmt::format("HTTP/1.1 {} Whatever\r\nContent-Type: {}\r\n{}Content-Length: {}\r\n\r\n{}",
                       status, type, headers, body.size(), body);
  }
  // Another body, and the length that it has.
  static void set_body(std::string& answer, std::string_view body) {
    const auto status = status_of(answer);
    answer = reply(status, body);
  }
  static std::string body_of(const std::string& answer) {
    const auto extent = extent_of(answer);
    return extent ? answer.substr(extent->head, extent->body) : std::string{};
  }

 private:
  static question read(const std::string& bytes) {
    const auto first = bytes.find(' '), second = bytes.find(' ', first + 1);
    return {bytes.substr(0, first), bytes.substr(first + 1, second - first - 1), bytes};
  }

  void serve(int fd) override {
    http_line service{upstream_, 10 * patience};
    std::string bytes;
    while (!is_over_) {
      auto extent = extent_of(bytes);
      while (!extent) {
        if (!receive(fd, bytes)) return;
        extent = extent_of(bytes);
      }
      const auto asked = read(bytes.substr(0, extent->head + extent->body));
      bytes.erase(0, asked.bytes.size());
      ++asked_;
      note(asked);
      if (!handle(fd, service, asked)) return;
    }
  }
  void note(const question& asked) {
    const std::lock_guard lock{guard_};
    if (keeps_ && !asked.is_stream()) kept_.push_back(asked.bytes);
  }
  bool handle(int fd, http_line& service, const question& asked) {
    answerer answer;
    editor edit;
    {
      const std::lock_guard lock{guard_};
      answer = answer_, edit = edit_;
    }
    if (auto own = answer ? answer(asked) : std::nullopt; own)
      return !own->empty() && say(fd, *own);
    if (asked.is_stream()) {
      pass_stream(fd, asked);
      return false;
    }
    if (!service.send(asked.bytes)) return false;
    auto said = service.hear();
    if (said && repeats_) {
      ++repeated_;
      if (!service.send(asked.bytes)) return false;
      said = service.hear();
    }
    if (!said) return false;
    auto out = said.head + said.body;
    if (edit) edit(asked, out);
    return say(fd, out);
  }
  bool say(int fd, const std::string& bytes) const {
    if (!drips_) return send(fd, bytes);
    for (std::size_t i = 0; i < bytes.size() && !is_over_; ++i) {
      if (!send(fd, bytes.substr(i, drips_ ? 1 : std::string::npos))) return false;
      if (!drips_) break;
      std::this_thread::sleep_for(20ms);  // what a bad server does
    }
    return true;
  }
  void pass_stream(int fd, const question& asked) {
    const int service = connect_to(upstream_);
    if (service < 0) return;
    send(service, asked.bytes);
    std::string some;
    for (std::array<pollfd, 2> both{{{fd, POLLIN, 0}, {service, POLLIN, 0}}}; !is_over_;) {
      if (::poll(both.data(), both.size(), 50) == 0) continue;
      if (both[0].revents != 0) break;  // the client sends nothing on it: it has gone
      some.clear();
      if (!receive(service, some)) break;
      std::function<std::string(std::string)> edit;
      {
        const std::lock_guard lock{guard_};
        edit = edit_events_;
      }
      if (!send(fd, edit ? edit(some) : some)) break;
    }
    ::close(service);
  }

  const std::uint16_t upstream_;
  std::atomic<bool> is_over_{false}, repeats_{false}, keeps_{false}, drips_{false};
  std::atomic<std::size_t> asked_{0}, repeated_{0};
  answerer answer_;
  editor edit_;
  std::function<std::string(std::string)> edit_events_;
  std::vector<std::string> kept_;
};

}  // namespace holdfast::testing
