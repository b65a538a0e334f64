#include "server/state.hpp"

#include "support/expect.hpp"
#include "support/temp_dir.hpp"

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

namespace holdfast::server {
namespace {

using testing::fails_with;
using testing::is_ok;
using testing::temp_dir;

const std::string a_hash(32, 'a');
const std::string b_hash(32, 'b');
const owner_id owner{{1, 2}, 3};

// As the next service would find it.
state_folder opened(const std::string& path) { return state_folder::open(path).value(); }

TEST(serve_state, a_later_service_is_the_same_client_and_has_the_same_ids) {
  const temp_dir folder;
  const auto path = folder.file("deep/er");
  const auto seen = [&] {
    const auto state = opened(path);
    return std::tuple{state.client(), state.lease_id(owner, "key"), state.hash("what", "text")};
  };
  const auto first = seen();
  EXPECT_EQ(seen(), first);
  EXPECT_NE(opened(folder.file("other")).client(), std::get<0>(first));
}

TEST(serve_state, an_id_is_of_one_grant_and_one_key) {
  const temp_dir folder;
  const auto state = opened(folder.file("state"));
  std::set<std::string> ids;
  for (const auto& each : {owner, owner_id{{1, 2}, 4}, owner_id{{1, 3}, 3}, owner_id{{2, 2}, 3}})
    for (const auto* name : {"", "a", "b", "a b"}) ids.insert(state.lease_id(each, name));
  EXPECT_EQ(ids.size(), 16U);
  for (const auto& each : ids) {
    EXPECT_EQ(each.size(), 32U);
    EXPECT_EQ(each.find_first_not_of("0123456789abcdef"), std::string::npos) << each;
  }
  EXPECT_NE(state.hash("request", "x"), state.hash("question", "x"));
}

TEST(serve_state, one_service_at_a_time_has_it) {
  const temp_dir folder;
  const auto path = folder.file("state");
  {
    const auto first = opened(path);
    const auto second = state_folder::open(path);
    ASSERT_TRUE(fails_with(second, errc::misconfigured));
    EXPECT_NE(second.error().message().find("--state"), std::string::npos);
  }
  EXPECT_TRUE(is_ok(state_folder::open(path)));
}

TEST(serve_state, a_folder_that_others_may_look_into_is_refused) {
  const temp_dir folder;
  const auto path = folder.file("open");
  ASSERT_EQ(::mkdir(path.c_str(), 0700), 0);
  ASSERT_EQ(::chmod(path.c_str(), 0750), 0);
  EXPECT_TRUE(fails_with(state_folder::open(path), errc::misconfigured));
  const auto link = folder.file("link");
  ASSERT_EQ(::chmod(path.c_str(), 0700), 0);
  std::filesystem::create_symlink(path, link);
  EXPECT_TRUE(fails_with(state_folder::open(link), errc::misconfigured));
  std::ofstream{folder.file("file")} << "x";
  EXPECT_TRUE(fails_with(state_folder::open(folder.file("file")), errc::misconfigured));
}

TEST(serve_state, its_secret_is_closed_to_others_and_must_be_whole) {
  const temp_dir folder;
  const auto path = folder.file("state");
  opened(path);
  struct stat about {};
  ASSERT_EQ(::stat((path + "/secret").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777U, 0600U);
  std::filesystem::resize_file(path + "/secret", 31);
  EXPECT_TRUE(fails_with(state_folder::open(path), errc::misconfigured));
}

TEST(serve_state, answered_requests_are_found_again_by_the_next) {
  const temp_dir folder;
  const auto path = folder.file("state");
  {
    auto state = opened(path);
    EXPECT_TRUE(state.journal().empty());
    state.note({a_hash, b_hash, {1, 0xffffffffffffffff}});
    state.note({b_hash, a_hash, {7}});
    EXPECT_EQ(state.noted(), 2U);
  }
  auto next = opened(path);
  ASSERT_EQ(next.journal().size(), 2U);
  EXPECT_EQ(next.journal()[0].request, a_hash);
  EXPECT_EQ(next.journal()[0].question, b_hash);
  EXPECT_EQ(next.journal()[0].sequences, (std::vector<std::uint64_t>{1, 0xffffffffffffffff}));
  EXPECT_EQ(next.journal()[1].sequences, std::vector<std::uint64_t>{7});
}

TEST(serve_state, what_is_kept_is_all_that_the_next_finds) {
  const temp_dir folder;
  const auto path = folder.file("state");
  {
    auto state = opened(path);
    state.note({a_hash, b_hash, {1}});
    state.keep({{b_hash, b_hash, {2}}});
    EXPECT_EQ(state.noted(), 0U);
    state.note({a_hash, a_hash, {3}});  // behind it, and not into the old file
  }
  const auto next = opened(path);
  ASSERT_EQ(next.journal().size(), 2U);
  EXPECT_EQ(next.journal()[0].sequences, std::vector<std::uint64_t>{2});
  EXPECT_EQ(next.journal()[1].sequences, std::vector<std::uint64_t>{3});
}

TEST(serve_state, a_line_that_was_half_written_is_no_answer) {
  const temp_dir folder;
  const auto path = folder.file("state");
  {
    auto state = opened(path);
    state.note({a_hash, b_hash, {1}});
    state.note({b_hash, b_hash, {0x22}});
  }
  const auto file = path + "/requests";
  // Its number would be another one.
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 2);
  EXPECT_EQ(opened(path).journal().size(), 1U);
  std::ofstream{file} << "nonsense\n" << a_hash << "\n\n" << a_hash << ' ' << b_hash << " 5\n";
  EXPECT_EQ(opened(path).journal().size(), 1U);
}

}  // namespace
}  // namespace holdfast::server
