// Any bytes as what a gRPC server sends, while three calls and a stream are open. What must hold: it does not matter
// how the network splits them; every call is finished at most once, and not after the connection is over; no message is
// larger than allowed.
#include "fuzz/require.hpp"

#include "grpc/codec.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace holdfast;

constexpr std::size_t largest = 200;
constexpr std::size_t calls = 4;
using log = std::array<std::vector<std::string>, calls>;  // what each of them was told

class client final : grpc::codec_sink {
 public:
  client() {
    for (auto& one : calls_) {
      one.is_stream = &one == &calls_.back();
      one.request = "request";
      REQUIRE(codec_.begin(one, "/test.Echo/Say", {}, std::nullopt));
    }
    codec_.append(calls_.back(), "message");
    send();
  }

  void feed(std::string_view bytes) {
    if (is_over_) return;
    // Which of several reasons for its end is found first may depend on the splits; who was told what may not.
    is_over_ = codec_.feed(bytes).has_value();
    if (is_over_) return;
    codec_.answer_pings();
    send();
  }
  const log& heard() const { return heard_; }

 private:
  void on_message(grpc::exchange& of, std::string_view message) override {
    REQUIRE(of.is_stream && message.size() <= largest);
    note(index(of), "message " + std::string{message});
  }
  void on_finished(grpc::exchange& which) override {
    const auto number = index(which);
    REQUIRE(!is_over_ && !finished_.at(number));
    finished_.at(number) = true;
    REQUIRE(which.answer.body.size() <= largest);
    note(number, which.failure ? "failed " + which.failure->message()
                               : "done " + which.answer.message + which.answer.body);
  }
  std::size_t index(const grpc::exchange& which) const {
    return static_cast<std::size_t>(&which - calls_.data());
  }
  void note(std::size_t who, std::string what) { heard_.at(who).push_back(std::move(what)); }
  void send() {
    std::string out;
    while (codec_.has_output()) {
      out.clear();
      codec_.take_output(out);
      if (out.empty()) break;
    }
  }

  std::array<grpc::exchange, calls> calls_{};
  std::array<bool, calls> finished_{};
  bool is_over_ = false;
  log heard_;
  grpc::codec codec_{
      {.scheme = "http", .authority = "a", .server = "s", .largest_message = largest}, *this};
};

// `grow` says how many of the bytes have arrived, given how many had before.
template <class Grow>
log run(std::string_view bytes, Grow grow) {
  client one;
  for (std::size_t had = 0; had < bytes.size();) {
    const auto have = std::min(grow(had), bytes.size());
    one.feed(bytes.substr(had, have - had));
    had = have;
  }
  return one.heard();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes{reinterpret_cast<const char*>(data), size};
  // The splits depend on the bytes alone, so that a finding can be repeated.
  std::minstd_rand random{static_cast<unsigned>(std::hash<std::string_view>{}(bytes))};
  const auto at_once = run(bytes, [&](std::size_t) { return bytes.size(); });
  REQUIRE(run(bytes, [](std::size_t had) { return had + 1; }) == at_once);
  REQUIRE(run(bytes, [&](std::size_t had) { return had + 1 + random() % 40; }) == at_once);
  return 0;
}
