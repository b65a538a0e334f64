// Opening a store file: what is made, what is refused, what is mended.
#include "engines/file/engine.hpp"
#include "engines/file/layout.hpp"

#include "support/engine_fixture.hpp"
#include "support/expect.hpp"
#include "support/temp_dir.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace holdfast {
namespace {

using namespace std::chrono_literals;
using engines::file::make_engine;
using testing::fails_with;
using testing::is_ok;
using kind = entered::kind;
namespace layout = engines::file;

struct file_store : ::testing::Test {
  testing::temp_dir folder;
  std::string path = folder.file("store");
  testing::recording_listener listener;

  result<std::unique_ptr<engine>> open(const std::string& text) {
    url_ = store_url::parse(text).value();
    return make_engine({*url_, {1, 2}, system_clock(), listener, "here", 1});
  }
  result<std::unique_ptr<engine>> open() { return open("file:" + path); }

  static std::string read(const std::string& file) {
    std::ifstream in{file, std::ios::binary};
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
  }
  void write(const std::string& text) {
    std::ofstream{path, std::ios::binary} << text;
    chmod(path.c_str(), 0600);
  }
  void patch(std::size_t at, std::string_view bytes) {
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_EQ(pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(at)),
              static_cast<ssize_t>(bytes.size()));
    ::close(file);
  }
  static request ask(std::string_view name, std::uint64_t sequence = 1) {
    request out;
    out.name = name;
    out.owner = {{1, 2}, sequence};
    out.ttl = 10s;
    return out;
  }

 private:
  std::optional<store_url> url_;
};

TEST_F(file_store, is_made_for_its_owner_alone) {
  ASSERT_TRUE(is_ok(open()));
  struct stat at {};
  ASSERT_EQ(stat(path.c_str(), &at), 0);
  EXPECT_EQ(at.st_mode & 07777U, 0600U);
}

TEST_F(file_store, a_symbolic_link_is_denied) {
  ASSERT_TRUE(is_ok(open()));
  const auto link = folder.file("link");
  ASSERT_EQ(symlink(path.c_str(), link.c_str()), 0);
  EXPECT_TRUE(fails_with(open("file:" + link), errc::denied));
}

TEST_F(file_store, a_file_that_others_may_touch_is_denied) {
  ASSERT_TRUE(is_ok(open()));
  for (const mode_t mode : {0640U, 0604U, 0620U, 0602U}) {
    chmod(path.c_str(), mode);
    const auto refused = open();
    ASSERT_TRUE(fails_with(refused, errc::denied));
    EXPECT_NE(refused.error().message().find("chmod 600"), std::string::npos);
  }
}

TEST_F(file_store, nobody_is_told_to_change_the_permissions_of_something_else) {
  write("root:x:0:0:root:/root:/bin/sh\n");
  chmod(path.c_str(), 0644);
  const auto refused = open();
  ASSERT_TRUE(fails_with(refused, errc::denied));
  const auto sentence = refused.error().message();
  EXPECT_EQ(sentence.find("chmod"), std::string::npos) << sentence;
  EXPECT_NE(sentence.find("not a lock store"), std::string::npos) << sentence;
}

TEST_F(file_store, a_folder_or_pipe_is_not_a_store) {
  EXPECT_FALSE(open("file:" + folder.path().string()).has_value());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_TRUE(fails_with(open(), errc::denied));
}

