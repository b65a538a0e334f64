// gcc 12 would destroy such options twice (docs/decisions/0007-gcc-coroutine-bug.md), so it must not compile there.
#include <holdfast/holdfast.hpp>

using namespace std::chrono_literals;

holdfast::task<void> buy(holdfast::mutex& stock) {
  const auto lease = co_await stock.async_acquire({.wait = 3s});
}
