#include "problems.hpp"

#include "json_text.hpp"

#include <fmt/format.h>

namespace holdfast::server {

namespace {

constexpr std::chrono::seconds soon{1};

int status_of(errc code) noexcept {
  switch (code) {
    case errc::busy:
      return 409;
    case errc::timed_out:
      return 408;
    case errc::not_held:
      return 404;
    case errc::lost:
      return 410;
    case errc::cancelled:
    case errc::unavailable:
    case errc::outcome_unknown:
      return 503;
    case errc::unsupported:
      return 501;
    case errc::denied:
      return 403;
    case errc::misconfigured:
      return 400;
    case errc::protocol:
      return 502;
  }
  return 500;
}

}  // namespace

std::string_view word_of(errc code) noexcept { return to_string(code); }

problem problem_of(const error& failure) {
  problem out{.status = status_of(failure.code()),
              .code = word_of(failure.code()),
              .detail = failure.message()};
  const auto code = failure.code();
  // Of an acquire that was not in time nothing is left: core has settled that before it says so.
  if (code == errc::outcome_unknown || code == errc::protocol) out.done = std::nullopt;
  if (out.status == 503) out.retry_after = soon;
  return out;
}

problem bad_request(std::string detail) {
  return {.status = 400, .code = "bad_request", .detail = std::move(detail)};
}

problem not_found(std::string detail) {
  return {.status = 404, .code = "not_found", .detail = std::move(detail)};
}

problem too_many(std::string detail) {
  return {.status = 429, .code = "too_many", .detail = std::move(detail), .retry_after = soon};
}

problem too_much_to_send() {
  auto out = too_many("too much waits to be sent; read faster, or ask for less");
  out.done = std::nullopt;
  return out;
}

problem stopping() {
  return {.status = 503,
          .code = "stopping",
          .detail = "the service is about to end; ask again, and the next one answers",
          .retry_after = soon};
}

std::string_view title_of(int status) noexcept {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 410:
      return "Gone";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 501:
      return "Not Implemented";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

std::string json_of(const problem& why) {
  json_object out;
  out.add("type", "about:blank")
      .add("title", why.code)
      .add("status", why.status)
      .add("code", why.code)
      .add("detail", why.detail);
  if (why.done)
    out.add("done", *why.done);
  else
    out.add_json("done", "null");
  if (why.over) out.add("over", true);
  if (!why.holders.empty()) out.add_json("holders", why.holders);
  return out.text();
}

response answer_of(const problem& why, bool plain) {
  response out;
  out.status = why.status;
  if (plain) {
    out.content_type = "text/plain; charset=utf-8";
    out.body = fmt::format("{}: {}\n", why.code, why.detail);
  } else {
    out.content_type = "application/problem+json";
    out.body = json_of(why);
  }
  if (why.retry_after.count() > 0)
    out.headers.emplace_back("Retry-After", std::to_string(why.retry_after.count()));
  if (!why.allow.empty()) out.headers.emplace_back("Allow", why.allow);
  if (why.status == 401) out.headers.emplace_back("WWW-Authenticate", "Bearer");
  return out;
}

}  // namespace holdfast::server
