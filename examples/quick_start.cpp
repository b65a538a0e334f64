// The first program: a lock with the standard guards, then with a lease.
//
//   quick_start [STORE]        the store is the embedded one of this user unless given
#include <holdfast/holdfast.hpp>

#include <iostream>
#include <mutex>

using namespace std::chrono_literals;

int main(int argc, char** argv) try {
  const auto client = holdfast::client::open(argc > 1 ? argv[1] : holdfast::default_store());
  holdfast::mutex stock{client, "examples/stock/sku-42"};

  {
    // The std face: one holder at a time, over all processes that use this store and name.
    const std::scoped_lock guard{stock};
    std::cout << "Selling one, with " << stock.name() << " locked in " << client.url() << ".\n";
  }

  // The explicit face says why not, and carries what a guard cannot: validity, loss and the fencing token.
  auto lease = stock.acquire({.wait = 3s, .label = "quick start"});
  if (!lease) {
    std::cout << "Not today: " << lease.error().message() << '\n';
    return 1;
  }
  std::cout << "Holding it with token " << lease->token().value << ".\n";

  // A second one is told that it is busy instead of waiting.
  if (const auto second = stock.try_acquire(); !second)
    std::cout << "A second one gets: " << to_string(second.error().code()) << ".\n";

  if (lease->valid_for(200ms)) std::cout << "There is time enough for 200 ms of work.\n";
  lease->release().value();
  std::cout << "Released; the next holder's token will be larger.\n";
} catch (const holdfast::lock_error& e) {
  std::cerr << e.what() << '\n';
  return 1;
}
