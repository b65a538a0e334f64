// The embedded store: one mapped file, shared by all processes of a user on one machine. See README.md.
#pragma once

#include <holdfast/engine.hpp>

#include <memory>
#include <string>

namespace holdfast::engines::file {

// file: is the user's default store, file:PATH any other; ?max_size=BYTES bounds its growth (1 GiB).
result<std::unique_ptr<engine>> make_engine(const engine_config& config);

// What file: means for this user: in $XDG_RUNTIME_DIR, else /run/user/UID, else /tmp/holdfast-UID.
std::string default_path();

}  // namespace holdfast::engines::file
