// holdfast schema: what must be set up in a store before its first use.
#include "args.hpp"
#include "exit_codes.hpp"
#include "output.hpp"

#include <fmt/format.h>

namespace holdfast::cli {

int schema(const arguments& args) {
  const auto& scheme = args.text("SCHEME");
  const auto text = schema_of(scheme).value();
  if (text.empty()) warn(fmt::format("Stores of {}: need nothing to be set up.", scheme));
  print(text);
  return exit_code::ok;
}

}  // namespace holdfast::cli
