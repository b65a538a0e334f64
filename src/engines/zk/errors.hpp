// What the server says no with, as our codes.
#pragma once

#include "engines/common/sentences.hpp"
#include "jute/zookeeper.hpp"

#include <holdfast/result.hpp>

#include <string_view>

namespace holdfast::engines::zk {

// An answer other than ok, with the lock (may be empty) and the store. Certain (not_done) where the server refused just
// this; what it says of itself, or what we do not know, is a doubt.
error refusal(jute::code said, std::string_view name, std::string_view store);
// The answer is not of the form that was asked for.
error unexpected_answer(std::string_view name, std::string_view store);

}  // namespace holdfast::engines::zk
