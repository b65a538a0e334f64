#include "table.hpp"

#include "text.hpp"

#include <algorithm>
#include <numeric>

namespace holdfast::cli {

namespace {

constexpr std::size_t gap = 2;

std::string padded(const std::string& cell, std::size_t width, align side) {
  const std::string blanks(width - std::min(width, display_width(cell)), ' ');
  return side == align::left ? cell + blanks : blanks + cell;
}

}  // namespace

void table::add(std::vector<std::string> cells, style look) {
  cells.resize(columns_.size());
  for (std::size_t i = 0; i < cells.size(); ++i)
    cells[i] = shortened(printable(cells[i]), columns_[i].widest);
  rows_.push_back({std::move(cells), look});
}

std::vector<std::size_t> table::widths() const {
  std::vector<std::size_t> widest;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    widest.push_back(display_width(columns_[i].title));
    for (const auto& line : rows_)
      widest.back() = std::max(widest.back(), display_width(line.cells[i]));
  }
  return widest;
}

std::vector<std::size_t> table::shown(const std::vector<std::size_t>& widest,
                                      std::size_t width) const {
  std::vector<std::size_t> all(columns_.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  for (unsigned next = 1; width > 0; ++next) {
    std::size_t needed = (all.size() - 1) * gap;
    for (const auto i : all) needed += widest[i];
    const auto out =
        std::ranges::find_if(all, [&](std::size_t i) { return columns_[i].drop == next; });
    if (needed <= width || out == all.end()) break;
    all.erase(out);
  }
  return all;
}

std::string table::str(std::size_t rows, std::size_t width) const {
  const auto widest = widths();
  const auto columns = shown(widest, width);
  const auto line_of = [&](auto&& cell, style look) {
    std::string line;
    for (const auto i : columns) {
      if (!line.empty()) line.append(gap, ' ');
      line += padded(cell(i), widest[i], columns_[i].side);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    if (width > 0) line = shortened(line, width);
    return std::string{on(look)} + line + std::string{look == style::plain ? "" : off()} + '\n';
  };
  auto text = line_of([&](std::size_t i) { return std::string{columns_[i].title}; }, style::bold);
  std::size_t printed = 0;
  for (const auto& line : rows_) {
    if (rows > 0 && printed++ == rows) break;
    text += line_of([&](std::size_t i) { return line.cells[i]; }, line.look);
  }
  return text;
}

}  // namespace holdfast::cli
