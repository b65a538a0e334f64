// Where the store lies, and whether that place may be trusted.
#pragma once

#include <holdfast/result.hpp>
#include <holdfast/types.hpp>
#include <holdfast/url.hpp>

#include "engines/file/mapping.hpp"

#include <string>

namespace holdfast::engines::file {

// Path and limit from file:[PATH][?max_size=BYTES]. Makes the default folder when that is what is meant.
result<open_options> locate(const store_url& url);

// Opens it, creating it when absent. denied unless it is a plain file of ours that no other user may touch.
result<int> open_private(const std::string& path);

}  // namespace holdfast::engines::file
