// Host names to addresses without blocking the reactor: getaddrinfo() on a thread of its own.
//
// All members are for the reactor's thread. One look-up per name at a time, however many ask: a resolver that hangs
// costs one thread per name, not one per attempt to connect.
#pragma once

#include "net/stream.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace holdfast::net {

class resolver {
 public:
  using answer = result<std::vector<endpoint>>;
  using post_function = std::function<void(std::function<void()>)>;

  explicit resolver(post_function post);
  ~resolver();  // does not wait for look-ups; their answers are dropped
  resolver(const resolver&) = delete;
  resolver& operator=(const resolver&) = delete;

  // `done` runs on the reactor's thread, later.
  void look_up(const std::string& host, std::uint16_t port,
               std::function<void(const answer&)> done);

 private:
  using question = std::pair<std::string, std::uint16_t>;
  struct lookup {
    std::thread worker;
    std::vector<std::function<void(const answer&)>> asked;
  };
  struct return_path;  // to the reactor, for workers that may outlive it

  void finish(const question& which, const answer& found);

  const std::shared_ptr<return_path> return_path_;
  std::map<question, lookup> running_;
};

}  // namespace holdfast::net
