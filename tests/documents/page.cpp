#include "documents/page.hpp"

#include "documents/anchors.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <stdexcept>

namespace documents {

namespace fs = std::filesystem;

namespace {

std::string trimmed(std::string_view text) {
  const auto from = text.find_first_not_of(" \t");
  if (from == std::string_view::npos) return {};
  return std::string{text.substr(from, text.find_last_not_of(" \t") - from + 1)};
}

std::string without_code_spans(std::string_view text) {
  static const std::regex span{"`[^`]*`"};
  return std::regex_replace(std::string{text}, span, "");
}

// | a | b \| c | gives "a" and "b | c".
std::vector<std::string> cells_of(std::string_view row) {
  std::vector<std::string> cells;
  std::string cell;
  for (std::size_t i = 1; i < row.size(); ++i) {
    if (row[i] == '\\' && i + 1 < row.size() && row[i + 1] == '|') {
      cell += row[++i];
    } else if (row[i] == '|') {
      cells.push_back(trimmed(cell));
      cell.clear();
    } else {
      cell += row[i];
    }
  }
  return cells;
}

// Reads a page line by line.
class reader {
 public:
  explicit reader(page& to) : page_(to) { page_.sections.emplace_back(); }

  void read(const std::string& line) {
    ++number_;
    if (trimmed(line).starts_with("```")) {
      fence(trimmed(line).substr(3));
    } else if (in_code_) {
      page_.code_blocks.back().lines.push_back(line);
    } else {
      read_prose(line);
    }
    before_ = line;
  }

 private:
  void fence(const std::string& language) {
    in_code_ = !in_code_;
    in_table_ = false;
    if (in_code_)
      page_.code_blocks.push_back({number_, language, {}, before_ == "<!-- transcript -->"});
  }

  void read_prose(const std::string& line) {
    if (line.starts_with('#')) {
      begin_section(line);
      return;
    }
    page_.sections.back().second += line + '\n';
    read_links(line);
    if (line.starts_with('|')) {
      read_row(line);
    } else {
      in_table_ = false;
    }
  }

  void begin_section(const std::string& line) {
    in_table_ = false;
    const auto level = line.find_first_not_of('#');
    const auto text = trimmed(std::string_view{line}.substr(std::min(level, line.size())));
    page_.headings.push_back({static_cast<int>(level), text, anchors_.anchor_of(text)});
    page_.sections.emplace_back(text, "");
  }

  void read_row(const std::string& line) {
    const auto cells = cells_of(line);
    if (!in_table_) {
      page_.tables.push_back({page_.sections.back().first, cells, {}});
    } else if (!line.starts_with("|---")) {
      page_.tables.back().rows.push_back(cells);
    }
    in_table_ = true;
  }

  void read_links(const std::string& line) {
    static const std::regex target{R"(\]\(([^)\s]+)\))"};
    const auto text = without_code_spans(line);
    for (std::sregex_iterator it{text.begin(), text.end(), target}, end; it != end; ++it)
      page_.links.push_back({number_, (*it)[1].str()});
  }

  page& page_;
  anchor_maker anchors_;
  std::size_t number_ = 0;
  bool in_code_ = false, in_table_ = false;
  std::string before_;
};

}  // namespace

table page::table_under(std::string_view heading_text) const {
  const auto found =
      std::ranges::find_if(tables, [&](const table& one) { return one.under == heading_text; });
  if (found != tables.end()) return *found;
  throw std::runtime_error(path.string() + " has no table under \"" + std::string{heading_text} +
                           '"');
}

bool page::has_anchor(std::string_view name) const {
  return std::ranges::any_of(headings, [&](const heading& one) { return one.anchor == name; });
}

std::string page::prose() const {
  std::string all;
  for (const auto& [heading_text, text] : sections) all += heading_text + '\n' + text;
  return all;
}

const fs::path& root() {
  static const fs::path path{HOLDFAST_SOURCE};
  return path;
}

std::string content(const fs::path& path) {
  std::ifstream in{path, std::ios::binary};
  if (!in) throw std::runtime_error(path.string() + " cannot be read");
  return {std::istreambuf_iterator<char>{in}, {}};
}

page read_page(const fs::path& path) {
  page out;
  out.path = path;
  reader lines{out};
  std::istringstream in{content(root() / path)};
  for (std::string line; std::getline(in, line);) lines.read(line);
  return out;
}

std::vector<fs::path> all_pages() {
  std::vector<fs::path> out;
  for (fs::recursive_directory_iterator it{root()}, end; it != end; ++it) {
    const auto name = it->path().filename().string();
    if (it->is_directory() && (name == "build" || name.starts_with('.')))
      it.disable_recursion_pending();
    if (it->path().extension() == ".md") out.push_back(it->path().lexically_relative(root()));
  }
  std::ranges::sort(out);
  return out;
}

std::vector<std::string> code_spans(std::string_view text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; (at = text.find('`', at)) != std::string_view::npos;) {
    const auto end = text.find('`', at + 1);
    if (end == std::string_view::npos) break;
    out.emplace_back(text.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return out;
}

std::set<std::string> found_in(const std::string& text, const std::string& pattern) {
  const std::regex wanted{pattern};
  const bool has_group = wanted.mark_count() > 0;
  std::set<std::string> out;
  for (std::sregex_iterator it{text.begin(), text.end(), wanted}, end; it != end; ++it)
    out.insert((*it)[has_group ? 1 : 0].str());
  return out;
}

std::set<std::string> folders_in(const fs::path& folder) {
  std::set<std::string> out;
  for (const auto& entry : fs::directory_iterator{root() / folder})
    if (entry.is_directory()) out.insert(entry.path().filename().string());
  return out;
}

std::set<std::string> files_in(const fs::path& folder, std::string_view extension) {
  std::set<std::string> out;
  for (const auto& entry : fs::directory_iterator{root() / folder})
    if (entry.path().extension() == extension) out.insert(entry.path().filename().string());
  return out;
}

}  // namespace documents
