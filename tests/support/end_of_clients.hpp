// Waits, when it goes, until clients have ended. An operation in the background may keep a client for a moment longer
// than the test's own handles do, and a test that ends then leaves a thread behind.
//
//   const end_of_clients end;                                        // before the clients, so that it goes after them
//   const auto a = client::open(url, {.observer = end.observed()});
#pragma once

#include "support/wait_until.hpp"

#include <holdfast/observer.hpp>

#include <gtest/gtest.h>

#include <memory>

namespace holdfast::testing {

class end_of_clients {
 public:
  end_of_clients() = default;
  end_of_clients(const end_of_clients&) = delete;
  end_of_clients& operator=(const end_of_clients&) = delete;
  // A client keeps its observer until it has ended.
  ~end_of_clients() {
    EXPECT_TRUE(wait_until([this] { return observed_.use_count() == 1; }));
  }
  const std::shared_ptr<observer>& observed() const noexcept { return observed_; }

 private:
  std::shared_ptr<observer> observed_ = std::make_shared<observer>();
};

}  // namespace holdfast::testing
