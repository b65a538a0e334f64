// lock_all: several names at once, all or nothing, without deadlock whoever else does the same in
// whatever order.
//
// In one atomic step where the store can, else one after the other in sorted order, each name once.
// The wait in the options bounds the whole; on failure nothing stays held. For std faces use
// std::scoped_lock over several mutexes.
#pragma once

#include <holdfast/client.hpp>
#include <holdfast/lease.hpp>
#include <holdfast/options.hpp>
#include <holdfast/task.hpp>

#include <span>
#include <string>
#include <vector>

namespace holdfast {

// One lease per name, in sorted order of the distinct names.
result<std::vector<lease>> lock_all(const client& store, std::span<const std::string> names,
                                    const acquire_options& options = {});

// The same for coroutines. Names and options are copied before it starts.
task<result<std::vector<lease>>> async_lock_all(const client& store,
                                                std::span<const std::string> names,
                                                const acquire_options& options);
HOLDFAST_REFUSE_TEMPORARY(task<result<std::vector<lease>>> async_lock_all(
    const client& store, std::span<const std::string> names, acquire_options&& options));

}  // namespace holdfast
