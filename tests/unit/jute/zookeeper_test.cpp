// Answers are written here as a server writes them, and requests are read as it reads them.
#include "jute/zookeeper.hpp"

#include "support/expect.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::jute {
namespace {

using testing::fails_with;
using testing::is_ok;

constexpr stat sample{.czxid = 1,
                      .mzxid = std::int64_t{2} << 32U,
                      .ctime = 1'700'000'000'000,
                      .mtime = 1'700'000'000'001,
                      .version = 5,
                      .cversion = 6,
                      .aversion = 7,
                      .ephemeral_owner = -8,
                      .data_length = 9,
                      .children = 10,
                      .pzxid = 11};

// Appends values in their order: an int is an int, a long a long, and a string a string.
class bytes {
 public:
  bytes& i(std::int32_t value) {
    return put([&](writer& to) { to.integer(value); });
  }
  bytes& l(std::int64_t value) {
    return put([&](writer& to) { to.big(value); });
  }
  bytes& b(bool value) {
    return put([&](writer& to) { to.boolean(value); });
  }
  bytes& t(std::string_view value) {
    return put([&](writer& to) { to.text(value); });
  }
  bytes& s(const stat& v) {
    return l(v.czxid)
        .l(v.mzxid)
        .l(v.ctime)
        .l(v.mtime)
        .i(v.version)
        .i(v.cversion)
        .i(v.aversion)
        .l(v.ephemeral_owner)
        .i(v.data_length)
        .i(v.children)
        .l(v.pzxid);
  }
  bytes& part(std::int32_t type, bool done, std::int32_t err) { return i(type).b(done).i(err); }
  const std::string& str() const noexcept { return out_; }
  std::string frame() const {
    std::string whole;
    writer{whole}.text(out_);  // a frame looks as a text does
    return whole;
  }

