#include "documents/anchors.hpp"

#include <algorithm>
#include <cctype>

namespace documents {

namespace {

// Bytes of the UTF-8 character that begins with this one.
std::size_t length_of(char first) {
  const auto byte = static_cast<unsigned char>(first);
  if (byte < 0x80) return 1;
  return byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// General punctuation (U+2000), that of CJK (U+3000) and the full-width forms of ASCII's (U+FF00): as much as stands in
// our headings. Letters of other scripts stay.
bool is_wide_punctuation(std::string_view character) {
  return character.starts_with("\xE2\x80") || character.starts_with("\xE3\x80") ||
         character.starts_with("\xEF\xBC") || character == "\xC2\xB7";
}

}  // namespace

std::string anchor_maker::anchor_of(std::string_view heading_text) {
  std::string out;
  for (std::size_t at = 0; at < heading_text.size();) {
    const auto character = heading_text.substr(at, length_of(heading_text[at]));
    at += character.size();
    const auto byte = static_cast<unsigned char>(character.front());
    if (character.size() > 1) {
      if (!is_wide_punctuation(character)) out += character;
    } else if (character == " ") {
      out += '-';
    } else if (std::isalnum(byte) != 0 || character == "-" || character == "_") {
      out += static_cast<char>(std::tolower(byte));
    }
  }
  const auto before = seen_[out]++;
  return before == 0 ? out : out + '-' + std::to_string(before);
}

}  // namespace documents
