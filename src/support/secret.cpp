#include "support/secret.hpp"

#include "support/text.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

namespace holdfast::support {

namespace {

constexpr std::size_t longest_password = 64 * 1024;

result<std::string> from_file(const std::string& path) {
  std::ifstream in{path, std::ios::binary};
  std::string text;
  if (in) text.assign(std::istreambuf_iterator<char>{in}, {});
  if (!in || text.size() > longest_password) {
    return error{
        errc::misconfigured,
        fmt::format("The file {} given as password_file could not be read, or is no password.",
                    quoted(path))};
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text;
}

result<std::string> from_environment(const std::string& variable) {
  if (const char* text = std::getenv(variable.c_str())) return std::string{text};
  return error{errc::misconfigured,
               fmt::format("The environment variable {} given as password_env is not set.",
                           quoted(variable))};
}

}  // namespace

result<std::string> password_for(const store_url& url) {
  const auto* file = url.find("password_file");
  const auto* variable = url.find("password_env");
  if (int{url.has_secret()} + int{file != nullptr} + int{variable != nullptr} > 1) {
    return error{errc::misconfigured,
                 fmt::format("The store address {} gives its password in more than one way; choose "
                             "password_file, password_env or the address itself.",
                             url.str())};
  }
  if (file != nullptr) return from_file(*file);
  if (variable != nullptr) return from_environment(*variable);
  if (url.has_secret()) return url.secret();
  const char* usual = std::getenv("HOLDFAST_PASSWORD");
  return std::string{usual == nullptr ? "" : usual};
}

}  // namespace holdfast::support