 private:
  template <class Put>
  bytes& put(Put&& one) {
    writer to{out_};
    one(to);
    return *this;
  }
  std::string out_;
};

// Neither a byte less nor a byte more will do.
template <class Read>
void expect_whole(const std::string& record, Read&& read) {
  EXPECT_TRUE(is_ok(read(record)));
  for (std::size_t n = 0; n < record.size(); ++n)
    EXPECT_TRUE(fails_with(read(std::string_view{record}.substr(0, n)), errc::protocol)) << n;
  EXPECT_TRUE(fails_with(read(record + "x"), errc::protocol));
}

// ---- answers

TEST(zookeeper_answers, header_comes_before_the_record) {
  const auto said = bytes{}.i(7).l(8).i(-101).i(9).str();
  const auto opened = open_reply(said);
  ASSERT_TRUE(is_ok(opened));
  EXPECT_EQ(opened->xid, 7);
  EXPECT_EQ(opened->zxid, 8);
  EXPECT_EQ(opened->err, code::no_node);
  EXPECT_EQ(opened->rest, std::string_view{said}.substr(16));
  for (std::size_t n = 0; n < 16; ++n)
    EXPECT_TRUE(fails_with(open_reply(std::string_view{said}.substr(0, n)), errc::protocol)) << n;
}

TEST(zookeeper_answers, event_is_read) {
  const auto said = bytes{}.i(2).i(3).t("/a").str();
  const auto told = read_event(said);
  ASSERT_TRUE(is_ok(told));
  EXPECT_EQ(told->what, event_type::deleted);
  EXPECT_EQ(told->state, 3);
  EXPECT_EQ(told->path, "/a");
  expect_whole(said, read_event);
}

TEST(zookeeper_answers, description_is_read) {
  const auto said = bytes{}.s(sample).str();
  EXPECT_EQ(read_stat(said).value(), sample);
  expect_whole(said, read_stat);
}

TEST(zookeeper_answers, created_node_is_read) {
  const auto said = bytes{}.t("/a-0000000001").s(sample).str();
  EXPECT_EQ(read_created(said).value().path, "/a-0000000001");
  EXPECT_EQ(read_created(said).value().stat, sample);
  expect_whole(said, read_created);
}

TEST(zookeeper_answers, content_is_read) {
  const auto said = bytes{}.t("data").s(sample).str();
  EXPECT_EQ(read_node(said).value().data, "data");
  EXPECT_EQ(read_node(said).value().stat, sample);
  expect_whole(said, read_node);
}

TEST(zookeeper_answers, node_without_data_reads_as_empty) {
  const auto said = bytes{}.i(-1).s(sample).str();
  ASSERT_TRUE(is_ok(read_node(said)));
  EXPECT_EQ(read_node(said)->data, "");
  EXPECT_EQ(read_node(said)->stat, sample);
}

TEST(zookeeper_answers, children_are_read) {
  const auto said = bytes{}.i(3).t("b").t("").t("a").s(sample).str();
  const auto found = read_children(said);
  ASSERT_TRUE(is_ok(found));
  EXPECT_EQ(found->names, (std::vector<std::string_view>{"b", "", "a"}));
  EXPECT_EQ(found->stat, sample);
  expect_whole(said, read_children);
  EXPECT_TRUE(read_children(bytes{}.i(0).s(sample).str()).value().names.empty());
}

TEST(zookeeper_answers, list_that_claims_more_than_has_arrived_is_refused) {
  for (const auto count : {-2, 19, 1'000'000, 0x7fffffff}) {
    const auto said = bytes{}.i(count).s(sample).str();  // 68 bytes are at most 17 names, 5 rights
    EXPECT_TRUE(fails_with(read_children(said), errc::protocol)) << count;
    EXPECT_TRUE(fails_with(read_acls(said), errc::protocol)) << count;
  }
}

TEST(zookeeper_answers, rights_are_read) {
  const auto said =
      bytes{}.i(2).i(31).t("world").t("anyone").i(1).t("digest").t("u:h").s(sample).str();
  const auto found = read_acls(said);
  ASSERT_TRUE(is_ok(found));
  ASSERT_EQ(found->rights.size(), 2U);
  EXPECT_EQ(found->rights[0].permissions, permission::all);
  EXPECT_EQ(found->rights[0].scheme, "world");
  EXPECT_EQ(found->rights[1].permissions, permission::read);
  EXPECT_EQ(found->rights[1].id, "u:h");
  EXPECT_EQ(found->stat, sample);
  expect_whole(said, read_acls);
}

TEST(zookeeper_answers, greeting_is_read) {
  const auto said = bytes{}.i(0).i(30000).l(0x1000).t("0123456789abcdef").b(true).str();
  const auto greeted = read_connected(said);
  ASSERT_TRUE(is_ok(greeted));
  EXPECT_EQ(greeted->timeout_ms, 30000);
  EXPECT_EQ(greeted->session, 0x1000);
  EXPECT_EQ(greeted->password, "0123456789abcdef");
  EXPECT_TRUE(greeted->read_only);
  EXPECT_TRUE(fails_with(read_connected(said + "x"), errc::protocol));
  const std::string_view of_an_old_server{said.data(), said.size() - 1};
  ASSERT_TRUE(is_ok(read_connected(of_an_old_server)));
  EXPECT_FALSE(read_connected(of_an_old_server)->read_only);
  for (std::size_t n = 0; n < of_an_old_server.size(); ++n)
    EXPECT_TRUE(fails_with(read_connected(of_an_old_server.substr(0, n)), errc::protocol)) << n;
}

TEST(zookeeper_answers, refusals_have_names) {
  EXPECT_EQ(name_of(code::no_node), "NoNode");
  EXPECT_EQ(name_of(code::session_expired), "SessionExpired");
  EXPECT_EQ(name_of(static_cast<code>(-999)), "an unknown error");
}

// ---- the answer to a multi

constexpr std::int32_t erased = 2, changed = 5, checked = 13, made = 15, container = 19,
                       failed = -1;

std::string all_done() {
  return bytes{}
      .part(made, false, 0)
      .t("/a")
      .s(sample)
      .part(changed, false, 0)
      .s(sample)
      .part(erased, false, 0)
      .part(checked, false, 0)
      .part(container, false, 0)
      .t("/c")
      .s(sample)
      .part(-1, true, -1)
      .str();
}

// The second of three was refused.
std::string second_refused(code why) {
  const auto err = static_cast<std::int32_t>(why);
  return bytes{}
      .part(failed, false, 0)
      .i(0)
      .part(failed, false, err)
      .i(err)
      .part(failed, false, -2)
      .i(-2)
      .part(-1, true, -1)
      .str();
}

reply answer(std::string_view parts, code err = code::ok) {
  return {.xid = 1, .zxid = 2, .err = err, .rest = parts};
}

TEST(zookeeper_multi, parts_are_read) {
  const auto said = all_done();
  const auto parts = read_parts(said);
  ASSERT_TRUE(is_ok(parts));
  ASSERT_EQ(parts->size(), 5U);
  EXPECT_TRUE(std::ranges::all_of(*parts, [](const part& one) { return one.err == code::ok; }));
  EXPECT_EQ((*parts)[0].path, "/a");
  EXPECT_EQ((*parts)[0].stat, sample);
  EXPECT_EQ((*parts)[1].stat, sample);
  EXPECT_EQ((*parts)[4].path, "/c");
  expect_whole(said, read_parts);
}

TEST(zookeeper_multi, parts_of_a_refused_one_are_read) {
  const auto said = second_refused(code::node_exists);
  const auto parts = read_parts(said);
  ASSERT_TRUE(is_ok(parts));
  ASSERT_EQ(parts->size(), 3U);
  EXPECT_EQ((*parts)[0].err, code::ok);
  EXPECT_EQ((*parts)[1].err, code::node_exists);
  EXPECT_EQ((*parts)[2].err, code::runtime_inconsistency);
  expect_whole(said, read_parts);
}

TEST(zookeeper_multi, part_of_an_unknown_kind_is_refused) {
  EXPECT_TRUE(
      fails_with(read_parts(bytes{}.part(77, false, 0).part(-1, true, -1).str()), errc::protocol));
}

// A part takes twelve times the memory of its bytes.
TEST(zookeeper_multi, more_parts_than_anybody_asks_for_are_refused) {
  bytes said;
  for (int i = 0; i < 10'000; ++i) said.part(13, false, 0);
  auto most = said;
  EXPECT_TRUE(is_ok(read_parts(most.part(-1, true, -1).str())));
  EXPECT_TRUE(
      fails_with(read_parts(said.part(13, false, 0).part(-1, true, -1).str()), errc::protocol));
}

TEST(zookeeper_multi, failure_is_that_of_the_part_that_failed) {
  EXPECT_EQ(failure_of(answer(all_done())), code::ok);
  EXPECT_EQ(failure_of(answer(second_refused(code::bad_version))), code::bad_version);
  EXPECT_EQ(failure_of(answer(second_refused(code::no_node))), code::no_node);
}

TEST(zookeeper_multi, failure_of_the_whole_wins) {
  EXPECT_EQ(failure_of(answer("", code::session_expired)), code::session_expired);
  EXPECT_EQ(failure_of(answer(second_refused(code::no_node), code::no_node)), code::no_node);
}

TEST(zookeeper_multi, answer_that_makes_no_sense_is_a_failure) {
  EXPECT_EQ(failure_of(answer("")), code::marshalling);
  EXPECT_EQ(failure_of(answer(all_done() + "x")), code::marshalling);
}

// ---- requests

std::string requested(const std::function<void(std::string&)>& append) {
  std::string out;
  append(out);
  return out;
}

TEST(zookeeper_requests, greeting_asks_for_a_session) {
  EXPECT_EQ(requested([](auto& to) { append_connect(to, {.last_zxid = 5, .timeout_ms = 3000}); }),
            bytes{}.i(0).l(5).i(3000).l(0).t(std::string(16, '\0')).b(false).frame());
  EXPECT_EQ(requested([](auto& to) {
              append_connect(to, {.timeout_ms = 1, .session = 7, .password = "secret"});
            }),
            bytes{}.i(0).l(0).i(1).l(7).t("secret").b(false).frame());
}

TEST(zookeeper_requests, node_is_asked_for_by_its_path) {
  EXPECT_EQ(requested([](auto& to) { append_delete(to, 1, "/a", 4); }),
            bytes{}.i(1).i(2).t("/a").i(4).frame());
  EXPECT_EQ(requested([](auto& to) { append_exists(to, 2, "/a", true); }),
            bytes{}.i(2).i(3).t("/a").b(true).frame());
  EXPECT_EQ(requested([](auto& to) { append_get(to, 3, "/a", false); }),
            bytes{}.i(3).i(4).t("/a").b(false).frame());
  EXPECT_EQ(requested([](auto& to) { append_set(to, 4, "/a", "x"); }),
            bytes{}.i(4).i(5).t("/a").t("x").i(-1).frame());
  EXPECT_EQ(requested([](auto& to) { append_get_acl(to, 5, "/a"); }),
            bytes{}.i(5).i(6).t("/a").frame());
  EXPECT_EQ(requested([](auto& to) { append_sync(to, 6, "/a"); }),
            bytes{}.i(6).i(9).t("/a").frame());
  EXPECT_EQ(requested([](auto& to) { append_children(to, 7, "/a", true); }),
            bytes{}.i(7).i(12).t("/a").b(true).frame());
}

TEST(zookeeper_requests, create_carries_data_rights_and_mode) {
  EXPECT_EQ(requested([](auto& to) {
              append_create(to, 1, {.path = "/a", .data = "x", .mode = create_mode::ephemeral});
            }),
            bytes{}.i(1).i(15).t("/a").t("x").i(1).i(31).t("world").t("anyone").i(1).frame());
  EXPECT_EQ(requested([](auto& to) {
              append_create(
                  to, 1, {.path = "/a", .rights = creator_only(), .mode = create_mode::container});
            }),
            bytes{}.i(1).i(19).t("/a").t("").i(1).i(31).t("auth").t("").i(4).frame());
}

TEST(zookeeper_requests, those_of_the_connection_have_numbers_of_their_own) {
  EXPECT_EQ(requested([](auto& to) { append_ping(to); }), bytes{}.i(-2).i(11).frame());
  EXPECT_EQ(requested([](auto& to) { append_auth(to, "digest", "u:p"); }),
            bytes{}.i(-4).i(100).i(0).t("digest").t("u:p").frame());
  EXPECT_EQ(requested([](auto& to) { append_close(to, 9); }), bytes{}.i(9).i(-11).frame());
  EXPECT_EQ(requested([](auto& to) {
              append_set_watches(
                  to, {.since = 3, .data = {"/a", "/b"}, .existence = {}, .children = {"/c"}});
            }),
            bytes{}.i(-8).i(101).l(3).i(2).t("/a").t("/b").i(0).i(1).t("/c").frame());
}

TEST(zookeeper_requests, multi_is_its_parts_and_an_end) {
  EXPECT_EQ(requested([](auto& to) {
              multi{to, 1}.create({.path = "/a"}).erase("/b", 2).set("/c", "x", 3).check("/d");
            }),
            bytes{}
                .i(1)
                .i(14)
                .part(15, false, -1)
                .t("/a")
                .t("")
                .i(1)
                .i(31)
                .t("world")
                .t("anyone")
                .i(0)
                .part(2, false, -1)
                .t("/b")
                .i(2)
                .part(5, false, -1)
                .t("/c")
                .t("x")
                .i(3)
                .part(13, false, -1)
                .t("/d")
                .i(-1)
                .part(-1, true, -1)
                .frame());
}

TEST(zookeeper_requests, several_follow_each_other) {
  std::string both;
  append_get(both, 1, "/a", false);
  append_ping(both);
  std::string_view rest{both};
  EXPECT_EQ(next_frame(rest).value().xid, 1);
  take_frame(rest);
  EXPECT_EQ(next_frame(rest).value().xid, ping_xid);
  take_frame(rest);
  EXPECT_EQ(rest, "");
}

}  // namespace
}  // namespace holdfast::jute
