// Where to connect to, when that is not known once and for all: a provider is asked before each attempt (Sentinel says
// which server is the master now, a cluster which node has a slot).
#pragma once

#include "net/stream.hpp"

#include <holdfast/result.hpp>

#include <functional>

namespace holdfast::net {

// Takes the answer: an address, or why there is none. To be called on the reactor's thread, once; more calls, and one
// that comes too late, do nothing, also when the channel is gone by then.
using address_found = std::function<void(result<address>)>;

// Called on the reactor's thread, without locks. It must not block and not throw; it answers at once or later, for
// instance in the reply handler of another channel on the same reactor. The time it takes is part of the channel's
// connect_timeout. No answer, or an error: the attempt has failed, the calls that wait for it fail with `unavailable`
// (denied, misconfigured and protocol stay what they are), and the provider is asked again after a pause that grows.
using address_provider = std::function<void(address_found done)>;

}  // namespace holdfast::net
