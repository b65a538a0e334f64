// Code blocks after <!-- transcript --> are run: each "$ " line is a command, the others are what it prints.
#include "documents/command.hpp"
#include "documents/page.hpp"

#include <gtest/gtest.h>

#include <span>
#include <sstream>

namespace documents {

namespace {

struct step {
  std::string command;
  std::vector<std::string> expected;
};

std::vector<step> steps_of(const code_block& transcript) {
  std::vector<step> out;
  for (const auto& line : transcript.lines) {
    if (line.starts_with("$ ")) {
      out.push_back({line.substr(2), {}});
    } else if (!out.empty()) {
      out.back().expected.push_back(line);
    }
  }
  return out;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in{text};
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

// "..." stands for anything, also for nothing.
bool matches(std::string_view pattern, std::string_view line) {
  const auto dots = pattern.find("...");
  if (dots == std::string_view::npos) return pattern == line;
  if (!line.starts_with(pattern.substr(0, dots))) return false;
  const auto rest = pattern.substr(dots + 3);
  for (auto from = dots; from <= line.size(); ++from)
    if (matches(rest, line.substr(from))) return true;
  return false;
}

// A line of dots alone stands for any lines, also for none.
bool matches(std::span<const std::string> patterns, std::span<const std::string> lines) {
  if (patterns.empty()) return lines.empty();
  const auto rest = patterns.subspan(1);
  if (patterns.front() == "...")
    return matches(rest, lines) || (!lines.empty() && matches(patterns, lines.subspan(1)));
  return !lines.empty() && matches(patterns.front(), lines.front()) &&
         matches(rest, lines.subspan(1));
}

}  // namespace

TEST(transcripts, dots_stand_for_anything_within_a_line) {
  EXPECT_TRUE(matches("token ... for backup", "token 17 for backup"));
  EXPECT_TRUE(matches("a...b...", "a1b2b3"));
  EXPECT_TRUE(matches("...", ""));
  EXPECT_FALSE(matches("token ... for backup", "token 17 for lunch"));
  EXPECT_FALSE(matches("token", "token 17"));
}

TEST(transcripts, a_line_of_dots_stands_for_any_lines) {
  const std::vector<std::string> printed{"one", "two", "three"};
  using page_lines = std::vector<std::string>;
  EXPECT_TRUE(matches(page_lines{"one", "...", "three"}, printed));
  EXPECT_TRUE(matches(page_lines{"...", "one", "two", "three"}, printed));
  EXPECT_FALSE(matches(page_lines{"one", "...", "two"}, printed));
  EXPECT_FALSE(matches(page_lines{"one", "two"}, printed));
}

TEST(transcripts, are_what_the_command_prints) {
  std::size_t run = 0;
  for (const auto& path : all_pages()) {
    for (const auto& block : read_page(path).code_blocks) {
      if (!block.is_transcript) continue;
      SCOPED_TRACE(path.string() + ':' + std::to_string(block.line));
      EXPECT_EQ(block.language, "console");
      workplace here;
      for (const auto& one : steps_of(block)) {
        const auto printed = here.run(one.command).text;
        EXPECT_TRUE(matches(one.expected, lines_of(printed)))
            << "$ " << one.command << "\nprints:\n"
            << printed;
        ++run;
      }
    }
  }
  EXPECT_GE(run, 10U);
}

}  // namespace documents
