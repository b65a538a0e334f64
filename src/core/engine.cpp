// The start_ verbs of stores that answer without I/O: the plain verb, completed before it returns.
#include <holdfast/engine.hpp>

namespace holdfast {

void engine::start_enter(const request& ask, const call& limits,
                         completion<entered>& done) noexcept {
  done.complete(enter(ask, limits));
}

void engine::start_leave(const ticket& place, const call& limits, completion<void>& done) noexcept {
  done.complete(leave(place, limits));
}

void engine::start_release(const grant& held, const call& limits, completion<void>& done) noexcept {
  done.complete(release(held, limits));
}

void engine::start_settle(const request& ask, const call& limits,
                          completion<entered>& done) noexcept {
  done.complete(settle(ask, limits));
}

void engine::start_count(const counter_request& ask, const call& limits,
                         completion<counter>& done) noexcept {
  done.complete(count(ask, limits));
}

}  // namespace holdfast
