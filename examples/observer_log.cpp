// An observer that writes a log: a line when a lock is acquired, cannot be renewed, or is lost.
//
//   observer_log [STORE [SECONDS]]     holds a lock for SECONDS, 0 unless given, then revokes it as an operator would.
//                                      Stop the server of the store meanwhile, and renewals fail.
#include <holdfast/holdfast.hpp>

#include <chrono>
#include <iomanip>
#include <iostream>
#include <memory>
#include <semaphore>
#include <string>
#include <string_view>
#include <syncstream>

using namespace std::chrono_literals;

// The hooks have a thread of the client's to themselves, so a log that is slow delays neither the work nor renewals.
class lock_log : public holdfast::observer {
 public:
  void acquired(std::string_view name, holdfast::fencing_token token,
                holdfast::nanoseconds waited) override {
    const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(waited);
    line() << "acquired lock=" << std::quoted(name) << " token=" << token.value
           << " waited_us=" << micros.count() << '\n';
  }
  // While a store is away it is asked many times a second; a line a second is enough. (One client: no lock is needed.)
  void renew_failed(const holdfast::error& why) override {
    const auto now = std::chrono::steady_clock::now();
    if (now < quiet_until_) return;
    quiet_until_ = now + 1s;
    line() << "renew_failed code=" << to_string(why.code()) << " why=" << std::quoted(why.message())
           << '\n';
  }
  void lost(std::string_view name, holdfast::fencing_token token, std::string_view why) override {
    line() << "lost lock=" << std::quoted(name) << " token=" << token.value
           << " why=" << std::quoted(why) << '\n';
  }

 private:
  static std::osyncstream line() { return std::osyncstream{std::cout}; }  // whole lines only

  std::chrono::steady_clock::time_point quiet_until_{};
};

int main(int argc, char** argv) try {
  const std::string store = argc > 1 ? argv[1] : holdfast::default_store();
  const std::chrono::seconds hold{argc > 2 ? std::stoi(argv[2]) : 0};
  const auto client = holdfast::client::open(store, {.observer = std::make_shared<lock_log>()});
  holdfast::mutex report{client, "examples/report"};

  const auto lease = report.acquire({.wait = 3s, .ttl = 3s}).value();
  std::binary_semaphore gone{0};
  const std::stop_callback on_loss{lease.lost(), [&gone] { gone.release(); }};
  if (gone.try_acquire_for(hold)) return 0;
  client.revoke(report.name()).value();
  return gone.try_acquire_for(10s) ? 0 : 1;
} catch (const holdfast::lock_error& e) {
  std::cerr << e.what() << '\n';
  return 1;
}
