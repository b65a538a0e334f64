// What `holdfast doctor` finds out about a Redis server, whatever the layout: is it set up so that locks are safe?
//
// Changes nothing. What the server refuses to tell (managed servers forbid CONFIG, a user of few rights not even INFO)
// is a note with what to look at by hand; an error means that the server did not answer.
#pragma once

#include "engines/redis/connections.hpp"
#include "engines/redis/settings.hpp"

#include <holdfast/engine.hpp>

#include <vector>

namespace holdfast::engines::redis {

result<std::vector<finding>> diagnose(connections& server, const settings& how, const call& limits);

}  // namespace holdfast::engines::redis
