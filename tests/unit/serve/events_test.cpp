#include "server/events.hpp"

#include "support/temp_dir.hpp"
#include "unit/serve/fakes.hpp"

#include <holdfast/lease.hpp>
#include <holdfast/mutex.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace holdfast::server {
namespace {

using namespace std::chrono_literals;
using testing::fake_exchange;
using texts = std::vector<std::string>;

class serve_events : public ::testing::Test {
 protected:
  std::shared_ptr<fake_exchange> watch(const std::string& key_prefix = {},
                                       const std::string& prefix = {}) {
    auto out = std::make_shared<fake_exchange>("GET", "/v1/events");
    hub.watch(out, key_prefix, prefix, bounds.watcher());
    loop.run();  // the first look at the store
    return out;
  }
  void publish(event_kind what, const std::string& name, const std::string& label = {}) {
    hub.publish({.what = what, .name = name, .label = label});
  }

  testing::temp_dir folder;
  testing::fake_loop loop;
  client store = client::open("file:" + folder.file("store"));
  limits bounds{{.leases = 1, .waiters = 1, .watchers = 3}};
  limits many{{.leases = 1, .waiters = 1, .watchers = 100}};
  event_hub hub{loop, store, "here"};
};

TEST_F(serve_events, a_reader_is_greeted_and_hears_what_concerns_its_names) {
  const auto all = watch(), some = watch("", "team/"), narrow = watch("team/", "team/a");
  publish(event_kind::granted, "team/a");
  publish(event_kind::queued, "team/b");
  publish(event_kind::lost, "other");
  EXPECT_EQ(all->events->names(), (texts{"hello", "granted", "queued", "lost"}));
  EXPECT_EQ(some->events->names(), (texts{"hello", "granted", "queued"}));
  EXPECT_EQ(narrow->events->names(), (texts{"hello", "granted"}));
}

TEST_F(serve_events, an_event_is_one_line_of_json_whatever_the_label_is) {
  const auto reader = watch();
  hub.publish({.what = event_kind::broken,
               .name = "a",
               .token = 7,
               .label = "x\n\nevent: forged\ndata: {}",
               .pid = 3,
               .why = "\r\n"});
  const auto& text = reader->events->seen.at(1).second;
  EXPECT_EQ(text.find_first_of("\r\n"), std::string::npos);
  const auto read = nlohmann::json::parse(text);
  EXPECT_EQ(read["event"], "broken");
  EXPECT_EQ(read["token"], 7);
  EXPECT_EQ(read["host"], "here");
  EXPECT_EQ(read["label"], "x\n\nevent: forged\ndata: {}");
  EXPECT_GT(read["at_ms"].get<std::int64_t>(), 1'600'000'000'000);
}

TEST_F(serve_events, a_reader_that_is_too_slow_is_dropped_and_the_others_stay) {
  const auto slow = watch(), other = watch();
  slow->events->room = 1;
  publish(event_kind::granted, "a");
  publish(event_kind::released, "a");
  publish(event_kind::granted, "a");
  EXPECT_EQ(slow->events->names(), (texts{"hello", "granted", "dropped"}));
  EXPECT_TRUE(slow->events->is_finished);
  EXPECT_EQ(other->events->seen.size(), 4U);
  EXPECT_EQ(hub.readers(), 1U);
  EXPECT_EQ(bounds.watchers(), 1U);
}

TEST_F(serve_events, a_reader_that_goes_leaves_its_place) {
  const auto reader = watch();
  EXPECT_EQ(bounds.watchers(), 1U);
  reader->leave();
  loop.run();
  EXPECT_EQ(hub.readers(), 0U);
  EXPECT_EQ(bounds.watchers(), 0U);
  publish(event_kind::granted, "a");
  EXPECT_EQ(reader->events->names(), texts{"hello"});
}

TEST_F(serve_events, all_streams_end_with_the_service) {
  const auto reader = watch();
  hub.stop();
  EXPECT_TRUE(reader->events->is_finished);
  EXPECT_EQ(loop.timers(), 0U);
}

// ---- the history of a name

TEST_F(serve_events, history_is_kept_whether_anybody_reads_or_not) {
  publish(event_kind::granted, "a", "first");
  publish(event_kind::released, "a", "first");
  publish(event_kind::granted, "b");
  const auto read = nlohmann::json::parse(hub.history("a"));
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[0]["event"], "granted");
  EXPECT_EQ(read[1]["event"], "released");
  EXPECT_EQ(hub.history("none"), "[]");
}

