#include "engines/common/doctor_checks.hpp"

#include <gtest/gtest.h>

namespace holdfast::engines {
namespace {

using namespace std::chrono_literals;
using level = finding::level;

TEST(doctor_checks, plain_text_is_a_warning_only_where_it_leaves_the_machine) {
  EXPECT_EQ(check_encryption({true, false, "xs://"}).how, level::good);
  EXPECT_EQ(check_encryption({false, true, "xs://"}).how, level::good);
  const auto open = check_encryption({false, false, "xs://"});
  EXPECT_EQ(open.how, level::warning);
  EXPECT_NE(open.sentence.find("Use xs://."), std::string::npos);
}

TEST(doctor_checks, round_trips_are_judged_by_the_worst) {
  const round_trip_limits limits{1s, "grace", 3s};
  EXPECT_EQ(check_round_trips({1ms, 3ms, 2ms}, limits).sentence,
            "2.00 ms in the middle of 3, 3.00 ms at worst.");
  EXPECT_EQ(check_round_trips({1ms, 2s, 1ms}, limits).how, level::warning);
  EXPECT_EQ(check_round_trips({1ms, 2s, 1ms}, {}).how, level::note);
  EXPECT_EQ(check_round_trips({}, limits).how, level::bad);
}

TEST(doctor_checks, clock_says_which_way) {
  EXPECT_NE(clock_difference(-20ms, 1ms).find("20 ms behind ours"), std::string::npos);
  EXPECT_NE(clock_difference(20ms, 1ms).find("20 ms ahead of ours"), std::string::npos);
}

}  // namespace
}  // namespace holdfast::engines
