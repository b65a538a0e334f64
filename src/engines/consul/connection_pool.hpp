// The connections of blocking callers: each has one for the time of its call, and drives it on its own thread. As many
// as there are callers; some stay open for the next ones.
//
// Thread-safe. close() wakes all callers and returns when the last is gone.
#pragma once

#include "engines/consul/http_transfer.hpp"

#include <atomic>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>

namespace holdfast::engines::consul {

class agent::connection_pool {
 public:
  explicit connection_pool(const http_setup& with) : with_(with) {}
  connection_pool(const connection_pool&) = delete;
  connection_pool& operator=(const connection_pool&) = delete;

  class visit;
  bool is_closing() const noexcept { return closing_.load(std::memory_order_relaxed); }
  void close() noexcept;

 private:
  class connection;
  using shelf = std::list<connection>;
  static constexpr std::size_t most_idle = 16;
  // Nothing while it closes.
  std::optional<shelf::iterator> take();
  void give_back(shelf::iterator which) noexcept;

  const http_setup& with_;
  std::atomic<bool> closing_{false};
  std::mutex guard_;
  std::condition_variable_any changed_;
  shelf idle_, busy_;
};

class agent::connection_pool::connection {
 public:
  explicit connection(const http_setup& with);
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;

  // Takes until libcurl is through with it, `until`, stop, or `closing` and a wake().
  result<http_reply> ask(std::size_t member, const question& what, const call& until,
                         const std::atomic<bool>& closing);
  unsigned sends() const noexcept { return transfer_.sends(); }
  void wake() const noexcept { curl_multi_wakeup(driver_.get()); }

 private:
  struct end {
    std::optional<cut> by_us{};
    CURLcode by_libcurl = CURLE_OK;
  };
  end drive(const call& until, const std::atomic<bool>& closing) const;
  struct free_driver {
    void operator()(CURLM* driver) const noexcept { curl_multi_cleanup(driver); }
  };
  std::unique_ptr<CURLM, free_driver> driver_;
  http_transfer transfer_;
};

// A caller, for as long as it asks and pauses.
class agent::connection_pool::visit {
 public:
  explicit visit(connection_pool& in) : in_(in), at_(in.take()) {}
  visit(const visit&) = delete;
  visit& operator=(const visit&) = delete;
  ~visit() {
    if (at_) in_.give_back(*at_);
  }
  explicit operator bool() const noexcept { return at_.has_value(); }
  result<http_reply> ask(std::size_t member, const question& what, const call& until) {
    return (*at_)->ask(member, what, until, in_.closing_);
  }
  unsigned sends() const noexcept { return (*at_)->sends(); }
  void pause(nanoseconds length, const call& limits);

 private:
  connection_pool& in_;
  const std::optional<shelf::iterator> at_;
};

}  // namespace holdfast::engines::consul