TEST_F(file_store, garbage_is_refused_and_left_alone) {
  const std::string garbage(10'000, 'x');
  write(garbage);
  EXPECT_TRUE(fails_with(open(), errc::protocol));
  EXPECT_EQ(read(path), garbage);
  write("short");
  EXPECT_TRUE(fails_with(open(), errc::protocol));
  EXPECT_EQ(read(path), "short");
}

TEST_F(file_store, a_truncated_store_is_refused) {
  ASSERT_TRUE(is_ok(open()));
  ASSERT_EQ(truncate(path.c_str(), layout::chunks_at / 2), 0);
  EXPECT_TRUE(fails_with(open(), errc::protocol));
}

TEST_F(file_store, another_version_is_refused_by_its_number) {
  ASSERT_TRUE(is_ok(open()));
  patch(offsetof(layout::constants, version), std::string{"\x09\0\0\0", 4});
  const auto refused = open();
  ASSERT_TRUE(fails_with(refused, errc::protocol));
  EXPECT_NE(refused.error().message().find("version 9"), std::string::npos);
}

TEST_F(file_store, a_damaged_header_is_refused) {
  ASSERT_TRUE(is_ok(open()));
  patch(offsetof(layout::constants, hash_seed), "damage!!");
  EXPECT_TRUE(fails_with(open(), errc::protocol));
}

TEST_F(file_store, an_empty_zeroed_or_half_made_store_is_finished) {
  write("");
  EXPECT_TRUE(is_ok(open()));
  write(std::string(layout::chunks_at, '\0'));
  EXPECT_TRUE(is_ok(open()));
  patch(offsetof(layout::header, ready),
        std::string(4, '\0'));  // as if killed before the last step
  auto opened = open();
  ASSERT_TRUE(is_ok(opened));
  EXPECT_EQ((*opened)->enter(ask("a"), {}).value().what, kind::granted);
}

TEST_F(file_store, a_new_boot_forgets_holders_and_keeps_counters_and_the_fence) {
  std::uint64_t token = 0;
  {
    auto opened = open().value();
    token = opened->enter(ask("held"), {}).value().granted.token.value;
    auto reader = ask("read", 2);
    reader.mode = lock_mode::shared;
    reader.weight = 1;
    ASSERT_EQ(opened->enter(reader, {}).value().what, kind::granted);
    ASSERT_TRUE(opened->count({"latch", counter_op::create, 7, 0, 1h}, {}).value().applied);
  }
  patch(offsetof(layout::header, boot), "00000000-0000-0000-0000-000000000000");
  auto opened = open().value();
  EXPECT_TRUE(opened->list("", 10, {}).value().empty());
  const auto again = opened->enter(ask("held"), {}).value();
  ASSERT_EQ(again.what, kind::granted);
  EXPECT_GE(again.granted.token.value, token + (std::uint64_t{1} << 32));
  const auto kept = opened->count({"latch", counter_op::read, 0, 0, {}}, {}).value();
  EXPECT_TRUE(kept.exists);
  EXPECT_EQ(kept.value, 7);
}

TEST_F(file_store, is_not_cleared_under_somebody_who_is_attached) {
  auto attached = open().value();
  patch(offsetof(layout::header, boot), "00000000-0000-0000-0000-000000000000");
  EXPECT_TRUE(fails_with(open(), errc::unavailable));
}

TEST_F(file_store, tokens_rise_when_the_file_is_removed) {
  const auto first = open().value()->enter(ask("a"), {}).value().granted.token;
  ASSERT_EQ(unlink(path.c_str()), 0);
  EXPECT_GT(open().value()->enter(ask("a"), {}).value().granted.token, first);
}

TEST_F(file_store, a_full_store_says_so_and_serves_on) {
  const auto limit = layout::chunks_at + 4 * layout::chunk_bytes;
  auto opened = open("file:" + path + "?max_size=" + std::to_string(limit)).value();
  std::vector<std::string> names;
  std::vector<grant> held;
  result<entered> last{entered{}};
  for (std::uint64_t i = 1; i < 20'000; ++i) {
    names.push_back("name/" + std::to_string(i));
    last = opened->enter(ask(names.back(), i), {});
    if (!last) break;
    held.push_back(last->granted);
    held.back().name = {};
  }
  ASSERT_TRUE(fails_with(last, errc::unavailable));
  EXPECT_NE(last.error().message().find("full"), std::string::npos) << last.error().message();
  ASSERT_FALSE(held.empty());
  for (const auto& one : held) EXPECT_TRUE(is_ok(opened->release(one, {})));
  EXPECT_EQ(opened->enter(ask(names.front()), {}).value().what, kind::granted);
}

TEST_F(file_store, a_disk_without_room_is_an_error_and_not_a_signal) {
  auto opened = open().value();
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit tight = before;
  tight.rlim_cur = layout::chunks_at + layout::chunk_bytes / 2;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  const auto refused = opened->enter(ask("a"), {});
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_TRUE(fails_with(refused, errc::unavailable));
  EXPECT_EQ(opened->enter(ask("a"), {}).value().what, kind::granted);
}

TEST_F(file_store, wrong_addresses_are_misconfigured) {
  EXPECT_TRUE(fails_with(open("file://host/path"), errc::misconfigured));
  EXPECT_TRUE(fails_with(open("file:" + path + "?colour=red"), errc::misconfigured));
  EXPECT_TRUE(fails_with(open("file:" + path + "?max_size=12"), errc::misconfigured));
  EXPECT_TRUE(fails_with(open("file:" + folder.file("no/such/folder")), errc::unavailable));
}

TEST_F(file_store, the_default_lies_in_the_runtime_folder) {
  const char* before = std::getenv("XDG_RUNTIME_DIR");
  const std::string saved = before == nullptr ? "" : before;
  chmod(folder.path().c_str(), 0700);
  setenv("XDG_RUNTIME_DIR", folder.path().c_str(), 1);
  EXPECT_EQ(engines::file::default_path(), folder.file("holdfast/store"));
  EXPECT_TRUE(is_ok(open("file:")));
  struct stat at {};
  ASSERT_EQ(stat(folder.file("holdfast").c_str(), &at), 0);
  EXPECT_EQ(at.st_mode & 07777U, 0700U);

  std::filesystem::remove_all(folder.file("holdfast"));
  std::filesystem::create_directory(folder.file("elsewhere"));
  ASSERT_EQ(symlink(folder.file("elsewhere").c_str(), folder.file("holdfast").c_str()), 0);
  EXPECT_TRUE(fails_with(open("file:"), errc::denied));
  if (before == nullptr) {
    unsetenv("XDG_RUNTIME_DIR");
  } else {
    setenv("XDG_RUNTIME_DIR", saved.c_str(), 1);
  }
}

}  // namespace
}  // namespace holdfast
