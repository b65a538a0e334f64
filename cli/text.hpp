// Text that is safe and pretty on a terminal.
//
// Lock names and labels are chosen by other users. Shown as they are, they could move the cursor, set the title or
// reverse the reading order; so whatever is printed for people goes through printable().
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace holdfast::cli {

// Control characters, bidirectional overrides and marks, line separators and bytes that are not UTF-8
// become \xHH, byte by byte; everything else stays.
std::string printable(std::string_view text);

bool is_utf8(std::string_view text);

// Columns on a terminal, approximately: wide for CJK and emoji, none for combining marks.
std::size_t display_width(std::string_view text);

// At most `columns` wide, with an ellipsis where something was cut off.
std::string shortened(std::string_view text, std::size_t columns);

// Broken at spaces to `columns`, every line after the first indented.
std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent);

// Three digits that matter: "340ns", "12.5ms", "3m20s", "2d04h".
std::string brief(std::chrono::nanoseconds duration);

// "12,345,678"
std::string grouped(double number);

// Replaces what looks like a password inside a URL ("//user:password@") by "***".
std::string without_secrets(std::string_view text);

// The word of `known` that is closest to a misspelt one, or nothing when none is close.
template <class Words>
std::string_view closest(std::string_view word, const Words& known);

std::size_t edit_distance(std::string_view a, std::string_view b);

template <class Words>
std::string_view closest(std::string_view word, const Words& known) {
  std::string_view best;
  std::size_t least = 3;  // three edits away is another word
  for (const std::string_view candidate : known) {
    const auto distance = edit_distance(word, candidate);
    if (distance < least && distance < candidate.size()) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace holdfast::cli
