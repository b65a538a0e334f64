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

void engine::start_inspect(std::string_view name, const call& limits,
                           completion<lock_info>& done) noexcept {
  done.complete(inspect(name, limits));
}

void engine::start_count(const counter_request& ask, const call& limits,
                         completion<counter>& done) noexcept {
  done.complete(count(ask, limits));
}

void engine::start_renew(std::span<renewal> batch, const call& limits,
                         completion<session_proof>& done) noexcept {
  done.complete(renew(batch, limits));
}

void engine::start_enter_all(std::span<const request> asks, const call& limits,
                             completion<std::vector<grant>>& done) noexcept {
  done.complete(enter_all(asks, limits));
}

result<std::vector<finding>> engine::diagnose(const call&) { return std::vector<finding>{}; }

result<std::vector<counter_info>> engine::list_counters(std::string_view, std::size_t,
                                                        const call&) {
  return error{errc::unsupported, "this store cannot list its latches; name one of them"};
}

result<std::vector<grant>> engine::enter_all(std::span<const request>, const call&) {
  return error{errc::unsupported, "this store cannot take several locks at once"};
}

}  // namespace holdfast
