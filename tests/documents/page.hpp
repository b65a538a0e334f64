// A page of the documentation, as far as tests look into it: headings, tables, code blocks, links.
#pragma once

#include <cstddef>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace documents {

struct heading {
  int level = 0;
  std::string text;
  std::string anchor;  // as GitHub makes it
};

struct table {
  std::string under;  // the text of the heading above it
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};

struct code_block {
  std::size_t line = 0;  // of its first fence
  std::string language;
  std::vector<std::string> lines;
  bool is_transcript = false;  // the line before it says so
};

struct link {
  std::size_t line = 0;
  std::string target;
};

struct page {
  std::filesystem::path path;
  std::vector<heading> headings;
  std::vector<table> tables;
  std::vector<code_block> code_blocks;
  std::vector<link> links;
  // What is no code block, under the heading of its section; the first one has none.
  std::vector<std::pair<std::string, std::string>> sections;

  // By value, so that it may be asked of a page that does not live on. Throws when there is none.
  table table_under(std::string_view heading_text) const;
  bool has_anchor(std::string_view name) const;
  std::string prose() const;
};

// Where the project lies.
const std::filesystem::path& root();
std::string content(const std::filesystem::path& path);
// By its path from the root. Throws when it cannot be read.
page read_page(const std::filesystem::path& path);
// All pages of the tree, by their paths from the root.
std::vector<std::filesystem::path> all_pages();

// What stands between backticks.
std::vector<std::string> code_spans(std::string_view text);
// The words of a text that a pattern finds.
std::set<std::string> found_in(const std::string& text, const std::string& pattern);
// The names in a folder of the project, of its folders or of its files with this extension.
std::set<std::string> folders_in(const std::filesystem::path& folder);
std::set<std::string> files_in(const std::filesystem::path& folder, std::string_view extension);

}  // namespace documents
