#include <holdfast/holdfast.hpp>

#include <iostream>
#include <mutex>

int main() {
  auto client = holdfast::client::open("memory:");
  holdfast::mutex demo{client, "demo"};
  std::scoped_lock guard{demo};
  std::cout << "A stranger to the source tree holds a lock.\n";
}
