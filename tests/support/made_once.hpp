// What is slow to make and can be used again by every test, such as the empty data folder of a database.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace holdfast::testing {

// The folder of that name in the cache of this build. Only the first test pays for `make`, which fills the path that it
// is given; others that come meanwhile wait for it. What `make` throws is passed on, and the next test tries again.
std::filesystem::path made_once(const std::string& name,
                                const std::function<void(const std::filesystem::path&)>& make);

}  // namespace holdfast::testing
