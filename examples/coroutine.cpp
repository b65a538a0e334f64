// A thousand coroutines queue for one lock without a thread each; one of them is cancelled on the way.
#include <holdfast/holdfast.hpp>

#include <atomic>
#include <iostream>
#include <latch>
#include <stop_token>

using namespace std::chrono_literals;

namespace {

constexpr int buyers = 1000;

struct shop {
  int stock = buyers / 2;  // protected by the lock
  std::atomic<int> sold{0};
  std::atomic<int> sold_out{0};
  std::latch all_done{buyers};
};

holdfast::task<> buy(holdfast::mutex& lock, shop& here) {
  const holdfast::acquire_options patient{.wait = 20s};
  // Suspends while others have the lock; goes on when it is ours.
  if (auto lease = co_await lock.async_acquire(patient)) {
    if (here.stock > 0) {
      --here.stock;
      ++here.sold;
    } else {
      ++here.sold_out;
    }
  }
  here.all_done.count_down();
}

holdfast::task<holdfast::errc> give_up(holdfast::mutex& lock, std::stop_source& stop) {
  const auto holder = co_await lock.async_acquire();
  stop.request_stop();
  const holdfast::acquire_options cancellable{.stop = stop.get_token()};
  const auto second = co_await lock.async_acquire(cancellable);
  co_return second ? holdfast::errc{} : second.error().code();
}

}  // namespace

int main(int argc, char** argv) try {
  const auto client = holdfast::client::open(argc > 1 ? argv[1] : holdfast::default_store());
  holdfast::mutex lock{client, "examples/flash-sale"};

  shop here;
  for (int i = 0; i < buyers; ++i) holdfast::spawn(buy(lock, here));
  here.all_done.wait();
  std::cout << here.sold << " sold, " << here.sold_out << " too late, " << here.stock << " left.\n";

  std::stop_source stop;
  const auto verdict = holdfast::sync_wait(give_up(lock, stop));
  std::cout << "A cancelled wait ends with: " << to_string(verdict) << ".\n";
  return here.sold == buyers / 2 && here.stock == 0 ? 0 : 1;
} catch (const holdfast::lock_error& e) {
  std::cerr << e.what() << '\n';
  return 1;
}
