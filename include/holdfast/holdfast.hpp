// Everything for users of locks. Include what you use instead, where build time matters.
//
//   client                one connection of this process to one store; all others are made from it
//   lease                 the right to act as holder: valid(), lost(), token(), release()
//   mutex                 one holder at a time; recursive_mutex: its thread may enter again
//   shared_mutex          many readers or one writer; counting_semaphore: at most n permits
//   striped_mutex         one hot name split into n; lock_all: several names, all or nothing
//   latch, barrier        counters to wait for; no locks
//   election              one leader, visible to all
//   file_fence ...        check a token where the work happens
//   task                  a coroutine type, for programs that have none
//
// Not in here: give_back.hpp, for supervisors of processes that hold locks.
#pragma once

#include <holdfast/barrier.hpp>
#include <holdfast/client.hpp>
#include <holdfast/counting_semaphore.hpp>
#include <holdfast/election.hpp>
#include <holdfast/fence.hpp>
#include <holdfast/latch.hpp>
#include <holdfast/lease.hpp>
#include <holdfast/lock_all.hpp>
#include <holdfast/mutex.hpp>
#include <holdfast/recursive_mutex.hpp>
#include <holdfast/shared_mutex.hpp>
#include <holdfast/striped_mutex.hpp>
#include <holdfast/task.hpp>
