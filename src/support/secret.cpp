#include "support/secret.hpp"

#include "support/text.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

namespace holdfast::support {

namespace {

constexpr std::size_t longest_password = 64 * 1024;

result<std::string> from_file(const std::string& path, std::string_view option) {
  std::ifstream in{path, std::ios::binary};
  std::string text;
  if (in) text.assign(std::istreambuf_iterator<char>{in}, {});
  if (!in || text.size() > longest_password) {
    return error{errc::misconfigured,
                 fmt::format("The file {} given as {} could not be read, or is no password.",
                             quoted(path), option)};
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text;
}

result<std::string> from_environment(const std::string& variable, std::string_view option) {
  if (const char* text = std::getenv(variable.c_str())) return std::string{text};
  return error{
      errc::misconfigured,
      fmt::format("The environment variable {} given as {} is not set.", quoted(variable), option)};
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
  if (file != nullptr) return from_file(*file, "password_file");
  if (variable != nullptr) return from_environment(*variable, "password_env");
  if (url.has_secret()) return url.secret();
  const char* usual = std::getenv("HOLDFAST_PASSWORD");
  return std::string{usual == nullptr ? "" : usual};
}

result<std::string> password_of(std::string_view whose, const store_url& url) {
  const auto in_file = fmt::format("{}_password_file", whose);
  const auto in_variable = fmt::format("{}_password_env", whose);
  const auto *file = url.find(in_file), *variable = url.find(in_variable);
  if (file != nullptr && variable != nullptr)
    return error{errc::misconfigured,
                 fmt::format("The store address {} gives the password of the {} in two ways; "
                             "choose {} or {}.",
                             url.str(), whose, in_file, in_variable)};
  if (file != nullptr) return from_file(*file, in_file);
  if (variable != nullptr) return from_environment(*variable, in_variable);
  return std::string{};
}

}  // namespace holdfast::support
