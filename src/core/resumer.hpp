// The thread on which coroutines go on when the caller named no other place. Started with the first one.
//
// Apart from the driver on purpose: a coroutine that blocks must not cost anybody a renewal.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace holdfast::core {

class resumer {
 public:
  ~resumer();
  void post(std::function<void()> work);

 private:
  void run();
  std::mutex guard_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace holdfast::core
