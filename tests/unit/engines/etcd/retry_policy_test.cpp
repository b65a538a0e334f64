// When the etcd engine asks again, and what it then believes; and what its addresses mean.
#include "engines/etcd/errors.hpp"
#include "engines/etcd/settings.hpp"

#include "support/expect.hpp"

#include <gtest/gtest.h>

namespace holdfast::engines::etcd {
namespace {

using namespace std::chrono_literals;
using step = retry_policy::step;
using testing::fails_with;
using testing::is_ok;

result<grpc::reply> status(grpc::status code, std::string message = {}) {
  grpc::reply out;
  out.status = code;
  out.message = std::move(message);
  return out;
}
result<grpc::reply> failure(errc code) { return error{code, "because"}; }

TEST(etcd_retry_policy, an_answer_is_an_answer) {
  retry_policy policy{3, true, true};
  EXPECT_EQ(policy.judge(fate_of(status(grpc::status::ok)), true), step::done);
  EXPECT_EQ(policy.judge(fate_of(status(grpc::status::permission_denied)), true), step::done);
}

TEST(etcd_errors, refusals_of_this_very_request_are_certain) {
  const auto certain = [](grpc::status code, std::string message = {}) {
    const auto why = status_error(*status(code, std::move(message)), "stock", "etcd://here");
    return about(why, "stock").is_not_done();
  };
  EXPECT_TRUE(certain(grpc::status::permission_denied));
  EXPECT_TRUE(certain(grpc::status::unauthenticated));
  EXPECT_TRUE(certain(grpc::status::invalid_argument, "etcdserver: request is too large"));
  EXPECT_TRUE(certain(grpc::status::resource_exhausted, "database space exceeded"));
  EXPECT_FALSE(certain(grpc::status::unavailable, "etcdserver: leader changed"));
  EXPECT_FALSE(certain(grpc::status::deadline_exceeded));
  EXPECT_FALSE(certain(grpc::status::internal, "anything")) << "not understood";
}

TEST(etcd_retry_policy, only_what_may_be_done_twice_is_asked_twice) {
  retry_policy repeatable{3, true, false}, once{3, false, false};
  EXPECT_EQ(repeatable.judge(fate_of(failure(errc::outcome_unknown)), true), step::again);
  EXPECT_EQ(once.judge(fate_of(failure(errc::outcome_unknown)), true), step::done);
  retry_policy once_more{3, false, false};
  EXPECT_EQ(once_more.judge(fate_of(failure(errc::unavailable)), true), step::again)
      << "it was not sent";
  EXPECT_EQ(once_more.judge(
                fate_of(status(grpc::status::unavailable, "etcdserver: leader changed")), true),
            step::done);
}

TEST(etcd_retry_policy, an_unknown_fate_is_not_forgotten) {
  retry_policy policy{2, true, false};
  EXPECT_EQ(policy.judge(fate_of(failure(errc::outcome_unknown)), true), step::again);
  EXPECT_EQ(policy.judge(fate_of(failure(errc::unavailable)), false), step::done);
  EXPECT_TRUE(policy.is_unsure());
  EXPECT_TRUE(fails_with(policy.conclude(failure(errc::unavailable)), errc::outcome_unknown));
}

TEST(etcd_retry_policy, a_dead_cluster_is_given_up_after_two_rounds) {
  retry_policy policy{3, true, false};
  for (int i = 0; i < 5; ++i)
    EXPECT_NE(policy.judge(fate_of(failure(errc::unavailable)), true), step::done) << i;
  EXPECT_EQ(policy.judge(fate_of(failure(errc::unavailable)), true), step::done);
  EXPECT_TRUE(fails_with(policy.conclude(failure(errc::unavailable)), errc::unavailable));
}

TEST(etcd_retry_policy, an_overloaded_cluster_is_given_time) {
  retry_policy policy{1, false, false};
  EXPECT_EQ(
      policy.judge(fate_of(status(grpc::status::unknown, "etcdserver: too many requests")), true),
      step::pause);
  EXPECT_FALSE(policy.is_unsure()) << "it was not done";
  EXPECT_EQ(
      policy.judge(fate_of(status(grpc::status::unknown, "etcdserver: too many requests")), false),
      step::done);
}

TEST(etcd_retry_policy, an_old_login_is_renewed_once) {
  retry_policy policy{1, false, true};
  const auto old = status(grpc::status::unauthenticated, "etcdserver: invalid auth token");
  EXPECT_EQ(policy.judge(fate_of(old), true), step::login);
  EXPECT_EQ(policy.judge(fate_of(old), true), step::done);
  retry_policy nobody{1, false, false};
  EXPECT_EQ(nobody.judge(fate_of(old), true), step::done);
}

TEST(etcd_retry_policy, one_of_several_members_gets_a_second_and_then_more) {
  const steady_time now{1h};
  retry_policy several{3, true, false}, alone{1, true, false};
  EXPECT_EQ(several.until(now, now + 5s), now + 1s);
  EXPECT_EQ(several.until(now, now + 500ms), now + 500ms);
  EXPECT_EQ(alone.until(now, now + 5s), now + 5s);
  static_cast<void>(several.judge(fate_of(failure(errc::outcome_unknown)), true));
  EXPECT_EQ(several.until(now, now + 5s), now + 2s);
}

// ---- addresses

result<settings> read_url(std::string_view text) {
  auto url = store_url::parse(text);
  if (!url) return std::move(url).error();
  return read_settings(*url);
}

TEST(etcd_settings, members_and_prefix_come_from_the_address) {
  const auto got = read_url("etcd://a,b:1,[::1]:2/locks/x/?session=4s");
  ASSERT_TRUE(is_ok(got));
  ASSERT_EQ(got->where.size(), 3U);
  EXPECT_EQ(got->names, (std::vector<std::string>{"a:2379", "b:1", "[::1]:2"}));
  EXPECT_EQ(got->root, "locks/x/");
  EXPECT_EQ(got->session, 4s);
  EXPECT_FALSE(got->where[0].use_tls);
  EXPECT_EQ(read_url("etcd://a")->root, "");
  EXPECT_EQ(read_url("etcd://a/")->root, "");
  EXPECT_EQ(read_url("etcd://a")->session, 10s);
  EXPECT_EQ(read_url("etcd://a//locks")->root, "/locks/") << "keys that begin with a slash";
}

TEST(etcd_settings, tls_is_etcds) {
  const auto got = read_url("etcds://a,b?ca_file=/ca&cert_file=/c&key_file=/k");
  ASSERT_TRUE(is_ok(got));
  EXPECT_TRUE(got->where[1].use_tls);
  EXPECT_EQ(got->where[1].tls.server_name, "b");
  EXPECT_EQ(got->where[1].tls.ca_file, "/ca");
  EXPECT_TRUE(fails_with(read_url("etcd://a?ca_file=/ca"), errc::misconfigured));
}

TEST(etcd_settings, wrong_addresses_are_refused) {
  for (const auto* wrong : {"etcd:", "etcd:///p", "etcd://a?session=0s", "etcd://a?session=1500ms",
                            "etcd://a?session=2h", "etcd://a?prefix=x", "etcd://user@a",
                            "etcd://:secret@a", "etcd://a////"})
    EXPECT_TRUE(fails_with(read_url(wrong), errc::misconfigured)) << wrong;
}

}  // namespace
}  // namespace holdfast::engines::etcd
