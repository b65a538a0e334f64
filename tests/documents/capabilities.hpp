// The table of docs/reference/capabilities.md against what `holdfast explain --json` prints.
#pragma once

#include "documents/page.hpp"

#include <functional>
#include <string>
#include <string_view>

namespace documents {

inline const char* const capabilities_page = "docs/reference/capabilities.md";

// The table of values: the first column names fields, the others are stores by their addresses, such as
// `redis:?layout=setnx`.
table declared_capabilities();

// Expects each column whose address begins with this scheme to be what the command says of such a store, and that there
// is one. `url_with` gives the address of a real store with these options, which may be none.
void expect_as_explained(std::string_view scheme,
                         const std::function<std::string(const std::string& options)>& url_with);

}  // namespace documents
