// At most three at a time: ten workers share three permits, and a lease can take several at once.
#include <holdfast/holdfast.hpp>

#include <algorithm>
#include <atomic>
#include <iostream>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

int main(int argc, char** argv) try {
  const auto client = holdfast::client::open(argc > 1 ? argv[1] : holdfast::default_store());
  holdfast::counting_semaphore downloads{client, "examples/downloads", 3};

  std::atomic<int> now{0};
  std::atomic<int> most{0};
  {
    std::vector<std::jthread> workers;
    for (int i = 0; i < 10; ++i)
      workers.emplace_back([&] {
        downloads.acquire();
        const int together = ++now;
        int seen = most;
        while (seen < together && !most.compare_exchange_weak(seen, together)) {
        }
        std::this_thread::sleep_for(50ms);
        --now;
        downloads.release();
      });
  }
  std::cout << "Ten workers, never more than " << most << " at a time.\n";

  // All or nothing: two permits in one lease, so that two half-served askers cannot block each other.
  const auto pair = downloads.acquire_permits(2, {.wait = 1s});
  const auto another = downloads.acquire_permits(2, {.wait = 0s});
  std::cout << "Two permits: " << (pair ? "granted" : "refused")
            << "; two more of the remaining one: "
            << (another ? "granted" : to_string(another.error().code())) << ".\n";
  return most <= 3 ? 0 : 1;
} catch (const holdfast::lock_error& e) {
  std::cerr << e.what() << '\n';
  return 1;
}
