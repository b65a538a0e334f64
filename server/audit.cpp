#include "audit.hpp"

#include "json_text.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>

namespace holdfast::server {

std::string audit_line(const break_asked& what, const result<std::size_t>& ended) {
  const auto outcome = ended ? fmt::format("holders_ended={}", *ended)
                             : fmt::format("failed={}", to_string(ended.error().code()));
  return fmt::format("holdfast serve: audit: break lock={} key={} peer={} {}\n",
                     json_string(what.lock), json_string(what.key), what.peer, outcome);
}

void audit_break(const break_asked& what, const result<std::size_t>& ended) {
  const auto line = audit_line(what, ended);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace holdfast::server
