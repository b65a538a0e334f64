// Everything. Include what you use instead, where build time matters.
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
