// Many readers or one writer, and how a reader becomes the writer without a gap.
#include <holdfast/holdfast.hpp>

#include <iostream>
#include <mutex>
#include <shared_mutex>

using namespace std::chrono_literals;

int main(int argc, char** argv) try {
  const auto client = holdfast::client::open(argc > 1 ? argv[1] : holdfast::default_store());
  holdfast::shared_mutex prices{client, "examples/prices"};
  holdfast::shared_mutex elsewhere{client, "examples/prices"};  // as another process would have it

  {
    const std::shared_lock reader{prices};
    const std::shared_lock second{elsewhere, std::try_to_lock};
    const std::unique_lock writer{elsewhere, std::try_to_lock};
    std::cout << "While one reads, another reader " << (second ? "may enter" : "must wait")
              << ", a writer " << (writer ? "may enter" : "must wait") << ".\n";
  }

  // Look first, write only if needed: an upgradeable read stands beside plain readers, and no other client can write
  // between its look and its write.
  auto look = prices.acquire_upgradeable({.wait = 1s}).value();
  const auto before = look.token();
  {
    const auto reader = elsewhere.acquire_shared({.wait = 1s}).value();
    std::cout << "An upgradeable read beside a plain one: " << (reader.valid() ? "yes" : "no")
              << ".\n";
  }
  prices.upgrade(look, {.wait = 1s}).value();
  std::cout << "Upgraded to " << to_string(look.mode())
            << "; the token rose: " << (look.token() > before ? "yes" : "no") << ".\n";

  // The write is done; let the readers in, and stay one of them.
  prices.downgrade(look).value();
  const bool others = elsewhere.acquire_shared({.wait = 1s}).has_value();
  std::cout << "Downgraded; others read again: " << (others ? "yes" : "no") << ".\n";
} catch (const holdfast::lock_error& e) {
  std::cerr << e.what() << '\n';
  return 1;
}
