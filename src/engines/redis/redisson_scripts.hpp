// The scripts of the layout redisson: what RLock (with RFencedLock's token), RPermitExpirableSemaphore, RSemaphore and
// RCountDownLatch keep in the server, and what they publish.
//
//   NAME                      hash   OWNER -> how often it has entered; expires (RLock)
//                             string permits that are free (both semaphores), or the count (RCountDownLatch)
//   redisson_lock_token:{NAME}       the last token given; never expires
//   {NAME}:timeout            zset   ids of permits (16 raw bytes) by their ends, epoch ms (RPermitExpirableSemaphore)
//   {NAME}:holdfast_permits   ours: with how many permits we have made the semaphore
//   {NAME}:holdfast_count     ours: that there is, or was, a count. Redisson deletes one that reaches zero, and "open"
//                             is not "never made" here
// Channels: redisson_lock__channel:{NAME} "0" at a release; redisson_sc:{NAME} the number of free permits;
// redisson_countdownlatch__channel__{NAME} "0" open, "1" set anew ("2" of ours, ignored by Redisson: another value).
//
// A NAME with a brace in it is its own hash tag: there are no braces around it then.
#pragma once

#include "engines/redis/script.hpp"

namespace holdfast::engines::redis::redisson_scripts {

// Each script says in redisson_scripts.cpp what it takes and answers.
const script& lock_enter();
const script& lock_release();
const script& permits_enter();
const script& settle();
const script& permits_release();
const script& plain_enter();
const script& plain_release();
const script& renew();
const script& inspect();
const script& revoke();
const script& count();

}  // namespace holdfast::engines::redis::redisson_scripts
