#include "documents/capabilities.hpp"

#include "documents/command.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

namespace documents {

namespace {

using json = nlohmann::ordered_json;

// Their wording is the engine's own, and no table could hold it.
bool is_sentence(const std::string& field) {
  return field == "store" || field == "exclusion" || field == "token_scope" || field == "limits";
}

std::string only_span(const std::string& cell) {
  const auto spans = code_spans(cell);
  return spans.size() == 1 ? spans.front() : cell;
}

std::string as_printed(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// "0.001 or 0.02" allows both.
bool allows(const std::string& cell, const std::string& value) {
  const std::string between = " or ";
  for (std::size_t from = 0; from <= cell.size();) {
    const auto end = std::min(cell.find(between, from), cell.size());
    if (cell.substr(from, end - from) == value) return true;
    from = end + between.size();
  }
  return false;
}

json explained(const std::string& url) {
  workplace here;
  const auto answer = here.run("holdfast explain --json --store '" + url + "'");
  if (answer.code == 0) return json::parse(answer.text);
  ADD_FAILURE() << url << " ends with " << answer.code << ": " << answer.text;
  return {};
}

void expect_column(const table& declared, std::size_t column, const json& said) {
  std::set<std::string> fields;
  for (const auto& row : declared.rows) {
    const auto field = only_span(row.at(0));
    fields.insert(field);
    ASSERT_TRUE(said.contains(field)) << "explain does not print " << field;
    const auto value = as_printed(said[field]);
    EXPECT_TRUE(allows(row.at(column), value))
        << capabilities_page << " says that " << field << " is \"" << row.at(column)
        << "\"; explain says \"" << value << '"';
  }
  for (const auto& [field, value] : said.items())
    EXPECT_TRUE(is_sentence(field) || fields.contains(field)) << field << " has no row";
}

}  // namespace

table declared_capabilities() {
  return read_page(capabilities_page).table_under("What each store declares");
}

void expect_as_explained(std::string_view scheme,
                         const std::function<std::string(const std::string&)>& url_with) {
  const auto declared = declared_capabilities();
  bool has_any = false;
  for (std::size_t column = 1; column < declared.header.size(); ++column) {
    const auto address = only_span(declared.header[column]);
    if (!address.starts_with(std::string{scheme} + ':')) continue;
    SCOPED_TRACE(address);
    const auto options = address.find('?');
    const auto given = options == std::string::npos ? "" : address.substr(options + 1);
    expect_column(declared, column, explained(url_with(given)));
    has_any = true;
  }
  EXPECT_TRUE(has_any) << capabilities_page << " has no column for " << scheme;
}

}  // namespace documents
