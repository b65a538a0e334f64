// How a connection to a Redis server, or to a sentinel, begins: protocol 3, the login, the database.
#pragma once

#include "engines/redis/settings.hpp"
#include "net/channel.hpp"
#include "resp/resp.hpp"

#include <holdfast/result.hpp>

#include <functional>
#include <string_view>

namespace holdfast::engines::redis {

// Where, how frames are cut, and the greeting; `greeted` is still to be set.
net::channel_options begin_channel(const settings& how);

// One more command of a greeting.
void greet_with(net::channel_options& options, std::initializer_list<std::string_view> words);

// Judges the answers to a greeting: none of them may be an error. `introduced` judges those from `first` to `last`
// (counted from 0), too.
using introduction_judge = std::function<result<void>(const resp::value&)>;
std::function<result<void>(std::string_view)> greeting_judge(const settings& how,
                                                             unsigned first = 0, unsigned last = 0,
                                                             introduction_judge introduced = {});

}  // namespace holdfast::engines::redis
