// holdfast help, and every --help: written from the table of commands.
#include "args.hpp"
#include "exit_codes.hpp"
#include "output.hpp"
#include "text.hpp"

#include <fmt/format.h>

#include <algorithm>

#ifndef HOLDFAST_VERSION
#define HOLDFAST_VERSION "unknown"
#endif

namespace holdfast::cli {

namespace {

std::size_t columns() { return std::clamp<std::size_t>(screen().columns, 60, 100); }

std::string heading(std::string_view title) {
  return fmt::format("\n{}{}{}\n", on(style::bold), title, off());
}

std::string entry(std::string_view left, std::string_view right, std::size_t indent) {
  if (left.size() + 3 > indent)
    return fmt::format("  {}\n{:{}}{}\n", left, "", indent, wrapped(right, columns(), indent));
  return fmt::format("  {:<{}}{}\n", left, indent - 2, wrapped(right, columns(), indent));
}

std::string paragraphs(std::string_view description) {
  std::string text;
  while (!description.empty()) {
    const auto end = std::min(description.find('\n'), description.size());
    text += '\n' + wrapped(description.substr(0, end), columns(), 0) + '\n';
    description.remove_prefix(std::min(end + 1, description.size()));
  }
  return text;
}

std::string flag_lines(const std::vector<flag>& flags) {
  std::string text;
  for (const auto& row : flags) {
    if (row.hidden) continue;
    const auto name =
        row.letter.empty() ? std::string{row.name} : fmt::format("{}, {}", row.letter, row.name);
    const auto left = row.value.empty() ? name : fmt::format("{} {}", name, row.value);
    const auto choices = row.choices.size() > 20 ? fmt::format(": {}", row.choices) : std::string{};
    text += entry(left, fmt::format("{}{}", row.text, choices), 24);
  }
  return text;
}

std::string example_lines(const std::vector<example>& examples) {
  std::string text;
  for (const auto& [line, comment] : examples) {
    text += fmt::format("  {}\n", line);
    if (!comment.empty()) text += fmt::format("      {}{}{}\n", on(style::dim), comment, off());
  }
  return text;
}

std::string about(const command& row) {
  auto text = fmt::format("holdfast {}: {}\n", row.name, row.summary);
  text += heading("Usage") + fmt::format("  holdfast {}{}{} [FLAGS]{}\n", row.name,
                                         row.parameters.empty() ? "" : " ", row.parameters,
                                         row.runs_program ? " -- CMD [ARGS...]" : "");
  text += paragraphs(row.description);
  text += heading("Flags") + flag_lines(row.flags) + flag_lines(common_flags());
  if (!row.examples.empty()) text += heading("Examples") + example_lines(row.examples);
  return text;
}

std::string overview(std::string_view group) {
  std::string text = group.empty() ? "holdfast: locks across processes, with fencing tokens\n"
                                   : fmt::format("holdfast {}: see each command below\n", group);
  text += heading("Usage") + fmt::format("  holdfast {} ...\n", group.empty() ? "COMMAND" : group);
  text += heading("Commands");
  for (const auto& row : commands()) {
    if (row.hidden || !row.name.starts_with(group)) continue;
    text += entry(row.runs_program ? fmt::format("{} {} -- CMD", row.name, row.parameters)
                                   : fmt::format("{} {}", row.name, row.parameters),
                  row.summary, 24);
  }
  if (!group.empty()) return text;
  text += heading("Flags") + flag_lines(common_flags());
  text += heading("Examples") + example_lines(find_command("run")->examples);
  text += heading("Exit codes");
  for (const auto& [code, meaning] : exit_code_table) text += entry(code, meaning, 10);
  return text +
         "\nEvery command explains itself: holdfast run --help. The whole manual: holdfast man | "
         "man -l -\n";
}

}  // namespace

int help(const arguments& args) {
  const auto& word = args.text("COMMAND");
  const auto both = word + ' ' + args.text("MORE");
  if (word.empty()) {
    print(overview(""));
  } else if (const auto* exact = find_command(args.has("MORE") ? both : word)) {
    print(about(*exact));
  } else if (!args.has("MORE") &&
             std::any_of(commands().begin(), commands().end(),
                         [&](const command& row) { return row.name.starts_with(both); })) {
    print(overview(word));
  } else {
    throw usage_error(fmt::format("There is no command \"{}\". See holdfast --help.",
                                  args.has("MORE") ? both : word));
  }
  return exit_code::ok;
}

int version(const arguments&) {
  std::string schemes;
  for (const auto& scheme : known_schemes()) schemes += ' ' + scheme + ':';
  print(fmt::format("holdfast {}\nStores of this build:{}\n", HOLDFAST_VERSION, schemes));
  return exit_code::ok;
}

}  // namespace holdfast::cli
