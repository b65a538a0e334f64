// `holdfast serve` for programs that take locks with requests of their own: every route below /v1 that gives a lease,
// and what is done with one.
#include "e2e/serve_cli.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace {

using e2e::header_in;
using e2e::http_line;
using e2e::json_in;
using e2e::said;
using serve_locks = e2e::serve_plain;
using nlohmann::json;
using namespace std::chrono_literals;

using held_and_waiting = std::pair<std::size_t, std::size_t>;

// ---- one lock

TEST_F(serve_locks, is_taken_shown_renewed_and_given_back) {
  const auto got = json_in(acquire("stock/42", R"({"ttl":"30s","label":"me"})"));
  const auto id = got["lease"].get<std::string>();
  EXPECT_EQ(id.size(), 32U);
  EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(got["name"], "stock/42");
  EXPECT_EQ(got["mode"], "exclusive");
  EXPECT_EQ(got["token_text"], std::to_string(got["token"].get<std::uint64_t>()));
  EXPECT_EQ(got["ttl_ms"], 30'000);
  EXPECT_GT(got["valid_ms"], 0);
  EXPECT_LE(got["valid_ms"], 30'000);
  const auto shown = json_in(lease(id));
  EXPECT_EQ(shown["name"], "stock/42");
  EXPECT_EQ(shown["label"], "me");
  EXPECT_EQ(shown["token"], got["token"]);
  EXPECT_EQ(box.holders_and_waiters("stock/42"), held_and_waiting(1, 0));
  const auto shorter = ask("POST", "/v1/leases/" + id + ":renew", R"({"ttl":"20s"})");
  EXPECT_EQ(shorter.status, 200);
  EXPECT_EQ(shorter.number("ttl_ms"), 20'000U);
  EXPECT_LE(shorter.number("valid_ms"), 20'000U);
  EXPECT_EQ(release(id).status, 204);
  EXPECT_TRUE(is_free("stock/42"));
  const auto next = json_in(acquire("stock/42"));
  EXPECT_GT(next["token"], got["token"]);
  EXPECT_NE(next["lease"], id);
}

TEST_F(serve_locks, a_release_may_be_repeated_and_the_rest_hears_that_it_is_over) {
  const auto id = acquire("a").text("lease");
  EXPECT_EQ(release(id).status, 204);
  EXPECT_EQ(release(id).status, 204);
  EXPECT_EQ(lease(id).status, 404);
  const auto late = renew(id);
  EXPECT_EQ(late.status, 404);
  EXPECT_EQ(late.text("code"), "not_held");
}

TEST_F(serve_locks, a_guessed_lease_is_none) {
  const auto id = acquire("a").text("lease");
  auto guess = id;
  guess.back() = guess.back() == '0' ? '1' : '0';
  for (const auto& each : {guess, std::string(32, '0'), id + "0", id.substr(1), std::string{"a"}}) {
    EXPECT_EQ(lease(each).status, 404) << each;
    EXPECT_EQ(renew(each).status, 404) << each;
    EXPECT_EQ(release(each).status, 404) << each;
  }
  EXPECT_EQ(counts("a"), held_and_waiting(1, 0));
}

TEST_F(serve_locks, busy_names_the_holder_and_does_not_wait) {
  const auto got = acquire("a", R"({"ttl":"60s","label":"night job"})");
  const auto busy = acquire("a");
  EXPECT_EQ(busy.status, 409);
  EXPECT_EQ(header_in(busy, "Content-Type"), "application/problem+json");
  const auto why = json_in(busy);
  EXPECT_EQ(why["code"], "busy");
  EXPECT_EQ(why["done"], false);
  ASSERT_EQ(why["holders"].size(), 1U);
  EXPECT_EQ(why["holders"][0]["label"], "night job");
  EXPECT_EQ(why["holders"][0]["token"], got.number("token"));
}

TEST_F(serve_locks, a_lease_that_nobody_renews_ends_with_its_ttl) {
  const auto id = acquire("a", R"({"ttl":"1s"})").text("lease");
  EXPECT_TRUE(e2e::eventually([&] { return lease(id).status == 410; }));
  EXPECT_EQ(json_in(renew(id))["code"], "lost");
  EXPECT_EQ(release(id).status, 410);
  EXPECT_TRUE(is_free("a"));
}

TEST_F(serve_locks, a_lease_that_is_renewed_outlives_its_ttl) {
  const auto id = acquire("a", R"({"ttl":"1s"})").text("lease");
  const auto end = std::chrono::steady_clock::now() + 2500ms;
  auto kept = line();
  while (std::chrono::steady_clock::now() < end) ASSERT_EQ(kept.renew(id).status, 200);
  EXPECT_EQ(lease(id).status, 200);
}

// ---- waiting

TEST_F(serve_locks, a_waiter_is_served_by_the_release) {
  const auto first = acquire("a");
  auto waiter = waiting("a", R"({"ttl":"60s","wait":"10m"})");
  ASSERT_TRUE(has_waiters("a", 1));
  EXPECT_EQ(waiting_now(), 1U);
  release(first.text("lease"));
  const auto got = waiter.hear();
  EXPECT_EQ(got.status, 200);
  EXPECT_GT(got.number("token"), first.number("token"));
  EXPECT_EQ(waiting_now(), 0U);
}

TEST_F(serve_locks, waiters_are_served_in_the_order_in_which_they_came) {
  auto held = acquire("a").text("lease");
  std::vector<http_line> queue;
  for (std::size_t i = 0; i < 4; ++i) {
    queue.push_back(waiting("a", R"({"ttl":"60s","wait":"10m"})"));
    ASSERT_TRUE(has_waiters("a", i + 1));
  }
  for (auto& each : queue) {
    release(held);
    const auto got = each.hear();
    ASSERT_EQ(got.status, 200);
    held = got.text("lease");
  }
}

TEST_F(serve_locks, who_does_not_get_it_in_time_hears_408_and_leaves_no_trace) {
  acquire("a");
  const auto late = acquire("a", R"({"wait":"100ms"})");
  EXPECT_EQ(late.status, 408);
  EXPECT_EQ(late.text("code"), "timed_out");
  EXPECT_EQ(json_in(late)["done"], false);
  EXPECT_EQ(counts("a"), held_and_waiting(1, 0));
}

TEST_F(serve_locks, a_waiter_that_goes_away_leaves_no_trace) {
  const auto held = acquire("a").text("lease");
  for (const bool by_reset : {false, true}) {
    auto waiter = waiting("a", R"({"ttl":"60s","wait":"10m"})");
    ASSERT_TRUE(has_waiters("a", 1));
    if (by_reset)
      waiter.reset();
    else
      waiter.drop();
    ASSERT_TRUE(has_waiters("a", 0));
    EXPECT_TRUE(e2e::eventually([&] { return waiting_now() == 0; }));
    EXPECT_TRUE(json_in(ask("GET", "/v1/waits"))["waits"].empty());
    // The store itself, asked without the service.
    const auto shown = json_in(box.run({"show", "a", "--json", "--store", running().store()}).out);
    EXPECT_EQ(shown["holders"].size(), 1U) << shown;
    EXPECT_TRUE(shown["waiters"].empty()) << shown;
  }
  release(held);
  EXPECT_TRUE(is_free("a"));
  EXPECT_EQ(acquire("a").status, 200);
}

TEST_F(serve_locks, behind_a_waiter_that_went_away_the_next_is_served) {
  const auto held = acquire("a").text("lease");
  auto gone = waiting("a", R"({"ttl":"60s","wait":"10m"})");
  ASSERT_TRUE(has_waiters("a", 1));
  auto next = waiting("a", R"({"ttl":"60s","wait":"10m"})");
  ASSERT_TRUE(has_waiters("a", 2));
  gone.drop();
  ASSERT_TRUE(has_waiters("a", 1));
  release(held);
  EXPECT_EQ(next.hear().status, 200);
}

TEST_F(serve_locks, a_higher_priority_is_served_first_and_shown_first) {
  const auto held = acquire("a").text("lease");
  std::vector<http_line> usual;
  for (std::size_t i = 0; i < 2; ++i) {
    usual.push_back(waiting("a", R"({"ttl":"60s","wait":"10m","label":"usual"})"));
    ASSERT_TRUE(has_waiters("a", i + 1));
  }
  auto urgent = waiting("a", R"({"ttl":"60s","wait":"10m","priority":5,"label":"urgent"})");
  ASSERT_TRUE(has_waiters("a", 3));
  EXPECT_EQ(json_in(ask("GET", "/v1/locks/a"))["waiters"][0]["label"], "urgent");
  release(held);
  const auto first = urgent.hear();
  ASSERT_EQ(first.status, 200);
  EXPECT_EQ(counts("a"), held_and_waiting(1, 2));
  release(first.text("lease"));
  const auto second = usual[0].hear();
  ASSERT_EQ(second.status, 200);
  release(second.text("lease"));
  EXPECT_EQ(usual[1].hear().status, 200);
}

// ---- the same request again

TEST_F(serve_locks, the_same_request_id_gives_the_same_grant) {
  const std::string body = R"({"ttl":"60s","request_id":"order-7"})";
  const auto first = acquire("a", body);
  ASSERT_EQ(first.status, 200);
  for (int i = 0; i < 3; ++i) {
    const auto again = acquire("a", body);
    EXPECT_EQ(again.status, 200);
    EXPECT_EQ(again.text("lease"), first.text("lease"));
    EXPECT_EQ(again.number("token"), first.number("token"));
  }
  EXPECT_EQ(counts("a"), held_and_waiting(1, 0));
  EXPECT_EQ(json_in(ask("GET", "/v1/stats"))["leases"], 1);
}

TEST_F(serve_locks, a_request_id_is_for_one_question) {
  acquire("a", R"({"ttl":"60s","request_id":"x"})");
  for (const auto& [name, body] : std::vector<std::pair<const char*, const char*>>{
           {"a", R"({"ttl":"59s","request_id":"x"})"},
           {"b", R"({"ttl":"60s","request_id":"x"})"}}) {
    const auto other = acquire(name, body);
    EXPECT_EQ(other.status, 409) << name;
    EXPECT_EQ(other.text("code"), "conflict");
  }
  EXPECT_EQ(counts("b"), held_and_waiting(0, 0));
}

// It may be the first request, which a proxy has kept back: the lock would be taken for nobody.
TEST_F(serve_locks, a_request_id_whose_lease_has_ended_takes_nothing) {
  const std::string body = R"({"ttl":"60s","request_id":"x"})";
  release(acquire("a", body).text("lease"));
  const auto late = acquire("a", body);
  EXPECT_EQ(late.status, 409);
  EXPECT_EQ(late.text("code"), "conflict");
  EXPECT_TRUE(is_free("a"));
}

// A proxy that has lost its patience asks again while the first request still waits.
TEST_F(serve_locks, two_requests_with_one_id_wait_as_one) {
  const auto held = acquire("a").text("lease");
  const std::string body = R"({"ttl":"60s","wait":"10m","request_id":"x"})";
  auto first = waiting("a", body), second = waiting("a", body);
  auto plain = waiting("a", R"({"ttl":"60s","wait":"10m"})");
  ASSERT_TRUE(has_waiters("a", 2));
  release(held);
  const auto one = first.hear(), other = second.hear();
  ASSERT_EQ(one.status, 200);
  EXPECT_EQ(other.status, 200);
  EXPECT_EQ(other.text("lease"), one.text("lease"));
  EXPECT_EQ(other.number("token"), one.number("token"));
  EXPECT_EQ(counts("a"), held_and_waiting(1, 1));
  release(one.text("lease"));
  EXPECT_EQ(plain.hear().status, 200);
}

TEST_F(serve_locks, a_repeated_request_waits_on_when_the_first_is_cut) {
  const auto held = acquire("a").text("lease");
  const std::string body = R"({"ttl":"60s","wait":"10m","request_id":"x"})";
  auto first = waiting("a", body);
  ASSERT_TRUE(has_waiters("a", 1));
  auto second = waiting("a", body);
  const auto connections = [&] {
    return json_in(ask("GET", "/v1/stats"))["connections"].get<int>();
  };
  ASSERT_TRUE(e2e::eventually([&] { return connections() >= 3; }));
  first.drop();
  EXPECT_EQ(counts("a"), held_and_waiting(1, 1));
  release(held);
  EXPECT_EQ(second.hear().status, 200);
}

// ---- several

TEST_F(serve_locks, several_are_taken_all_or_none) {
  const auto all = json_in(ask("POST", "/v1/locks:acquire", R"({"names":["b","a"],"ttl":"60s"})"));
  ASSERT_EQ(all["leases"].size(), 2U);
  EXPECT_EQ(counts("a"), held_and_waiting(1, 0));
  EXPECT_EQ(counts("b"), held_and_waiting(1, 0));
  const auto busy = ask("POST", "/v1/locks:acquire", R"({"names":["c","b"],"ttl":"60s"})");
  EXPECT_EQ(busy.status, 409);
  EXPECT_EQ(counts("c"), held_and_waiting(0, 0));
  const auto late =
      ask("POST", "/v1/locks:acquire", R"({"names":["c","b"],"ttl":"60s","wait":"100ms"})");
  EXPECT_EQ(late.status, 408);
  EXPECT_EQ(counts("c"), held_and_waiting(0, 0));
  EXPECT_EQ(counts("b"), held_and_waiting(1, 0));
}

TEST_F(serve_locks, several_are_waited_for_together) {
  const auto held = acquire("b").text("lease");
  auto both = line();
  both.send(e2e::http_request("POST", "/v1/locks:acquire",
                              R"({"names":["a","b"],"ttl":"60s","wait":"10m"})"));
  ASSERT_TRUE(e2e::eventually([&] { return waiting_now() == 1; }));
  release(held);
  const auto got = both.hear();
  EXPECT_EQ(got.status, 200);
  for (const auto& each : json_in(got)["leases"])
    EXPECT_EQ(release(each["lease"].get<std::string>()).status, 204);
}

TEST_F(serve_locks, several_that_are_waited_for_and_given_up_leave_no_trace) {
  const auto held = acquire("b").text("lease");
  auto both = line();
  both.send(e2e::http_request("POST", "/v1/locks:acquire",
                              R"({"names":["a","b"],"ttl":"60s","wait":"10m"})"));
  ASSERT_TRUE(e2e::eventually([&] { return waiting_now() == 1; }));
  both.drop();
  EXPECT_TRUE(e2e::eventually([&] { return waiting_now() == 0; }));
  EXPECT_TRUE(is_free("a"));
  release(held);
  EXPECT_TRUE(is_free("b"));
}

// ---- modes, permits, latches, elections

TEST_F(serve_locks, readers_share_and_a_writer_waits_for_all_of_them) {
  const auto read = R"({"ttl":"60s","mode":"shared"})";
  const auto one = acquire("a", read), other = acquire("a", read);
  EXPECT_EQ(one.status, 200);
  EXPECT_EQ(other.status, 200);
  EXPECT_NE(one.text("lease"), other.text("lease"));
  EXPECT_EQ(acquire("a").status, 409);
  auto writer = waiting("a", R"({"ttl":"60s","wait":"10m"})");
  ASSERT_TRUE(has_waiters("a", 1));
  release(one.text("lease"));
  EXPECT_EQ(counts("a"), held_and_waiting(1, 1));
  release(other.text("lease"));
  EXPECT_EQ(writer.hear().status, 200);
}

TEST_F(serve_locks, a_lease_changes_its_mode_and_keeps_its_id) {
  const auto id = acquire("a").text("lease");
  const auto down = ask("POST", "/v1/leases/" + id + ":downgrade", R"({"mode":"upgradeable"})");
  EXPECT_EQ(down.status, 200);
  EXPECT_EQ(down.text("mode"), "upgradeable");
  const auto reader = acquire("a", R"({"ttl":"60s","mode":"shared"})");
  EXPECT_EQ(reader.status, 200);
  EXPECT_EQ(ask("POST", "/v1/leases/" + id + ":upgrade", "{}").status, 409);
  auto upgrade = line();
  upgrade.send(e2e::http_request("POST", "/v1/leases/" + id + ":upgrade", R"({"wait":"10m"})"));
  ASSERT_TRUE(e2e::eventually([&] { return waiting_now() == 1; }));
  release(reader.text("lease"));
  const auto up = upgrade.hear();
  EXPECT_EQ(up.status, 200);
  EXPECT_EQ(up.text("mode"), "exclusive");
  EXPECT_EQ(renew(id).status, 200);
  EXPECT_EQ(release(id).status, 204);
  EXPECT_TRUE(is_free("a"));
}

TEST_F(serve_locks, permits_are_given_as_far_as_they_go) {
  const auto take = [&](int permits) {
    return ask("POST", "/v1/semaphores/pool:acquire",
               fmt::format(R"({{"permits":{},"of":3,"ttl":"60s"}})", permits));
  };
  const auto two = take(2);
  EXPECT_EQ(two.number("permits"), 2U);
  EXPECT_EQ(take(2).status, 409);
  EXPECT_EQ(take(1).status, 200);
  EXPECT_EQ(take(1).status, 409);
  release(two.text("lease"));
  EXPECT_EQ(take(2).status, 200);
}

TEST_F(serve_locks, a_latch_opens_for_all_who_wait) {
  EXPECT_EQ(ask("GET", "/v1/latches/gate").status, 404);
  EXPECT_EQ(ask("POST", "/v1/latches/gate", R"({"count":2})").number("left"), 2U);
  std::vector<http_line> all;
  for (int i = 0; i < 3; ++i) {
    all.push_back(line());
    all.back().send(e2e::http_request("POST", "/v1/latches/gate:wait", R"({"wait":"10m"})"));
  }
  auto impatient = line();
  impatient.send(e2e::http_request("POST", "/v1/latches/gate:wait", R"({"wait":"10m"})"));
  ASSERT_TRUE(e2e::eventually([&] { return waiting_now() == 4; }));
  impatient.drop();
  ASSERT_TRUE(e2e::eventually([&] { return waiting_now() == 3; }));
  EXPECT_EQ(ask("POST", "/v1/latches/gate:down", "{}").number("left"), 1U);
  EXPECT_EQ(ask("POST", "/v1/latches/gate:wait", R"({"wait":"50ms"})").status, 408);
  EXPECT_EQ(ask("POST", "/v1/latches/gate:down", "{}").number("left"), 0U);
  for (auto& each : all) EXPECT_EQ(each.hear().status, 200);
  EXPECT_EQ(json_in(ask("GET", "/v1/latches/gate"))["open"], true);
  EXPECT_EQ(ask("DELETE", "/v1/latches/gate").status, 204);
}

TEST_F(serve_locks, a_leader_is_seen_and_a_change_of_leader_is_waited_for) {
  EXPECT_TRUE(json_in(ask("GET", "/v1/elections/boss"))["leader"].is_null());
  const auto first =
      ask("POST", "/v1/elections/boss:campaign", R"({"ttl":"60s","value":"10.0.0.1"})");
  const auto leader = json_in(ask("GET", "/v1/elections/boss"))["leader"];
  EXPECT_EQ(leader["value"], "10.0.0.1");
  EXPECT_EQ(leader["term"], first.number("token"));
  auto next = line(), observer = line();
  next.send(e2e::http_request("POST", "/v1/elections/boss:campaign",
                              R"({"ttl":"60s","value":"10.0.0.2","wait":"10m"})"));
  observer.send(e2e::http_request(
      "GET", fmt::format("/v1/elections/boss?seen={}&wait=10m", first.number("token"))));
  ASSERT_TRUE(e2e::eventually([&] { return waiting_now() == 2; }));
  release(first.text("lease"));
  const auto term = next.hear();
  EXPECT_EQ(term.status, 200);
  auto seen = json_in(observer.hear());
  // The seat may have been seen empty in between.
  if (seen["leader"].is_null()) seen = json_in(ask("GET", "/v1/elections/boss?seen=0&wait=10m"));
  EXPECT_EQ(seen["leader"]["value"], "10.0.0.2");
  EXPECT_EQ(seen["leader"]["term"], term.number("token"));
}

// ---- for shells

TEST_F(serve_locks, shells_take_and_give_back_with_curl) {
  box.set("URL", running().url());
  const auto curl = [&](const std::string& words) {
    return box.shell("curl -sS -w '%{http_code}' -X POST " + words);
  };
  const auto got = box.shell(
      "set -e; got=$(curl -fsS -X POST \"$URL/lock?name=job&ttl=60s&label=backup\"); "
      "echo \"$got\" | wc -l; lease=$(echo \"$got\" | head -n 1); echo \"$lease\" > lease");
  EXPECT_EQ(got.code, 0) << got.err;
  EXPECT_EQ(got.out, "2\n");
  EXPECT_EQ(counts("job"), held_and_waiting(1, 0));
  const auto busy = curl("\"$URL/lock?name=job\"");
  EXPECT_TRUE(busy.out.starts_with("busy: ")) << busy.out;
  EXPECT_TRUE(busy.out.ends_with("\n409")) << busy.out;
  EXPECT_TRUE(curl("\"$URL/lock?name=job&wait=50ms\"").out.ends_with("\n408"));
  EXPECT_EQ(curl("\"$URL/unlock?lease=$(cat lease)\"").out, "released\n200");
  EXPECT_EQ(curl("\"$URL/unlock?lease=$(cat lease)\"").out, "released\n200");
  EXPECT_TRUE(is_free("job"));
  EXPECT_TRUE(curl("\"$URL/unlock?lease=0\"").out.ends_with("\n404"));
  EXPECT_TRUE(curl("\"$URL/lock\"").out.ends_with("\n400"));
  EXPECT_TRUE(curl("\"$URL/lock?name=a/../b\" --path-as-is").out.ends_with("\n400"));
}

// ---- what is refused

TEST_F(serve_locks, what_is_asked_wrongly_has_its_status_and_changes_nothing) {
  struct row {
    const char *method, *target, *body;
    int status;
    const char* code;
  };
  for (const auto& each : std::vector<row>{
           {"POST", "/v1/locks/a:acquire", "{", 400, "bad_request"},
           {"POST", "/v1/locks/a:acquire", "[]", 400, "bad_request"},
           {"POST", "/v1/locks/a:acquire", R"({"tll":"1s"})", 400, "bad_request"},
           {"POST", "/v1/locks/a:acquire", R"({"ttl":"1s","ttl":"2s"})", 400, "bad_request"},
           {"POST", "/v1/locks/a:acquire", R"({"ttl":"soon"})", 400, "bad_request"},
           {"POST", "/v1/locks/a:acquire", R"({"ttl":-1})", 400, "bad_request"},
           {"POST", "/v1/locks/a:acquire", R"({"ttl":1e300})", 400, "bad_request"},
           {"POST", "/v1/locks/a:acquire", R"({"wait":"2h"})", 400, "bad_request"},
           {"POST", "/v1/locks/a:acquire", R"({"mode":"both"})", 400, "bad_request"},
           {"POST", "/v1/locks/a:acquire", R"({"order":"lifo"})", 400, "bad_request"},
           {"POST", "/v1/locks/a:acquire", R"({"request_id":""})", 400, "bad_request"},
           {"POST", "/v1/locks/a:acquire", R"({"request_id":"a b"})", 400, "bad_request"},
           {"POST", "/v1/locks/a:acquire", R"({"pid":0})", 400, "bad_request"},
           {"POST", "/v1/locks/a:acquire", R"({"permits":2})", 400, "bad_request"},
           {"POST", "/v1/locks/a:acquire?ttl=1s", "", 400, "bad_request"},
           {"POST", "/v1/locks/a//b:acquire", "", 400, "misconfigured"},
           {"POST", "/v1/locks/%2e%2e:acquire", "", 400, "misconfigured"},
           {"POST", "/v1/locks/a%00:acquire", "", 400, "misconfigured"},
           {"POST", "/v1/locks/a%zz:acquire", "", 400, "bad_request"},
           {"POST", "/v1/semaphores/a:acquire", "{}", 400, "bad_request"},
           {"POST", "/v1/semaphores/a:acquire", R"({"permits":3,"of":2})", 400, "bad_request"},
           {"POST", "/v1/locks:acquire", R"({"names":[]})", 400, "bad_request"},
           {"POST", "/v1/locks:acquire", R"({"names":["a","b//"]})", 400, "misconfigured"},
           {"POST", "/v1/latches/a", "{}", 400, "bad_request"},
           {"POST", "/v1/latches/a:down", "{}", 404, "not_held"},
           {"GET", "/v1/elections/a?seen=x", "", 400, "bad_request"},
           {"GET", "/v1/locks?limit=0", "", 400, "bad_request"},
           {"GET", "/v1/nothing", "", 404, "not_found"},
           {"GET", "/v1/locks/a:acquire", "", 405, "bad_method"},
           {"PUT", "/v1/locks/a", "", 405, "bad_method"}}) {
    const auto answer = ask(each.method, each.target, each.body);
    EXPECT_EQ(answer.status, each.status) << each.target << ' ' << each.body << answer.body;
    EXPECT_EQ(answer.text("code"), each.code) << each.target << ' ' << each.body;
    EXPECT_EQ(header_in(answer, "Content-Type"), "application/problem+json") << each.target;
  }
  EXPECT_EQ(json_in(ask("GET", "/v1/locks"))["locks"].size(), 0U);
  EXPECT_EQ(json_in(ask("GET", "/v1/stats"))["leases"], 0);
}

TEST_F(serve_locks, names_are_one_name_however_they_are_written) {
  const auto held = acquire("a%2Fb");
  EXPECT_EQ(held.text("name"), "a/b");
  EXPECT_EQ(acquire("a/b").status, 409);
  EXPECT_EQ(acquire("%61/b").status, 409);
  EXPECT_EQ(acquire("a%252Fb").status, 200);  // another one: decoded once
  EXPECT_EQ(acquire("A/b").status, 200);
  EXPECT_EQ(acquire("%3Cimg%20src=x%3E").status, 200);
  EXPECT_EQ(acquire("a%3Aacquire").status, 200);
}

}  // namespace
