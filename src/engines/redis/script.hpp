// A Lua script, and the name by which a server that has seen it knows it.
#pragma once

#include <string>
#include <string_view>

namespace holdfast::engines::redis {

struct script {
  std::string text{};
  std::string sha{};  // 40 hex digits
};

// Of up to three parts, one behind the other.
script make_script(std::string_view first, std::string_view second = {},
                   std::string_view third = {});

}  // namespace holdfast::engines::redis

// Defines a function that answers a script of these parts. It is made once, when first used.
#define HOLDFAST_SCRIPT(name, ...)                                    \
  const script& name() {                                              \
    static const script& the = *new script{make_script(__VA_ARGS__)}; \
    return the;                                                       \
  }
