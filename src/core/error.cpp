#include <holdfast/error.hpp>

namespace holdfast {

namespace {

const char* sentence(errc code) noexcept {
  switch (code) {
    case errc::busy:
      return "The lock is held by another owner.";
    case errc::timed_out:
      return "The lock did not become free in time.";
    case errc::cancelled:
      return "The wait was cancelled.";
    case errc::not_held:
      return "The lock is not held by this owner.";
    case errc::lost:
      return "The lock was held and has been lost.";
    case errc::unavailable:
      return "The store cannot be reached or cannot serve now.";
    case errc::outcome_unknown:
      return "The store never answered, so the outcome is not known.";
    case errc::unsupported:
      return "The store cannot do that.";
    case errc::denied:
      return "The store does not allow it.";
    case errc::misconfigured:
      return "A name, address, option or use is wrong.";
    case errc::protocol:
      return "The store answered something that makes no sense.";
  }
  return "This error code is not one of Holdfast's.";
}

class category final : public std::error_category {
 public:
  const char* name() const noexcept override { return "holdfast"; }
  std::string message(int code) const override { return sentence(static_cast<errc>(code)); }

  // So that code written against <system_error> can compare with std::errc where it has a word for it.
  std::error_condition default_error_condition(int code) const noexcept override {
    switch (static_cast<errc>(code)) {
      case errc::busy:
        return std::errc::device_or_resource_busy;
      case errc::timed_out:
        return std::errc::timed_out;
      case errc::cancelled:
        return std::errc::operation_canceled;
      case errc::not_held:
        return std::errc::operation_not_permitted;
      case errc::unavailable:
        return std::errc::resource_unavailable_try_again;
      case errc::unsupported:
        return std::errc::operation_not_supported;
      case errc::denied:
        return std::errc::permission_denied;
      case errc::misconfigured:
        return std::errc::invalid_argument;
      case errc::protocol:
        return std::errc::protocol_error;
      case errc::lost:
      case errc::outcome_unknown:
        break;
    }
    return {code, *this};
  }
};

}  // namespace

const std::error_category& error_category() noexcept {
  static const class category the;
  return the;
}

const char* to_string(errc code) noexcept {
  switch (code) {
    case errc::busy:
      return "busy";
    case errc::timed_out:
      return "timed_out";
    case errc::cancelled:
      return "cancelled";
    case errc::not_held:
      return "not_held";
    case errc::lost:
      return "lost";
    case errc::unavailable:
      return "unavailable";
    case errc::outcome_unknown:
      return "outcome_unknown";
    case errc::unsupported:
      return "unsupported";
    case errc::denied:
      return "denied";
    case errc::misconfigured:
      return "misconfigured";
    case errc::protocol:
      return "protocol";
  }
  return "unknown";
}

}  // namespace holdfast
