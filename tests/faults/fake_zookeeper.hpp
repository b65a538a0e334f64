// A server that speaks as much of ZooKeeper's protocol as a client needs to come in, and lies as the test wants it to.
//
//   fake_zookeeper server;                                              // has no nodes, and makes none
//   server.answer(fake_zookeeper::children, [](auto xid) { return fake_zookeeper::reply(xid, 0, "garbage"); });
#pragma once

#include "faults/fake_server.hpp"

#include "jute/zookeeper.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace holdfast::testing {

class fake_zookeeper final : public fake_server {
 public:
  enum operation : std::int32_t {
    greeting = 0,  // has no type of its own; its xid is 0
    erase = 2,
    exists = 3,
    ping = 11,
    children = 12,
    multi = 14,
    create = 15,
    container = 19,
    farewell = -11,
  };
  using answerer = std::function<std::string(std::int32_t xid)>;

  fake_zookeeper() { begin(); }
  ~fake_zookeeper() override { end(); }

  std::string url() const { return fmt::format("zk://127.0.0.1:{}", port()); }
  // From now on, to every such request. Nothing: silence.
  void answer(operation to, answerer with) {
    const std::lock_guard lock{guard_};
    answers_[to] = std::move(with);
  }
  std::size_t asked(operation what) const {
    const std::lock_guard lock{guard_};
    const auto at = asked_.find(what);
    return at == asked_.end() ? 0 : at->second;
  }

  static std::string reply(std::int32_t xid, std::int32_t err, std::string_view rest) {
    std::string out;
    jute::framed frame{out};
    jute::writer to{out};
    to.integer(xid), to.big(1), to.integer(err);
    out.append(rest);
    return out;
  }
  static std::string stat() { return std::string(68, '\0'); }
  static std::string text(std::string_view value) {
    std::string out;
    jute::writer{out}.text(value);
    return out;
  }
  static std::string number(std::int32_t value) {
    std::string out;
    jute::writer{out}.integer(value);
    return out;
  }
  static std::string welcome(std::int32_t timeout_ms, std::int64_t session) {
    std::string out;
    jute::framed frame{out};
    jute::writer to{out};
    to.integer(0), to.integer(timeout_ms), to.big(session), to.text("passwordpassword");
    to.boolean(false);
    return out;
  }

 private:
  static std::string usual(std::int32_t type, std::int32_t xid) {
    constexpr std::int32_t no_node = -101;
    switch (type) {
      case greeting:
        return welcome(10'000, 77);
      case exists:
        return reply(xid, 0, stat());
      case multi: {  // a check that holds, and the end
        std::string out;
        jute::writer to{out};
        to.integer(13), to.boolean(false), to.integer(0);
        to.integer(-1), to.boolean(true), to.integer(-1);
        return reply(xid, 0, out);
      }
      case children:
      case create:
      case erase:
        return reply(xid, no_node, {});
      default:
        return reply(xid, 0, {});
    }
  }

  std::string reply_to(std::int32_t type, std::int32_t xid) {
    answerer with;
    {
      const std::lock_guard lock{guard_};
      ++asked_[type];
      if (const auto at = answers_.find(type); at != answers_.end()) with = at->second;
    }
    return with ? with(xid) : usual(type, xid);
  }

  void serve(int fd) override {
    std::string unread;
    for (bool is_first = true;; is_first = false) {
      auto frame = jute::next_frame(unread);
      while (frame && frame->length == 0) {
        if (!receive(fd, unread)) return;
        frame = jute::next_frame(unread);
      }
      if (!frame) return;
      std::string_view bytes{unread};
      jute::reader request{jute::take_frame(bytes)};
      const auto xid = request.integer(), type = request.integer();
      const auto said = is_first ? reply_to(greeting, 0) : reply_to(type, xid);
      unread.erase(0, frame->length);
      if (!send(fd, said)) return;
    }
  }

  std::map<std::int32_t, answerer> answers_;
  std::map<std::int32_t, std::size_t> asked_;
};

}  // namespace holdfast::testing
