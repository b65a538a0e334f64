// What goes wrong is said in a sentence that tells what to do.
#include "e2e/shell.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace {

using e2e::sandbox;

TEST(sentences, an_address_that_is_nearly_right_is_corrected) {
  struct row {
    std::string address, advice;
  };
  sandbox box;
  for (const auto& [address, advice] : std::vector<row>{
           {"redis:127.0.0.1:6379", "lacks the // before its host; write redis://127.0.0.1:6379."},
           {"redis:/127.0.0.1:6379", "write redis://127.0.0.1:6379."},
           {"etcd:a:2379,b:2379", "write etcd://a:2379,b:2379."},
           {"mysql:db.example/locks", "write mysql://db.example/locks."},
           {"redis//x", "there is no colon after its scheme; write \"redis://x\"."},
           {"redis//x:6379/1", "write \"redis://x:6379/1\"."},
           {"/var/lib/locks", "if it is a path, write file: before it."},
           {"127.0.0.1:6379", "does not begin with a scheme such as file: or redis:// ."},
       }) {
    const auto refused = box.run({"ls", "--store", address});
    EXPECT_EQ(refused.code, 78) << address;
    EXPECT_NE(refused.err.find(advice), std::string::npos) << refused.err;
  }
}

TEST(sentences, advice_about_an_address_never_shows_a_password) {
  sandbox box;
  for (const char* address : {"redis:u:CANARY@h:6379", "redis:/u:CANARY@h", "redis//u:CANARY@h",
                              "/u:CANARY@h", "etcd:u:CANARY@h", "mysql:u:CANARY@h/db"}) {
    const auto refused = box.run({"ls", "--store", address});
    EXPECT_EQ(refused.code, 78) << address;
    EXPECT_EQ(refused.err.find("CANARY"), std::string::npos) << refused.err;
  }
}

TEST(sentences, a_name_in_use_as_another_kind_says_as_which) {
  sandbox box;
  const std::vector<std::string> four{"run", "a", "--permits", "1/4", "--"};
  const std::vector<std::string> mutex{"run", "a", "--"};
  const auto inside = [&](std::vector<std::string> outer, const std::vector<std::string>& inner) {
    outer.emplace_back("holdfast");
    outer.insert(outer.end(), inner.begin(), inner.end());
    outer.emplace_back("true");
    return box.run(outer);
  };
  const auto as_mutex = inside(four, mutex);
  EXPECT_EQ(as_mutex.code, 78);
  EXPECT_NE(as_mutex.err.find("in use as a semaphore of 4 permits, and was asked for as a mutex; "
                              "all users of a name must agree"),
            std::string::npos)
      << as_mutex.err;
  const auto as_semaphore = inside(mutex, four);
  EXPECT_EQ(as_semaphore.code, 78);
  EXPECT_NE(as_semaphore.err.find("in use as a mutex, and was asked for as a semaphore of 4"),
            std::string::npos)
      << as_semaphore.err;
}

TEST(sentences, a_ttl_of_zero_says_what_a_ttl_is_and_what_was_perhaps_meant) {
  sandbox box;
  for (const char* command : {"run", "elect"}) {
    const auto zero = box.run({command, "a", "--ttl", "0", "--", "true"});
    EXPECT_EQ(zero.code, 64);
    EXPECT_NE(zero.err.find("--ttl takes a time above 0, such as 10s"), std::string::npos)
        << zero.err;
    const auto brief = box.run({command, "a", "--ttl", "1us", "--", "true"});
    EXPECT_EQ(brief.code, 78);
    EXPECT_NE(brief.err.find("--ttl 1us is too short for the store " + box.store() + "; give "),
              std::string::npos)
        << brief.err;
    EXPECT_NE(box.run({command, "a", "--ttl", "100000h", "--", "true"}).err.find("too long"),
              std::string::npos);
  }
}

// A program that is compiled for an older language learns that first, and not from what the compiler does not know.
TEST(sentences, the_first_error_of_an_older_language_names_the_flag) {
  namespace fs = std::filesystem;
  sandbox box;
  if (box.shell("command -v c++").code != 0) GTEST_SKIP() << "needs a compiler";
  const auto include = fs::path{HOLDFAST_SOURCE} / "include";
  for (const auto& header : fs::directory_iterator{include / "holdfast"}) {
    const auto name = header.path().filename().string();
    std::ofstream{box.path("a.cpp")} << "#include <holdfast/" << name << ">\nint main() {}\n";
    const auto refused = box.shell("c++ -std=c++17 -Wfatal-errors -fsyntax-only -I '" +
                                   include.string() + "' a.cpp 2>&1");
    EXPECT_NE(refused.code, 0);
    const auto first = refused.out.substr(refused.out.find("error:"));
    EXPECT_NE(first.substr(0, first.find('\n')).find("compile with -std=c++20"), std::string::npos)
        << name << ": " << refused.out.substr(0, 500);
  }
}

}  // namespace
