// The six lines that the README shows: open, name, wait, learn of loss, work with the token, give back.
#include <holdfast/holdfast.hpp>

#include <iostream>

using namespace std::chrono_literals;

int main() try {
  const auto store = holdfast::client::open(holdfast::default_store());  // or "redis://host", ...
  holdfast::mutex stock{store, "stock/sku-42"};      // also for std::scoped_lock
  auto lease = stock.acquire({.wait = 3s}).value();  // renewed while we live
  const std::stop_callback on_loss{lease.lost(), [] { std::cerr << "Lost: stop the work.\n"; }};
  std::cout << "Write with token " << lease.token().value << ", refuse older ones.\n";
  lease.release().value();
} catch (const holdfast::lock_error& e) {
  std::cerr << e.what() << '\n';
  return 1;
}
