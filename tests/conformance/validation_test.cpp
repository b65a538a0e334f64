// What is refused, the same on every store.
#include "conformance/conformance.hpp"

#include "support/names.hpp"
#include "support/text.hpp"

#include <algorithm>

namespace holdfast::testing {
namespace {

class validation : public conformance {};
FOR_EVERY_ENGINE(validation);

TEST_P(validation, bad_names_are_refused_by_everything_that_takes_a_name) {
  const auto a = open();
  for (const auto& bad : bad_names()) {
    const auto shown = support::quoted(bad);
    EXPECT_EQ(thrown_by([&] { mutex(a, bad); }), errc::misconfigured) << shown;
    EXPECT_EQ(thrown_by([&] { recursive_mutex(a, bad); }), errc::misconfigured) << shown;
    if (caps().listing) {
      EXPECT_TRUE(fails_with(a.inspect(bad), errc::misconfigured)) << shown;
      EXPECT_TRUE(fails_with(a.revoke(bad), errc::misconfigured)) << shown;
    }
    if (caps().shared) {
      EXPECT_EQ(thrown_by([&] { shared_mutex(a, bad); }), errc::misconfigured) << shown;
    }
    if (caps().permits) {
      EXPECT_EQ(thrown_by([&] { counting_semaphore(a, bad, 1); }), errc::misconfigured) << shown;
    }
    if (caps().counters) {
      EXPECT_EQ(thrown_by([&] { latch(a, bad, 1); }), errc::misconfigured) << shown;
      EXPECT_EQ(thrown_by([&] { barrier(a, bad, 1); }), errc::misconfigured) << shown;
    }
  }
}

TEST_P(validation, store_that_cannot_list_its_latches_says_so) {
  const auto found = open().latches();
  if (caps().counters && caps().listing) {
    EXPECT_TRUE(is_ok(found));
  } else {
    EXPECT_TRUE(fails_with(found, errc::unsupported));
  }
}

TEST_P(validation, good_names_are_all_different_locks) {
  const auto a = open();
  std::vector<lease> held;
  std::vector<std::string> names;
  for (const auto& good : good_names()) {
    // As they are: a prefix would make some of them harmless. The longest has no room for one, either.
    mutex lock{a, good};
    auto got = lock.acquire({.wait = 5s});
    ASSERT_TRUE(is_ok(got)) << support::quoted(good);
    EXPECT_EQ(got->name(), good);
    names.push_back(good);
    held.push_back(std::move(*got));
  }
  const auto b = open();
  for (const auto& good : names) {
    EXPECT_TRUE(fails_with(mutex(b, good).try_acquire(), errc::busy)) << support::quoted(good);
  }
  if (!caps().listing) return;
  std::vector<std::string> listed;
  const auto all = b.list().value();
  for (const auto& one : all) listed.push_back(one.name);
  std::ranges::sort(names);
  for (const auto& good : names) {
    EXPECT_EQ(std::ranges::count(listed, good), 1) << support::quoted(good);
  }
}

TEST_P(validation, wrong_options_are_refused) {
  const auto a = open();
  mutex lock{a, name()};
  const std::vector<std::pair<const char*, acquire_options>> wrong{
      {"zero ttl", {.ttl = 0s}},
      {"negative ttl", {.ttl = -1s}},
      {"endless ttl", {.ttl = nanoseconds::max()}},
      {"ttl beyond the store's", {.ttl = caps().max_ttl + 1s}},
      {"ttl below the store's", {.ttl = caps().min_ttl - 1ns}},
      {"negative wait", {.wait = -1ns}},
      {"most negative wait", {.wait = nanoseconds::min()}},
      {"negative max_hold", {.max_hold = -1s}},
      {"long label", {.label = std::string(65, 'x')}},
      {"label with a control character", {.label = "a\x1b[2J"}},
      {"label with a newline", {.label = "a\nb"}},
      {"label that is no UTF-8", {.label = "\xff"}},
  };
  for (const auto& [what, options] : wrong) {
    EXPECT_TRUE(fails_with(lock.acquire(options), errc::misconfigured)) << what;
    EXPECT_EQ(thrown_by([&, &made = options] { mutex(a, name(), made); }), errc::misconfigured)
        << what;
  }
  EXPECT_TRUE(is_ok(lock.acquire({.ttl = caps().max_ttl, .label = std::string(64, 'x')})));
}

TEST_P(validation, wrong_client_options_are_refused) {
  const std::vector<std::pair<const char*, client_options>> wrong{
      {"zero ttl", {.ttl = 0s}},
      {"negative ttl", {.ttl = -1s}},
      {"endless ttl", {.ttl = nanoseconds::max()}},
      {"zero call_timeout", {.call_timeout = 0s}},
      {"negative call_timeout", {.call_timeout = -1s}},
      {"negative handoff_time", {.handoff_time = -1s}},
  };
  for (const auto& [what, options] : wrong) {
    EXPECT_TRUE(fails_with(client::try_open(url(), options), errc::misconfigured)) << what;
  }
}

TEST_P(validation, unknown_url_options_are_refused) {
  const auto joint = url().find('?') == std::string::npos ? '?' : '&';
  EXPECT_TRUE(
      fails_with(client::try_open(url() + joint + "no-such-option=1"), errc::misconfigured));
}

TEST(validation_of_stores, unknown_schemes_and_bad_addresses_are_told_apart) {
  EXPECT_TRUE(fails_with(client::try_open("nosuch://host"), errc::unsupported));
  EXPECT_TRUE(fails_with(client::try_open(""), errc::misconfigured));
  EXPECT_TRUE(fails_with(client::try_open("not an address"), errc::misconfigured));
  const auto hidden = client::try_open("nosuch://u:CANARY@host");
  ASSERT_FALSE(hidden);
  EXPECT_EQ(hidden.error().message().find("CANARY"), std::string::npos);
  EXPECT_TRUE(std::ranges::is_sorted(known_schemes()));
  EXPECT_TRUE(is_ok(store_url::parse(default_store())));
}

}  // namespace
}  // namespace holdfast::testing
