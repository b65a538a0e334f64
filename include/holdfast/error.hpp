// What can go wrong, sorted by what the caller does next.
//
// Every failure is one of the codes below plus a sentence that names the lock, the store (secrets
// redacted), what happened and what to do. Engines keep native codes inside the sentence; callers
// branch on the code only.
#pragma once

#include <string>
#include <system_error>
#include <utility>

namespace holdfast {

enum class errc {
  busy = 1,     // held by somebody else and we were asked not to wait
  timed_out,    // waited as long as asked, never got it
  cancelled,    // the caller's stop_token was requested; no trace is left in the store
  not_held,     // release or renew of something that is not ours (any more); nothing was changed
  lost,         // we held it, and can no longer claim it
  unavailable,  // the store cannot be reached or cannot serve now; retrying later may help
  outcome_unknown,  // sent, never answered, and it could not be settled: may or may not have happened
  unsupported,      // this store cannot do that; see capabilities()
  denied,           // permissions, credentials
  misconfigured,    // wrong name, URL, option or use; retrying cannot help
  protocol,         // the store answered something we do not understand, or its data is damaged
};

const std::error_category& error_category() noexcept;

inline std::error_code make_error_code(errc code) noexcept {
  return {static_cast<int>(code), error_category()};
}

// The short portable name of a code: "busy", "timed_out", ...
const char* to_string(errc code) noexcept;

// A failure as a value.
//
// Of a request that changes something it also says whether that may have been done all the same, or may still be done
// when a late copy is delivered. Doubt is the default. Certain are only the codes that mean it (unavailable: nothing
// was sent, or it had no effect; busy, not_held, unsupported) and errors that were made as `not_done`.
class error {
 public:
  error(errc code, std::string message)
      : error(code, std::move(message),
              code == errc::unavailable || code == errc::busy || code == errc::not_held ||
                  code == errc::unsupported) {}

  errc code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }
  bool is_not_done() const noexcept { return not_done_; }

 protected:
  error(errc code, std::string message, bool not_done)
      : code_(code), message_(std::move(message)), not_done_(not_done) {}

 private:
  errc code_;
  std::string message_;
  bool not_done_;
};

// A failure that is certain whatever its code: the store said no to this very request, or it was never sent.
class not_done final : public error {
 public:
  not_done(errc code, std::string message) : error(code, std::move(message), true) {}
};

// A failure as an exception, for those who prefer them; thrown by result::value() and the std faces.
class lock_error : public std::system_error {
 public:
  explicit lock_error(const error& e)
      : std::system_error(make_error_code(e.code()), e.message()), message_(e.message()) {}

  errc reason() const noexcept { return static_cast<errc>(code().value()); }
  // Only our sentence, without the category text that system_error appends.
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

}  // namespace holdfast

template <>
struct std::is_error_code_enum<holdfast::errc> : std::true_type {};
