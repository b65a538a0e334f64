// Passwords from where other users cannot read them: a file or the environment, rather than the address itself.
#pragma once

#include <holdfast/url.hpp>

#include <string>
#include <string_view>

namespace holdfast::support {

// The password for `url`: from the address, from the file that ?password_file= names (without a trailing newline), from
// the environment variable that ?password_env= names, or else from HOLDFAST_PASSWORD; empty when there is none.
// misconfigured when two of the first three are given, or when the file cannot be read or the variable is not set.
result<std::string> password_for(const store_url& url);
// A second password of the same address, that of `whose`: from ?WHOSE_password_file= or ?WHOSE_password_env=; empty
// when there is neither.
result<std::string> password_of(std::string_view whose, const store_url& url);

}  // namespace holdfast::support
