// sql_fence on a real MariaDB: who comes too late is refused before it reads anything.
#include "e2e/mysql_suite.hpp"
#include "support/expect.hpp"
#include "support/wait_until.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace {

using holdfast::errc;
using holdfast::fencing_token;
using holdfast::result;
using holdfast::sql_fence;
using holdfast::testing::fails_with;
using holdfast::testing::is_ok;
using holdfast::testing::wait_until;
using recipes::transaction;

class mysql_fence : public e2e::mysql_suite {
 protected:
  void SetUp() override {
    mysql_suite::SetUp();
    if (IsSkipped()) return;
    server->sql(fence.schema());
    recipes::put(*connect(), 1, 10);
  }
  static result<void> admit(const sql_fence& to, database& db, std::uint64_t token) {
    return to.admit(fencing_token{token}, recipes::runner_on(db));
  }
  result<void> admit(database& db, std::uint64_t token) { return admit(fence, db, token); }
  bool somebody_waits() {
    return server->sql(
               "SELECT COUNT(*) FROM information_schema.innodb_trx "
               "WHERE trx_state='LOCK WAIT'") == "1";
  }
  std::string newest() { return server->sql("SELECT token FROM holdfast_fence"); }

  const sql_fence fence{"stock/1"};
};

TEST_F(mysql_fence, refuses_older_tokens_and_lets_equal_and_newer_ones_in) {
  const auto db = connect();
  EXPECT_TRUE(is_ok(admit(*db, 33)));
  EXPECT_TRUE(is_ok(admit(*db, 33))) << "the same holder comes again";
  EXPECT_TRUE(is_ok(admit(*db, 34)));
  const auto refused = admit(*db, 33);
  EXPECT_TRUE(fails_with(refused, errc::lost));
  EXPECT_NE(refused.error().message().find("\"stock/1\" has seen token 34"), std::string::npos)
      << refused.error().message();
  EXPECT_EQ(newest(), "34");
}

TEST_F(mysql_fence, keeps_all_64_bits) {
  const auto db = connect();
  constexpr std::uint64_t large = (std::uint64_t{1} << 63U) + 5;
  EXPECT_TRUE(is_ok(admit(*db, large)));
  EXPECT_TRUE(is_ok(admit(*db, large)));
  EXPECT_TRUE(fails_with(admit(*db, large - 1), errc::lost));
  EXPECT_TRUE(is_ok(admit(*db, UINT64_MAX)));
  EXPECT_EQ(newest(), "18446744073709551615");
}

TEST_F(mysql_fence, resources_are_bytes) {
  const auto db = connect();
  EXPECT_TRUE(is_ok(admit(sql_fence{"a"}, *db, 9)));
  for (const char* other : {"A", "a ", "ä", "a/b"})
    EXPECT_TRUE(is_ok(admit(sql_fence{other}, *db, 1))) << other;
  const std::string longest(255, 'x');
  EXPECT_TRUE(is_ok(admit(sql_fence{longest}, *db, 9)));
  EXPECT_TRUE(fails_with(admit(sql_fence{longest}, *db, 8), errc::lost));
}

TEST_F(mysql_fence, is_not_fooled_by_an_old_snapshot) {
  const auto old_holder = connect(), new_holder = connect();
  ASSERT_TRUE(is_ok(admit(*old_holder, 33)));
  old_holder->run("START TRANSACTION WITH CONSISTENT SNAPSHOT");
  ASSERT_TRUE(is_ok(admit(*new_holder, 34)));
  EXPECT_EQ(
      old_holder->run("SELECT token FROM holdfast_fence WHERE resource=?", {"stock/1"}).row[0],
      "33")
      << "a plain read, in the same transaction, would let it in";
  EXPECT_TRUE(fails_with(admit(*old_holder, 33), errc::lost));
  old_holder->run("ROLLBACK");
}

TEST_F(mysql_fence, an_old_holder_is_refused_once_the_new_one_has_only_read) {
  const auto old_holder = connect(), new_holder = connect();
  ASSERT_TRUE(is_ok(admit(*old_holder, 33)));
  transaction reading{*new_holder};
  ASSERT_TRUE(is_ok(admit(*new_holder, 34)));
  EXPECT_EQ(recipes::left(*new_holder, 1), 10);

  auto late = std::async(std::launch::async, [&] {
    const transaction work{*old_holder};
    return admit(*old_holder, 33);
  });
  ASSERT_TRUE(wait_until([&] { return somebody_waits(); }))
      << "it must not get past the new holder";
  reading.commit();
  EXPECT_TRUE(fails_with(late.get(), errc::lost));
}

TEST_F(mysql_fence, whoever_had_to_wait_reads_what_the_one_before_wrote) {
  for (const char* level : {"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"}) {
    const auto first = connect(), second = connect();
    recipes::put(*first, 1, 10);
    server->sql("DELETE FROM holdfast_fence");
    for (const auto* db : {&first, &second})
      (*db)->run(std::string{"SET SESSION TRANSACTION ISOLATION LEVEL "} + level);
    transaction writing{*first};
    ASSERT_TRUE(is_ok(admit(*first, 33)));
    auto next = std::async(std::launch::async, [&] {
      const transaction work{*second};
      EXPECT_TRUE(is_ok(admit(*second, 34)));
      return recipes::left(*second, 1);
    });
    ASSERT_TRUE(wait_until([&] { return somebody_waits(); }));
    ASSERT_EQ(recipes::read_then_write(*first, 1, [] {}), recipes::bought::yes);
    writing.commit();
    EXPECT_EQ(next.get(), 9) << level;
  }
}

