// What can go wrong, sorted by what the caller does next.
//
// Every failure is one of the codes below plus a sentence that names the lock, the store (secrets redacted), what
// happened and what to do. Engines keep native codes inside the sentence; callers branch on the code only.
//
//   auto lease = stock.acquire({.wait = 3s});
//   if (!lease) switch (lease.error().code()) {
//     case errc::busy: case errc::timed_out: return try_later();
//     case errc::unavailable: case errc::outcome_unknown: return the_store_is_in_trouble();
//     default: log(lease.error().message()); throw lock_error{lease.error()};   // a mistake: fix it
//   }
#pragma once

#include <holdfast/language.hpp>

#include <string>
#include <system_error>
#include <utility>

namespace holdfast {

enum class errc {
  // Another owner has it (another client, or another thread of this one), and the wait given was 0. Try later.
  busy = 1,
  // The caller waited as long as it asked to and never got it. Nothing is held. Try later.
  timed_out,
  // The caller's stop_token was requested first. Nothing is held; if the store did not answer in that moment, what it
  // may have noted of the request is cleared up in the background.
  cancelled,
  // Release or renewal of something that this owner does not have (any more), or a latch or barrier that does not
  // exist. Nothing was changed.
  not_held,
  // The caller held it and can no longer claim it; or a fence has seen a newer token. Stop touching the resource.
  lost,
  // The store cannot be reached or cannot serve now. The request had no effect; retrying later may help.
  unavailable,
  // The request was sent, no answer came, and the store could not be asked about it either: it may or may not have
  // been done. Of an acquire: nothing is held here, and what the store may have granted is given back in the
  // background. Of a counter (latch, barrier): look before you repeat it.
  outcome_unknown,
  // This store cannot do that, or this build has no such engine. Ask capabilities() first, or take another store.
  unsupported,
  // The store refused the credentials or the permissions.
  denied,
  // Wrong name, URL, option or use, also use in a forked child. Retrying cannot help.
  misconfigured,
  // The store answered something that makes no sense, or its data is damaged or of another version. A person must look.
  protocol,
};

// The category of errc. A std::error_code of ours compares equal to its portable twin (timed_out to
// std::errc::timed_out, busy to std::errc::device_or_resource_busy ...); lost and outcome_unknown have none.
const std::error_category& error_category() noexcept;

inline std::error_code make_error_code(errc code) noexcept {
  return {static_cast<int>(code), error_category()};
}

// The short portable name of a code: "busy", "timed_out", ... Static storage; "unknown" for a number that is no code.
const char* to_string(errc code) noexcept;

// A failure as a value: a code to branch on and a sentence to print. Copyable; the sentence carries no secret.
//
// Of a request that changes something it also says whether that may have been done all the same, or may still be done
// when a late copy is delivered. Doubt is the default. Certain are only the codes that mean it (unavailable: nothing
// was sent, or it had no effect; busy, not_held, unsupported) and errors that were made as `not_done`.
//
// Users of locks need not ask: before an acquire, a release or a change of mode fails, core has settled the doubt or
// goes on settling it in the background. The distinction is for engines, and for core.
class error {
 public:
  // Certain or in doubt by its code, as above.
  error(errc code, std::string message)
      : error(code, std::move(message),
              code == errc::unavailable || code == errc::busy || code == errc::not_held ||
                  code == errc::unsupported) {}

  errc code() const noexcept { return code_; }
  // For people, in English. Its wording may change with any version.
  const std::string& message() const noexcept { return message_; }
  // True: the request had no effect and never will have one.
  bool is_not_done() const noexcept { return not_done_; }
  // Of an attempt to take a lock: its owner was ended in the store. Who tries again is another owner.
  bool is_owner_over() const noexcept { return owner_over_; }

 protected:
  error(errc code, std::string message, bool not_done, bool owner_over = false)
      : code_(code), message_(std::move(message)), not_done_(not_done), owner_over_(owner_over) {}

 private:
  errc code_;
  std::string message_;
  bool not_done_;
  bool owner_over_ = false;
};

// A failure that is certain whatever its code: the store said no to this very request, or it was never sent. It may be
// sliced to an error: the certainty stays.
class not_done final : public error {
 public:
  not_done(errc code, std::string message) : error(code, std::move(message), true) {}
};

// The store had granted it, or had queued it, and the engine has taken that back. For engines.
class taken_back final : public error {
 public:
  taken_back(errc code, std::string message) : error(code, std::move(message), true, true) {}
};

// A failure as an exception. Thrown by result::value(), by the std faces, by constructors and by client::open(); the
// functions that return a result do not throw it. (std::bad_alloc may come from anywhere.)
class lock_error : public std::system_error {
 public:
  explicit lock_error(const error& e)
      : std::system_error(make_error_code(e.code()), e.message()), message_(e.message()) {}

  // The code, for a switch; code() is the same as a std::error_code.
  errc reason() const noexcept { return static_cast<errc>(code().value()); }
  // Only our sentence, without the category text that system_error appends.
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

}  // namespace holdfast

template <>
struct std::is_error_code_enum<holdfast::errc> : std::true_type {};
