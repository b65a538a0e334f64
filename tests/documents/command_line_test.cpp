// docs/reference/cli.md against the command itself.
#include "documents/command.hpp"
#include "documents/page.hpp"

#include <gtest/gtest.h>

#include <sstream>

namespace documents {

namespace {

const char* const cli_page = "docs/reference/cli.md";

// "run", "latch set": the words in small letters that begin the lines below Commands.
std::set<std::string> listed_commands() {
  workplace here;
  std::istringstream help{here.run("holdfast help").text};
  std::set<std::string> out;
  bool in_list = false;
  for (std::string line; std::getline(help, line);) {
    if (!line.starts_with(' ')) in_list = line == "Commands";
    const auto command = found_in(line, "^  ([a-z]+(?:[ -][a-z]+)*)(?: [A-Z\\[-]| {2})");
    if (in_list) out.insert(command.begin(), command.end());
  }
  return out;
}

std::set<std::string> flags_of(const std::string& command) {
  workplace here;
  const auto help = here.run("holdfast " + command + " --help");
  EXPECT_EQ(help.code, 0) << help.text;
  return found_in(help.text, "\n  (?:-[a-zA-Z], )?(--[a-z-]+)");
}

std::set<std::string> words_of(const std::string& heading_text) {
  return found_in(heading_text, "[^, ]+");
}

// The text of the section on a command; those of several commands share one: "ls, show, top".
std::string section_on(const page& of, const std::string& command) {
  const auto word = command.substr(0, command.find(' '));
  for (const auto& [title, text] : of.sections)
    if (words_of(title).contains(word)) return text;
  return {};
}

std::set<std::string> flags_in(const std::string& text) {
  std::set<std::string> out;
  for (const auto& span : code_spans(text)) out.merge(found_in(span, "--[a-z][a-z-]*"));
  return out;
}

}  // namespace

TEST(command_line, has_a_section_on_each_command_and_names_its_flags) {
  const auto reference = read_page(cli_page);
  const auto commands = listed_commands();
  EXPECT_TRUE(commands.contains("run") && commands.contains("latch set"));
  for (const auto& command : commands) {
    const auto text = section_on(reference, command);
    EXPECT_FALSE(text.empty()) << cli_page << " has no section on " << command;
    auto named = flags_in(text);
    named.merge(flags_in(section_on(reference, "Common")));
    for (const auto& flag : flags_of(command))
      EXPECT_TRUE(named.contains(flag))
          << cli_page << " does not say what " << flag << " does with " << command;
  }
}

TEST(command_line, page_names_no_flag_that_does_not_exist) {
  std::set<std::string> known{"--version"};
  for (const auto& command : listed_commands()) known.merge(flags_of(command));
  for (const auto& flag : flags_in(read_page(cli_page).prose()))
    EXPECT_TRUE(known.contains(flag)) << cli_page << " names " << flag;
}

TEST(command_line, page_has_no_section_on_a_command_that_does_not_exist) {
  workplace here;
  for (const auto& title : read_page(cli_page).headings) {
    if (title.level != 2 || !found_in(title.text, "[^a-z, -]").empty()) continue;
    for (const auto& word : words_of(title.text))
      EXPECT_EQ(here.run("holdfast " + word + " --help").code, 0) << word;
  }
}

TEST(command_line, exit_codes_are_those_of_the_page) {
  workplace here;
  const auto help = here.run("holdfast help").text;
  const auto printed = found_in(help.substr(help.find("Exit codes")), "\n  ([0-9]+(?:\\+N)?) ");
  std::set<std::string> listed;
  for (const auto& row : read_page(cli_page).table_under("Exit codes").rows) listed.insert(row[0]);
  EXPECT_EQ(listed, printed);
}

}  // namespace documents