TEST_F(mysql_fence, a_rollback_takes_the_token_back) {
  const auto old_holder = connect(), new_holder = connect();
  ASSERT_TRUE(is_ok(admit(*old_holder, 33)));
  {
    const transaction work{*new_holder};
    ASSERT_TRUE(is_ok(admit(*new_holder, 34)));
  }
  EXPECT_EQ(newest(), "33");
  EXPECT_TRUE(is_ok(admit(*old_holder, 33)));
}

TEST_F(mysql_fence, needs_no_more_than_its_grants) {
  server->sql(
      "CREATE OR REPLACE USER clerk@'%'; "
      "GRANT SELECT, INSERT, UPDATE ON holdfast.holdfast_fence TO clerk@'%'");
  database db{"mysql://clerk@127.0.0.1:" + std::to_string(server->port()) + "/holdfast"};
  EXPECT_TRUE(is_ok(admit(db, 33)));
  EXPECT_TRUE(fails_with(admit(db, 32), errc::lost));
}

TEST_F(mysql_fence, works_in_a_table_of_another_name) {
  const sql_fence elsewhere{"stock/1", "holdfast.my_fences"};
  server->sql("DROP TABLE IF EXISTS my_fences");
  server->sql(elsewhere.schema());
  const auto db = connect();
  EXPECT_TRUE(is_ok(admit(*db, 33)));
  EXPECT_TRUE(is_ok(admit(elsewhere, *db, 1)));
}

// Everybody takes tokens, dawdles, and then comes with them in any order. Whoever is let in adds to the history: there
// the tokens must never fall, and the count that everybody reads and writes must miss nothing.
TEST_F(mysql_fence, tokens_of_concurrent_writers_never_fall) {
  constexpr int writers = 8, tries = 40;
  server->sql("CREATE OR REPLACE TABLE history (count INT PRIMARY KEY, token BIGINT UNSIGNED)");
  server->sql("UPDATE stock SET amount=0 WHERE item=1");
  std::atomic<std::uint64_t> last{100};
  std::atomic<int> admitted{0}, refused{0};
  {
    std::vector<std::jthread> crowd;
    for (int i = 0; i < writers; ++i)
      crowd.emplace_back([&, i] {
        std::minstd_rand chance{static_cast<unsigned>(i + 1)};
        const auto db = connect();
        for (int k = 0; k < tries; ++k) {
          const auto token = ++last - chance() % 6;  // often of somebody who came before
          transaction work{*db};
          const auto let_in = admit(*db, token);
          if (!let_in) {
            EXPECT_EQ(let_in.error().code(), errc::lost);
            ++refused;
            continue;
          }
          const int count = recipes::left(*db, 1) + 1;
          db->run("UPDATE stock SET amount=? WHERE item=1", {std::to_string(count)});
          db->run("INSERT INTO history VALUES (?,?)",
                  {std::to_string(count), std::to_string(token)});
          work.commit();
          ++admitted;
        }
      });
  }
  EXPECT_GT(refused, 0);
  EXPECT_EQ(admitted + refused, writers * tries);
  EXPECT_EQ(server->sql("SELECT amount FROM stock WHERE item=1"), std::to_string(admitted));
  EXPECT_EQ(server->sql("SELECT COUNT(*) FROM history a JOIN history b ON b.count=a.count+1 "
                        "WHERE b.token<a.token"),
            "0");
}

// Half of them roll back. The numbers of the errors that the server answered.
std::vector<unsigned> errors_of_a_crowd(const std::string& url, const sql_fence& at) {
  constexpr int crowd_size = 8;
  std::mutex guard;
  std::vector<unsigned> out;
  {
    std::vector<std::jthread> crowd;
    for (int i = 0; i < crowd_size; ++i)
      crowd.emplace_back([&, i] {
        database db{url};
        transaction work{db};
        try {
          const auto token = fencing_token{static_cast<std::uint64_t>(100 + i)};
          if (at.admit(token, recipes::runner_on(db)) && i % 2 == 0) work.commit();
        } catch (const sql_error& e) {
          const std::lock_guard lock{guard};
          out.push_back(e.number());
        }
      });
  }
  return out;
}

TEST_F(mysql_fence, a_crowd_that_rolls_back_meets_no_deadlock_where_the_row_was_there_before) {
  for (int round = 0; round < 20; ++round) {
    const auto name = "fresh/" + std::to_string(round);
    server->sql("INSERT INTO holdfast_fence VALUES ('" + name + "',0)");
    EXPECT_TRUE(errors_of_a_crowd(server->url(), sql_fence{name}).empty());
  }
}

TEST_F(mysql_fence, and_nothing_worse_than_a_deadlock_where_it_was_not) {
  constexpr unsigned deadlock = 1213;
  for (int round = 0; round < 20; ++round) {
    const sql_fence fresh{"fresh/" + std::to_string(round)};
    for (const auto number : errors_of_a_crowd(server->url(), fresh)) EXPECT_EQ(number, deadlock);
  }
}

}  // namespace
