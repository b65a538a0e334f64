// What a child does: reads commands, one per line, and answers each with one line.
//
//   acquire NAME TTL   waits for it; "granted TOKEN", or the code of the failure; with a word behind it outlives_client
//   share NAME TTL     the same as a reader, and
//   permit NAME TTL    the same of one permit of two
//   owner NAME         its owner id, as three numbers
//   valid NAME         "true" or "false"
//   lost NAME          has the loss been announced? "true" or "false"
//   release NAME       "ok" or the code of the failure
//   depart             ends normally, the client closed
#include <holdfast/counting_semaphore.hpp>
#include <holdfast/mutex.hpp>
#include <holdfast/shared_mutex.hpp>

#include <iostream>
#include <map>
#include <sstream>

namespace holdfast::testing {

namespace {

class servant {
 public:
  explicit servant(const std::string& url) : client_(client::open(url)) {}

  std::string answer(const std::string& line) {
    std::istringstream words{line};
    std::string verb, name, ttl, lasting;
    words >> verb >> name >> ttl >> lasting;
    if (verb == "acquire" || verb == "share" || verb == "permit")
      return acquire(verb, name, ttl, !lasting.empty());
    auto& held = leases_[name];
    if (verb == "owner") {
      const auto owner = held.owner();
      return std::to_string(owner.client[0]) + ' ' + std::to_string(owner.client[1]) + ' ' +
             std::to_string(owner.sequence);
    }
    if (verb == "valid") return held.valid() ? "true" : "false";
    if (verb == "lost") return held.lost().stop_requested() ? "true" : "false";
    if (verb == "release") {
      const auto outcome = held.release();
      return outcome ? "ok" : to_string(outcome.error().code());
    }
    return "what?";
  }

 private:
  std::string acquire(const std::string& how, const std::string& name, const std::string& ttl,
                      bool lasting) {
    const acquire_options options{.ttl = parse_duration(ttl).value(), .outlives_client = lasting};
    auto got = how == "share"    ? shared_mutex{client_, name}.acquire_shared(options)
               : how == "permit" ? counting_semaphore{client_, name, 2}.acquire_permits(1, options)
                                 : mutex{client_, name}.acquire(options);
    if (!got) return to_string(got.error().code());
    const auto token = got->token().value;
    leases_[name] = std::move(*got);
    return "granted " + std::to_string(token);
  }

  client client_;
  std::map<std::string, lease> leases_;
};

}  // namespace

int obey(const std::string& url) try {
  servant self{url};
  for (std::string line; std::getline(std::cin, line) && line != "depart";) {
    std::cout << self.answer(line) << std::endl;
  }
  return 0;
} catch (const std::exception& e) {
  std::cout << e.what() << std::endl;
  return 1;
}

}  // namespace holdfast::testing
