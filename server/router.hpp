// From a request to its handler. Before a handler is called it is certain: the Host is ours, a page of somebody else
// did not send it, the key is known and has the scope (for this very name, where the name is in the path), the name is
// a name, and the body says it is JSON.
#pragma once

#include "http.hpp"
#include "keys.hpp"
#include "path.hpp"
#include "problems.hpp"

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::server {

// One request on its way through its handler; cheap to move, and to be kept as long as it is not answered.
struct visit {
  std::shared_ptr<exchange> to;
  const key* who = nullptr;
  std::string parameter;  // what stands for {name}, {lease} ... in the pattern, decoded
  server::query query;
  bool plain = false;  // answers are text
  std::chrono::steady_clock::time_point came;

  const request& asked() const { return to->asked(); }
  void answer(response with) const { to->respond(std::move(with)); }
  // 200, application/json
  void answer(std::string json) const {
    to->respond({200, "application/json", std::move(json), {}});
  }
  void refuse(const problem& why) const { to->respond(answer_of(why, plain)); }
  // Throws refused unless the key may do that with this lock.
  void check(scope wanted, std::string_view lock) const;
};

// The names that the query asks for with ?prefix=, as far as the key is for them. Throws refused when it is for none.
std::string narrowed(const visit& from);

// Throws refused; must not throw anything else once it has begun something.
using action = std::function<void(visit)>;

struct route {
  std::string_view method;
  // "/v1/locks", "/v1/locks/{name}", "/v1/locks/{name}:acquire", "/v1/sessions/{session}/events". A {name} is judged as
  // a lock name, and may have slashes.
  std::string_view pattern;
  scope needs = scope::any_key;
  action act;
  bool has_query = false;  // else a query is refused
  bool plain = false;
};

struct web_policy {
  // The names by which clients may call us, in small letters, without port: "locks.example". localhost and addresses
  // are always among them.
  std::vector<std::string> hosts;
};

class router {
 public:
  router(const key_ring& keys, web_policy policy) : keys_(keys), policy_(std::move(policy)) {}
  router(const router&) = delete;
  router& operator=(const router&) = delete;

  // The pattern is a literal.
  void add(route one);
  // Answers everything that it does not hand on.
  void serve(const std::shared_ptr<exchange>& to) const;

  std::vector<const route*> all() const;

 private:
  struct found {
    const std::vector<route>* routes = nullptr;
    std::string_view parameter;  // not decoded
  };
  found find(std::string_view path) const;
  visit judge(const std::shared_ptr<exchange>& to, const route*& chosen) const;
  const key* who(const request& asked, const route& wanted) const;

  const key_ring& keys_;
  web_policy policy_;
  // By its pattern with {} for the parameter.
  std::map<std::string, std::vector<route>, std::less<>> routes_;
  std::vector<std::string> folders_;  // "/v1/locks/": what stands before a parameter
};

}  // namespace holdfast::server
