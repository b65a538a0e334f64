// What engine and service say to each other, as JSON (docs/reference/http.md, sessions). Pure.
//
// Nothing of what the service says is trusted: what has another type than expected counts as absent, and an answer that
// lacks what it must have is none.
#pragma once

#include <holdfast/engine.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::engines::http {

// ---- what we say

// A JSON object, field after field.
class message {
 public:
  message& add(std::string_view field, std::string_view text);
  message& add(std::string_view field, const char* text) {
    return add(field, std::string_view{text});
  }
  message& add(std::string_view field, std::uint64_t number) {
    return add_json(field, std::to_string(number));
  }
  message& add(std::string_view field, std::int64_t number) {
    return add_json(field, std::to_string(number));
  }
  message& add(std::string_view field, bool truth) {
    return add_json(field, truth ? "true" : "false");
  }
  message& add(std::string_view field, nanoseconds length) {
    return add(field, static_cast<std::int64_t>(length.count()));
  }
  message& add_json(std::string_view field, std::string_view json);
  std::string text() const { return text_.empty() ? "{}" : text_ + '}'; }

 private:
  std::string text_;
};

std::string hex_of(const std::array<std::uint64_t, 2>& client);
std::optional<std::array<std::uint64_t, 2>> client_in(std::string_view hex) noexcept;

message ask_to_enter(const request& ask);
message ask_about(std::string_view name, const owner_id& owner);
message ask_to_count(const counter_request& ask);

// ---- what it says

// Words of a body; owns it. Cheap to move.
class reply {
 public:
  // Nothing for what is no JSON object of moderate depth.
  static std::optional<reply> parse(std::string_view json);
  reply(reply&&) noexcept;
  reply& operator=(reply&&) noexcept;
  ~reply();

  std::string text(const char* field) const;
  std::optional<std::int64_t> whole(const char* field) const;
  std::optional<std::uint64_t> natural(const char* field) const;
  std::optional<bool> truth(const char* field) const;
  std::optional<nanoseconds> length(const char* field) const;  // never negative
  std::optional<reply> object(const char* field) const;
  std::optional<std::vector<reply>> objects(const char* field) const;
  std::vector<std::uint64_t> naturals(const char* field) const;

 private:
  struct content;
  explicit reply(std::unique_ptr<content> inner);
  std::unique_ptr<content> content_;
};

struct session_begun {
  std::string id;
  std::array<std::uint64_t, 2> client{};  // the half that the service uses on its store
  nanoseconds grace{};
  nanoseconds now{};  // of its clock
  capabilities caps;  // of its store
};
std::optional<session_begun> read_session(const reply& from);

// A proof of the session that the service's engine has with its store, by the service's clock.
struct store_proof {
  std::uint64_t number = 0;  // 0: its store has no sessions
  nanoseconds age{};
};
store_proof read_proof(const reply& from);

// A grant, with times that lie before the service got the request, or before the moment that an event names.
struct grant_record {
  std::uint64_t owner = 0;
  lock_mode mode = lock_mode::exclusive;
  std::uint64_t weight = 0;
  fencing_token token;
  nanoseconds ttl{};
  nanoseconds age{};
  store_proof proof;
};
std::optional<grant_record> read_grant(const reply& from);

struct entered_record {
  entered::kind what = entered::kind::busy;
  std::optional<grant_record> granted;
};
std::optional<entered_record> read_entered(const reply& from);

std::optional<counter> read_counter(const reply& from);
// Owners of `theirs` are shown as of `ours`.
struct who_we_are {
  std::array<std::uint64_t, 2> ours{}, theirs{};
};
std::optional<lock_info> read_lock(const reply& from, const who_we_are& who);
std::optional<counter_info> read_counter_info(const reply& from);
std::optional<finding> read_finding(const reply& from);

// A refusal, by its body if that is one of ours, else by its status.
struct refusal {
  bool is_session_over = false;
  error why;
  // The service's own sentence; else it may be that of a proxy, which knows nothing of locks.
  bool is_ours = false;
  // To the service we do not wait for the answer any more.
  bool is_late = false;
};
refusal read_refusal(int status, std::string_view content_type, std::string_view body,
                     std::string_view store);

}  // namespace holdfast::engines::http
