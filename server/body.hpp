// The body of a request as typed fields. Whatever is not as it should be is refused with a sentence that names the
// field: another type, out of range, given twice, not known.
//
//   fields in{asked.body};
//   const auto ttl = in.duration("ttl", 1ms, 1h);
//   in.nothing_else();
#pragma once

#include "problems.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::server {

class fields {
 public:
  // Throws refused for what is no JSON object of moderate depth. No body at all is an object without fields.
  explicit fields(std::string_view body);
  fields(fields&&) noexcept;
  fields& operator=(fields&&) = delete;
  ~fields();

  bool has(std::string_view name) const;
  // Nothing when it is absent or null. All throw refused.
  std::optional<std::string> text(std::string_view name, std::size_t longest);
  std::optional<std::int64_t> whole(std::string_view name, std::int64_t low, std::int64_t high);
  std::optional<std::uint64_t> natural(std::string_view name);
  std::optional<bool> truth(std::string_view name);
  // "10s", or a number of seconds.
  std::optional<std::chrono::nanoseconds> duration(std::string_view name,
                                                   std::chrono::nanoseconds low,
                                                   std::chrono::nanoseconds high);
  // Empty when it is absent.
  std::vector<std::string> texts(std::string_view name, std::size_t most, std::size_t longest);
  std::vector<fields> objects(std::string_view name, std::size_t most);
  // Refuses a body with a field that nobody asked for.
  void nothing_else() const;

 private:
  struct content;
  explicit fields(std::unique_ptr<content> inner);
  std::unique_ptr<content> content_;
};

// Of a name, in a body or in a path: as everywhere else.
void check_name_or_refuse(std::string_view name);

}  // namespace holdfast::server
