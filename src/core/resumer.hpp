// A thread for user code, which runs in the order in which it was posted. Started with the first of it.
//
// A client has three: one on which coroutines go on when the caller named no other place, one for the callbacks of
// lost(), one for the observer. Apart from each other and from the driver on purpose: user code that blocks must not
// cost a lease its renewal, nor its holder the news of a loss.
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
  // Runs what was posted, then ends the thread.
  void stop() noexcept;

 private:
  void run();
  std::mutex guard_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace holdfast::core
