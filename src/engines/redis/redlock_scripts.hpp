// The scripts of Redlock, each for one master. The lock's key is a plain string, as in the layout setnx: SET NX PX to
// take it, compared and deleted to give it back, so redsync, node-redlock and redis-plus-plus share it.
//
// The value is "OWNER.ATTEMPT": what gives a failed attempt back, however late it is delivered, cannot touch the
// owner's next one.
#pragma once

#include "engines/redis/script.hpp"

namespace holdfast::engines::redis::redlock_scripts {

// KEYS lock, last token, mark of the owner, mark of the attempt   ARGV value, ttl (ms), how long the token is kept (ms)
// {1, token} when it was taken; {0, ms left (-1: no end), value} when it is taken; HFOVER when a mark is there.
const script& vote();
// KEYS lock, last token   ARGV value, token, how long it is kept: 1 when the value is there, and the token at least
// that; else 0.
const script& raise_token();
// Of one attempt. KEYS lock, mark of the attempt   ARGV value, ms for which the mark is kept (0: none). 1: it was
// there.
const script& give_back();
// Of all attempts of an owner. KEYS lock, mark of the owner   ARGV owner, ms for the mark (0: none), channel. 1: it was
// there.
const script& release();
// KEYS lock, last token   ARGV owner: {1, value, token, ms left} or {0}.
const script& settle();
// KEYS lock, last token of each   ARGV value, ttl (ms), how long the token is kept, token of each: a digit for each. A
// node that voted late, or has lost its counter, has the token from then on, too.
const script& renew();
// KEYS lock, last token: {value, ms left, token}, or {}.
const script& inspect();
// KEYS lock, last token   ARGV how long the token is kept, channel: how many were deleted.
const script& revoke();

}  // namespace holdfast::engines::redis::redlock_scripts
