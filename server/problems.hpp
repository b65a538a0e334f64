// What is told when a request is not served: problem+json, or one line of text for the plain calls.
#pragma once

#include "http.hpp"

#include <holdfast/error.hpp>

#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

namespace holdfast::server {

struct problem {
  int status = 500;
  std::string_view code;             // a literal
  std::string detail;                // a sentence
  std::optional<bool> done = false;  // nothing: not known whether the request had an effect
  bool over = false;                 // of an owner that the store has ended: it may not come again
  std::chrono::seconds retry_after{0};  // 0: not said
  std::string holders{};                // JSON, when busy: an array
  std::string allow{};                  // of a 405
};

// As the contract in docs/reference/http.md maps the library's codes. `doing` is what was asked: whether `not_held`
// means a lease or a latch, the sentence says.
problem problem_of(const error& failure);
problem bad_request(std::string detail);
problem not_found(std::string detail);
problem too_many(std::string detail);
// There is no room for the answer; what was asked may have been carried out.
problem too_much_to_send();
// The service is about to end: whoever asks again finds the next one.
problem stopping();

// The library's word for a code; a literal, as problems want it.
std::string_view word_of(errc code) noexcept;
std::string_view title_of(int status) noexcept;

std::string json_of(const problem& why);
response answer_of(const problem& why, bool plain = false);

// Thrown while a request is read and judged, before anything was begun; the router answers with it.
class refused : public std::exception {
 public:
  explicit refused(problem why) : why_(std::move(why)) {}
  const problem& why() const noexcept { return why_; }
  const char* what() const noexcept override { return why_.detail.c_str(); }

 private:
  problem why_;
};

}  // namespace holdfast::server
