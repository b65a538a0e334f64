// What clients do with their leases, by a service without a network: the test is its loop.
#include "server/listener.hpp"
#include "server/locks.hpp"

#include "support/temp_dir.hpp"
#include "support/wait_until.hpp"
#include "unit/serve/fakes.hpp"

#include <holdfast/shared_mutex.hpp>

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace holdfast::server {
namespace {

using namespace std::chrono_literals;
using testing::fake_exchange;
using testing::wait_until;

struct no_door final : listener {
  explicit no_door(server::loop& of) : on(of) {}
  server::loop& loop() noexcept override { return on; }
  std::uint16_t port() const noexcept override { return 0; }
  std::size_t connections() const noexcept override { return 0; }
  void run(handler, std::function<void()>) override {}
  void end() override {}
  server::loop& on;
};

// What the library's threads bring to the loop, in their order; it runs when the test says so.
class inbox final : public observer {
 public:
  void put(std::function<void()> what) {
    const std::lock_guard locked{guard_};
    all_.push_back(std::move(what));
  }
  std::size_t size() const {
    const std::lock_guard locked{guard_};
    return all_.size();
  }
  void run() {
    for (;;) {
      std::function<void()> next;
      {
        const std::lock_guard locked{guard_};
        if (all_.empty()) return;
        next = std::move(all_.front());
        all_.pop_front();
      }
      next();
    }
  }
  bool hears_pairs() const noexcept override { return false; }
  void lost(std::string_view name, fencing_token token, std::string_view why) override {
    put([this, name = std::string{name}, token, why = std::string{why}] {
      leases->lost(name, token, why);
    });
  }
  lease_table* leases = nullptr;

 private:
  mutable std::mutex guard_;
  std::deque<std::function<void()>> all_;
};

class serve_lease_routes : public ::testing::Test {
 protected:
  serve_lease_routes() {
    to_loop->leases = &at_work.leases;
    add_lease_routes(at_work);
  }
  client open() {
    client_options how;
    how.observer = to_loop;
    how.resume = [to = to_loop](std::function<void()> what) { to->put(std::move(what)); };
    return client::open("file:" + folder.file("store"), how);
  }
  std::shared_ptr<fake_exchange> ask(const std::string& method, const std::string& target,
                                     const std::string& body = {}) {
    fake_exchange::header_list headers{{"Host", "localhost"}};
    if (!body.empty()) headers.emplace_back("Content-Type", "application/json");
    auto out = std::make_shared<fake_exchange>(method, target, headers, body);
    at_work.routes.serve(out);
    return out;
  }
  lease_ptr keep(lease held) {
    const auto& who = keys.anybody();
    return at_work.leases.add(std::move(held), who, {.ttl = 60s}, at_work.bounds.lease(who),
                              std::chrono::steady_clock::now());
  }

  testing::temp_dir folder;
  testing::fake_loop loop;
  no_door door{loop};
  const options configured;
  const key_ring keys;
  state_folder state = state_folder::open(folder.file("state")).value();
  std::shared_ptr<inbox> to_loop = std::make_shared<inbox>();
  service at_work{loop, door, configured, open(), keys, state};
};

TEST_F(serve_lease_routes, an_upgrade_that_is_lost_before_its_answer_leaves_no_lease) {
  shared_mutex lock{at_work.store, "stock"};
  auto reader = lock.acquire_shared({.ttl = 60s, .own_token = true}).value();
  const auto held = keep(lock.acquire_upgradeable({.ttl = 60s, .own_token = true}).value());
  ASSERT_NE(held, nullptr);
  const auto upgrade = ask("POST", "/v1/leases/" + held->id + ":upgrade", R"({"wait":"10s"})");
  EXPECT_FALSE(upgrade->answered);
  ASSERT_TRUE(reader.release());
  ASSERT_TRUE(wait_until([&] { return to_loop->size() == 1; })) << "granted, and not resumed yet";
  ASSERT_EQ(at_work.store.revoke("stock").value(), 1U);
  ASSERT_TRUE(wait_until([&] { return to_loop->size() == 2; })) << "lost";
  to_loop->run();
  ASSERT_TRUE(upgrade->answered);
  EXPECT_EQ(upgrade->answered->status, 410) << upgrade->answered->body;
  EXPECT_EQ(at_work.leases.size(), 0U);
  EXPECT_EQ(ask("POST", "/v1/leases/" + held->id + ":renew")->answered->status, 410);
}

TEST_F(serve_lease_routes, an_upgraded_lease_is_known_by_both_of_its_ids_until_it_is_lost) {
  shared_mutex lock{at_work.store, "stock"};
  const auto held = keep(lock.acquire_upgradeable({.ttl = 60s, .own_token = true}).value());
  const auto earlier = held->id;
  const auto upgrade = ask("POST", "/v1/leases/" + earlier + ":upgrade");
  to_loop->run();
  ASSERT_TRUE(upgrade->answered);
  EXPECT_EQ(upgrade->answered->status, 200) << upgrade->answered->body;
  EXPECT_NE(held->id, earlier);
  for (const auto& id : {earlier, held->id})
    EXPECT_EQ(ask("GET", "/v1/leases/" + id)->answered->status, 200);
  ASSERT_EQ(at_work.store.revoke("stock").value(), 1U);
  ASSERT_TRUE(wait_until([&] { return to_loop->size() == 1; }));
  to_loop->run();
  for (const auto& id : {earlier, held->id})
    EXPECT_EQ(ask("GET", "/v1/leases/" + id)->answered->status, 410);
  EXPECT_EQ(at_work.leases.size(), 0U);
}

}  // namespace
}  // namespace holdfast::server
