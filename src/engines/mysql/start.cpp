// The start_ verbs that are the plain ones on a thread of the engine's own. The arguments live until the completion.
#include "engines/mysql/mysql_engine.hpp"

namespace holdfast::engines::mysql {

void mysql_engine::start_enter(const request& ask, const call& limits,
                               completion<entered>& done) noexcept {
  workers_.post([this, &ask, &limits, &done] { done.complete(enter(ask, limits)); });
}

void mysql_engine::start_leave(const ticket& place, const call& limits,
                               completion<void>& done) noexcept {
  workers_.post([this, &place, &limits, &done] { done.complete(leave(place, limits)); });
}

void mysql_engine::start_enter_all(std::span<const request> asks, const call& limits,
                                   completion<std::vector<grant>>& done) noexcept {
  workers_.post([this, asks, &limits, &done] { done.complete(enter_all(asks, limits)); });
}

void mysql_engine::start_settle(const request& ask, const call& limits,
                                completion<entered>& done) noexcept {
  workers_.post([this, &ask, &limits, &done] { done.complete(settle(ask, limits)); });
}

void mysql_engine::start_inspect(std::string_view name, const call& limits,
                                 completion<lock_info>& done) noexcept {
  workers_.post([this, name, &limits, &done] { done.complete(inspect(name, limits)); });
}

void mysql_engine::start_count(const counter_request& ask, const call& limits,
                               completion<counter>& done) noexcept {
  workers_.post([this, &ask, &limits, &done] { done.complete(count(ask, limits)); });
}

}  // namespace holdfast::engines::mysql
