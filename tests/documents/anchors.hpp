// The anchors that GitHub gives to headings.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace documents {

// Of one page: a heading that comes again has a number behind it.
class anchor_maker {
 public:
  std::string anchor_of(std::string_view heading_text);

 private:
  std::map<std::string, int> seen_;
};

}  // namespace documents
