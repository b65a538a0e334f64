// The service: opens the store, takes over what its predecessor left, listens, serves until SIGTERM or SIGINT.
#pragma once

#include "options.hpp"

#include <cstdint>
#include <functional>
#include <string_view>

namespace holdfast::server {

// Returns when it was told to end: then no new grant was given any more, whoever waited has heard it, and leases that
// clients renew by themselves stay in the store for the next service. Throws lock_error when it cannot start.
// `say` gets sentences for people, such as the address on which it listens.
//
// at_once: clients have been told to count on leases for a while yet, and the store would end them with a goodbye of
// ours. So there was none: the process must end now, without destructors, and then the store treats it as one that
// has died.
enum class ending : std::uint8_t { orderly, at_once };
ending serve(const options& configured, const std::function<void(std::string_view)>& say);

}  // namespace holdfast::server
