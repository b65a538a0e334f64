// One leader among three candidates; when it resigns the next one takes over, and all can see the leader.
#include <holdfast/holdfast.hpp>

#include <chrono>
#include <iostream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

int main(int argc, char** argv) try {
  const std::string url = argc > 1 ? argv[1] : holdfast::default_store();
  const auto client = holdfast::client::open(url);
  std::mutex console;

  std::vector<std::jthread> candidates;
  for (const std::string address : {"10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"})
    candidates.emplace_back([&console, address, url] {
      const auto own = holdfast::client::open(url);  // each as if it were a process of its own
      holdfast::election election{own, "examples/scheduler", address};
      auto term = election.campaign({.wait = 10s});
      if (!term) return;
      {
        const std::lock_guard lock{console};
        std::cout << address << " leads in term " << term->token().value << ".\n";
      }
      // Lead until it is enough, or until the term is lost: whatever comes first.
      const auto enough = std::chrono::steady_clock::now() + 300ms;
      while (!term->lost().stop_requested() && std::chrono::steady_clock::now() < enough)
        std::this_thread::sleep_for(10ms);
    });  // the lease goes out of scope: that is how a leader resigns

  // An observer that never stands for election itself. It goes home when nothing happens for a second.
  const holdfast::election watched{client, "examples/scheduler"};
  holdfast::fencing_token seen{};
  for (;;) {
    const auto change = watched.observe(seen, 1s);
    if (!change && change.error().code() == holdfast::errc::timed_out) break;
    const auto& leader = change.value();
    seen = leader ? leader->term : holdfast::fencing_token{};
    const std::lock_guard lock{console};
    std::cout << "  observed: " << (leader ? leader->value : "no leader") << '\n';
  }
} catch (const holdfast::lock_error& e) {
  std::cerr << e.what() << '\n';
  return 1;
}
