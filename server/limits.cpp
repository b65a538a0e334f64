#include "limits.hpp"

#include "problems.hpp"

#include <fmt/format.h>

#include <utility>

namespace holdfast::server {

limits::place limits::lease(const key& who) {
  auto& used = used_[who.name];
  if (used.leases >= most_.leases)
    throw refused(too_many(fmt::format(
        "this key holds {} leases, which is all it may; release some, or try later", used.leases)));
  ++used.leases;
  return {&used.leases, &(++all_leases_)};
}

limits::place limits::waiter(const key& who) {
  auto& used = used_[who.name];
  if (used.waiters >= most_.waiters)
    throw refused(too_many(fmt::format(
        "{} requests of this key wait for locks, which is all that may; try later", used.waiters)));
  ++used.waiters;
  return {&used.waiters, &(++all_waiters_)};
}

limits::place limits::watcher() {
  if (all_watchers_ >= most_.watchers)
    throw refused(
        too_many(fmt::format("{} clients read events, which is all that may", all_watchers_)));
  return {nullptr, &(++all_watchers_)};
}

limits::place limits::session(const key& who) {
  auto& used = used_[who.name];
  if (used.sessions >= most_.sessions)
    throw refused(too_many(
        fmt::format("this key has {} sessions, which is all it may; try later", used.sessions)));
  ++used.sessions;
  return {&used.sessions, nullptr};
}

limits::place limits::process() {
  if (all_processes_ >= most_.processes)
    throw refused(
        too_many(fmt::format("{} processes are watched, which is all that may", all_processes_)));
  return {nullptr, &(++all_processes_)};
}

std::optional<limits::place> limits::job(const key& who) {
  auto& used = used_[who.name];
  if (used.jobs >= most_.jobs) return std::nullopt;
  ++used.jobs;
  return place{&used.jobs, &(++all_jobs_)};
}

limits::place::place(place&& other) noexcept
    : own_(std::exchange(other.own_, nullptr)), all_(std::exchange(other.all_, nullptr)) {}

limits::place& limits::place::operator=(place&& other) noexcept {
  if (this == &other) return *this;
  give_back();
  own_ = std::exchange(other.own_, nullptr);
  all_ = std::exchange(other.all_, nullptr);
  return *this;
}

void limits::place::give_back() noexcept {
  if (own_ != nullptr) --*own_;
  if (all_ != nullptr) --*all_;
  own_ = all_ = nullptr;
}

}  // namespace holdfast::server