TEST_F(serve_events, history_is_bounded_in_events_and_in_names) {
  for (int i = 0; i < 200; ++i) publish(event_kind::granted, "a", std::to_string(i));
  const auto last = nlohmann::json::parse(hub.history("a"));
  EXPECT_EQ(last.size(), 64U);
  EXPECT_EQ(last.back()["label"], "199");
  for (int i = 0; i < 4096; ++i) publish(event_kind::granted, "name " + std::to_string(i));
  EXPECT_EQ(hub.history("a"), "[]");
  EXPECT_NE(hub.history("name 4095"), "[]");
}

// ---- what other clients of the store do

TEST_F(serve_events, others_are_seen_by_looking_while_somebody_reads) {
  const auto reader = watch();
  loop.advance(500ms);
  EXPECT_EQ(reader->events->names(), texts{"hello"});
  auto other = client::open("file:" + folder.file("store"));
  mutex lock{other, "x"};
  auto held = lock.acquire({.label = "theirs"}).value();
  loop.advance(500ms);
  ASSERT_EQ(reader->events->names(), (texts{"hello", "granted"}));
  EXPECT_EQ(nlohmann::json::parse(reader->events->seen[1].second)["label"], "theirs");
  loop.advance(500ms);
  EXPECT_EQ(reader->events->seen.size(), 2U);
  held.release().value();
  loop.advance(500ms);
  EXPECT_EQ(reader->events->names(), (texts{"hello", "granted", "released"}));
}

TEST_F(serve_events, what_was_there_before_is_no_event) {
  auto other = client::open("file:" + folder.file("store"));
  mutex lock{other, "x"};
  const auto held = lock.acquire().value();
  const auto reader = watch();
  loop.advance(500ms);
  loop.advance(500ms);
  EXPECT_EQ(reader->events->names(), texts{"hello"});
}

TEST_F(serve_events, what_the_service_holds_itself_is_not_told_twice) {
  const auto reader = watch();
  loop.advance(500ms);
  mutex lock{store, "x"};
  const auto held = lock.acquire({.own_token = true}).value();
  hub.own_client = [&] { return held.owner().client; };
  loop.advance(500ms);
  EXPECT_EQ(reader->events->names(), texts{"hello"});
}

TEST_F(serve_events, nobody_looks_when_nobody_reads) {
  const auto reader = watch();
  reader->leave();
  loop.run();
  loop.advance(500ms);
  EXPECT_EQ(loop.timers(), 0U);
  const auto next = watch();
  EXPECT_EQ(loop.timers(), 1U);
}

TEST_F(serve_events, go_to_a_great_many_readers_in_one_piece_and_in_order) {
  std::vector<std::shared_ptr<fake_exchange>> readers;
  for (int i = 0; i < 70; ++i) {
    readers.push_back(std::make_shared<fake_exchange>("GET", "/v1/events"));
    hub.watch(readers.back(), {}, i % 2 == 0 ? "" : "team/", many.watcher());
  }
  loop.run();
  readers[3]->events->room = 1;
  publish(event_kind::granted, "team/a");
  publish(event_kind::queued, "other");
  publish(event_kind::released, "team/a");
  EXPECT_EQ(readers[0]->events->names(), (texts{"hello"})) << "before the loop has a moment for it";
  loop.advance(0s);
  EXPECT_EQ(readers[0]->events->names(), (texts{"hello", "granted", "queued", "released"}));
  EXPECT_EQ(readers[1]->events->names(), (texts{"hello", "granted", "released"}));
  EXPECT_EQ(readers[3]->events->names().back(), "dropped");
  EXPECT_EQ(hub.readers(), 69U);

  for (int i = 0; i < 200; ++i) publish(event_kind::granted, "team/b");
  EXPECT_GT(readers[1]->events->seen.size(), 50U) << "no more than a reader may leave unread";
}

}  // namespace
}  // namespace holdfast::server
