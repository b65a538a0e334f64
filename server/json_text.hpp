// JSON as we write it: ASCII only, so that a hostile name is harmless wherever it is shown; bytes that are no UTF-8
// become U+FFFD.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace holdfast::server {

std::string json_string(std::string_view text);  // with its quotes

// An object, field after field, in the order in which they are added.
//
//   json_object{}.add("name", name).add("left", 3).text()
class json_object {
 public:
  json_object& add(std::string_view name, std::string_view value);
  json_object& add(std::string_view name, const char* value) {
    return add(name, std::string_view{value});
  }
  json_object& add(std::string_view name, const std::string& value) {
    return add(name, std::string_view{value});
  }
  json_object& add(std::string_view name, bool value);
  json_object& add(std::string_view name, double value);  // null for what is no number
  template <std::integral Number>
  json_object& add(std::string_view name, Number value) {
    return add_json(name, std::to_string(value));
  }
  json_object& add_json(std::string_view name, std::string_view json);
  std::string text() const { return text_.empty() ? "{}" : text_ + '}'; }

 private:
  std::string text_;
};

// "[a,b]" of texts that are JSON already.
class json_array {
 public:
  json_array& add_json(std::string_view json);
  std::string text() const { return text_.empty() ? "[]" : text_ + ']'; }

 private:
  std::string text_;
};

}  // namespace holdfast::server
