// A table for people: columns as wide as their widest cell, names on top.
#pragma once

#include "output.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::cli {

enum class align { left, right };

struct column {
  std::string_view title;
  align side = align::left;
  std::size_t widest = 60;  // longer cells are cut, with an ellipsis
  unsigned drop = 0;        // the n-th to be left out where there is no room for all; 0: never
};

class table {
 public:
  explicit table(std::vector<column> columns) : columns_(std::move(columns)) {}

  // Cells are made printable here. Missing cells are empty.
  void add(std::vector<std::string> cells, style look = style::plain);
  bool empty() const noexcept { return rows_.empty(); }
  std::size_t size() const noexcept { return rows_.size(); }
  // At most `rows` lines of rows and `width` columns; 0 means no limit.
  std::string str(std::size_t rows = 0, std::size_t width = 0) const;

 private:
  struct row {
    std::vector<std::string> cells;
    style look;
  };
  std::vector<std::size_t> widths() const;
  // Which columns are shown, by their numbers.
  std::vector<std::size_t> shown(const std::vector<std::size_t>& widest, std::size_t width) const;
  std::vector<column> columns_;
  std::vector<row> rows_;
};

}  // namespace holdfast::cli
