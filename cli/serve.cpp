// holdfast serve: the same locks for programs in any language, over HTTP.
#include "args.hpp"
#include "exit_codes.hpp"
#include "output.hpp"

#if HOLDFAST_SERVE
#include "json.hpp"

#include "server/keys.hpp"
#include "server/options.hpp"
#include "server/serve.hpp"
#endif

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace holdfast::cli {

#if HOLDFAST_SERVE

namespace {

int make_new_key(const arguments& args) {
  const auto scopes = args.has("--scopes") ? args.text("--scopes") : "acquire,inspect";
  const auto names = args.has("--names") ? args.text("--names") : "*";
  const auto made = server::make_key(args.text("--new-key"), scopes, names).value();
  print(
      fmt::format("# Give the client this key; it is written nowhere else:\n"
                  "#   {}\n"
                  "# and add this line to the file of --keys:\n{}\n",
                  made.secret, made.line));
  return exit_code::ok;
}

}  // namespace

int serve(const arguments& args) {
  if (args.has("--new-key")) return make_new_key(args);
  server::options configured;
  if (args.has("--config")) server::read_config(configured, args.text("--config")).value();
  if (configured.store.empty() || args.has("--store")) configured.store = args.store_text();
  for (const std::string_view flag :
       {"--listen", "--tls-cert", "--tls-key", "--client-ca", "--keys", "--state", "--host"})
    if (args.has(flag)) server::set(configured, flag.substr(2), args.text(flag)).value();
  configured.show = {&locks_json, &lock_json, &capabilities_json, &findings_json};
  configured.version = HOLDFAST_VERSION;
  const auto end = server::serve(
      configured, [](std::string_view sentence) { print(fmt::format("{}\n", sentence)); });
  if (end == server::ending::at_once) {
    std::fflush(nullptr);
    std::_Exit(exit_code::ok);
  }
  return exit_code::ok;
}

#else

int serve(const arguments&) {
  throw lock_error(
      {errc::unsupported,
       "this holdfast was built without serve, because Boost 1.81, OpenSSL or prometheus-cpp "
       "was not found (Debian: libboost1.81-dev, libssl-dev, prometheus-cpp-dev)"});
}

#endif

}  // namespace holdfast::cli
