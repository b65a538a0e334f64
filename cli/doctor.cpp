// holdfast doctor: what was looked at on the real server, and what it means for locks.
#include "args.hpp"
#include "exit_codes.hpp"
#include "json.hpp"
#include "output.hpp"
#include "text.hpp"
#include "words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

namespace holdfast::cli {

namespace {

style look_of(finding::level how) {
  switch (how) {
    case finding::level::good:
      return style::green;
    case finding::level::note:
      return style::plain;
    case finding::level::warning:
      return style::yellow;
    case finding::level::bad:
      return style::red;
  }
  return style::plain;
}

std::string table_of(const std::vector<finding>& findings) {
  constexpr std::size_t level_width = 9;
  std::size_t about_width = 0;
  for (const auto& found : findings)
    about_width = std::max(about_width, display_width(found.about) + 2);
  const auto indent = level_width + about_width;
  const auto columns = std::clamp<std::size_t>(screen().columns, 60, 110);
  std::string text;
  for (const auto& found : findings)
    text += fmt::format("{}{:<{}}{}{:<{}}{}\n", on(look_of(found.how)), word(found.how),
                        level_width, off(), printable(found.about), about_width,
                        wrapped(printable(found.sentence), columns, indent));
  return text;
}

}  // namespace

int doctor(const arguments& args) {
  const auto store = args.open_store();
  auto findings = store.diagnose().value();
  std::ranges::stable_sort(findings, std::ranges::greater{}, &finding::how);
  const bool is_bad = !findings.empty() && findings.front().how == finding::level::bad;
  const auto& engine = store.capabilities().engine;
  if (args.has("--json")) {
    print(findings_json(store.url(), engine, findings));
  } else {
    const auto head = fmt::format("{}{}{} ({} engine)\n\n", on(style::bold), printable(store.url()),
                                  off(), printable(engine));
    print(head +
          (findings.empty() ? "There is nothing to check for this store.\n" : table_of(findings)));
  }
  return is_bad ? exit_code::misconfigured : exit_code::ok;
}

}  // namespace holdfast::cli
