#include <holdfast/latch.hpp>

#include "core/counters.hpp"

#include <fmt/format.h>

namespace holdfast {

namespace {

constexpr std::int64_t largest = std::int64_t{1} << 62;

error no_such_latch(const std::string& name) {
  return {errc::not_held, fmt::format("latch '{}' does not exist; set it first", name)};
}

result<void> check_count(const std::string& name, std::int64_t n) {
  if (n >= 0 && n <= largest) return {};
  return error{errc::misconfigured,
               fmt::format("latch '{}' cannot count {}; give 0 or more", name, n)};
}

core::counter_wait until_open(const std::string& name, nanoseconds limit, std::stop_token stop) {
  return {name, [](const counter& now) -> result<bool> { return now.exists && now.value <= 0; },
          limit, std::move(stop)};
}

}  // namespace

latch::latch(const client& store, std::string name, std::int64_t expected, nanoseconds keep)
    : store_(store), name_(std::move(name)), keep_(keep) {
  check_name(name_).value();
  check_count(name_, expected).value();
  if (keep <= nanoseconds::zero())
    throw lock_error(
        {errc::misconfigured, fmt::format("latch '{}' must be kept for more than 0", name_)});
  core::count(*store_.core(), {name_, counter_op::create, expected, 0, keep_}).value();
}

latch::latch(const client& store, std::string name) : store_(store), name_(std::move(name)) {
  check_name(name_).value();
}

result<std::int64_t> latch::count_down(std::int64_t n) {
  if (auto ok = check_count(name_, n); !ok) return std::move(ok).error();
  auto now = core::count(*store_.core(), {name_, counter_op::add, -n, 0, keep_});
  if (!now) return std::move(now).error();
  if (!now->exists) return no_such_latch(name_);
  return now->value;
}

result<std::int64_t> latch::value() const {
  auto now = core::count(*store_.core(), {name_, counter_op::read, 0, 0, keep_});
  if (!now) return std::move(now).error();
  if (!now->exists) return no_such_latch(name_);
  return now->value;
}

result<bool> latch::try_wait() const {
  auto now = value();
  if (now) return *now <= 0;
  if (now.error().code() == errc::not_held) return false;
  return std::move(now).error();
}

result<void> latch::wait(nanoseconds limit, std::stop_token stop) const {
  return core::wait_for(*store_.core(), until_open(name_, limit, std::move(stop)));
}

async<void> latch::async_wait(nanoseconds limit, std::stop_token stop) const {
  return core::async_wait_for(store_.core(), until_open(name_, limit, std::move(stop)));
}

result<void> latch::arrive_and_wait(std::int64_t n, nanoseconds limit, std::stop_token stop) {
  if (auto left = count_down(n); !left) return std::move(left).error();
  return wait(limit, std::move(stop));
}

result<void> latch::set(std::int64_t expected) {
  if (auto ok = check_count(name_, expected); !ok) return ok;
  auto now = core::count(*store_.core(), {name_, counter_op::store, expected, 0, keep_});
  if (!now) return std::move(now).error();
  return {};
}

result<void> latch::remove() {
  auto now = core::count(*store_.core(), {name_, counter_op::erase, 0, 0, keep_});
  if (!now) return std::move(now).error();
  return {};
}

}  // namespace holdfast
