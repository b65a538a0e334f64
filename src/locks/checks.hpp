// What every handle checks before it exists: wrong use is refused at construction.
#pragma once

#include "core/client_core.hpp"

#include <holdfast/client.hpp>

namespace holdfast::locks {

inline acquire_options checked_or_throw(const client& store, std::string_view name,
                                        acquire_options options) {
  check_name(name).value();
  return store.core()->checked(std::move(options)).value();
}

inline void require(bool capable, const client& store, std::string_view what) {
  if (!capable)
    throw lock_error({errc::unsupported,
                      store.url() + " has no " + std::string{what} + "; its capabilities say so"});
}

// The codes for which a std face answers false instead of throwing.
constexpr bool is_no(errc code) noexcept {
  return code == errc::busy || code == errc::timed_out || code == errc::cancelled;
}

}  // namespace holdfast::locks
