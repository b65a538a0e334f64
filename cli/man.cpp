// holdfast man: the manual page in roff, from the table of commands.
#include "args.hpp"
#include "exit_codes.hpp"
#include "output.hpp"

#include <fmt/format.h>

#include <string>

#ifndef HOLDFAST_VERSION
#define HOLDFAST_VERSION "unknown"
#endif

namespace holdfast::cli {

namespace {

// Text as roff takes it literally: its escape character, hyphens that may be copied, no line that begins with
// a request.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool line_start = out.empty() || out.back() == '\n';
    if (line_start && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string flags(const std::vector<flag>& rows) {
  std::string text;
  for (const auto& row : rows) {
    if (row.hidden) continue;
    text += ".TP\n";
    if (!row.letter.empty()) text += fmt::format("\\fB{}\\fR, ", roff(row.letter));
    text += fmt::format("\\fB{}\\fR", roff(row.name));
    if (!row.value.empty()) text += fmt::format(" \\fI{}\\fR", roff(row.value));
    text += fmt::format("\n{}", roff(row.text));
    if (!row.choices.empty()) text += fmt::format(" ({})", roff(row.choices));
    text += ".\n";
  }
  return text;
}

std::string section(const command& row) {
  auto text = fmt::format(".SS holdfast {} {}{}\n{}.\n", roff(row.name), roff(row.parameters),
                          row.runs_program ? " [\\fIflags\\fR] \\-\\- \\fIcmd\\fR ..." : "",
                          roff(row.summary));
  std::string_view description = row.description;
  while (!description.empty()) {
    const auto end = std::min(description.find('\n'), description.size());
    text += fmt::format(".PP\n{}\n", roff(description.substr(0, end)));
    description.remove_prefix(std::min(end + 1, description.size()));
  }
  text += flags(row.flags);
  for (const auto& [line, comment] : row.examples) {
    text += fmt::format(".PP\n.nf\n.RS\n{}\n.RE\n.fi\n", roff(line));
    if (!comment.empty()) text += fmt::format(".RS\n{}.\n.RE\n", roff(comment));
  }
  return text;
}

}  // namespace

int man(const arguments&) {
  auto text = fmt::format(
      ".TH HOLDFAST 1 \"\" \"holdfast {}\" \"User Commands\"\n.SH NAME\nholdfast \\- locks across "
      "processes, with fencing tokens\n.SH SYNOPSIS\n.B holdfast\n\\fIcommand\\fR "
      "[\\fIflags\\fR]\n.SH COMMANDS\n",
      HOLDFAST_VERSION);
  for (const auto& row : commands())
    if (!row.hidden) text += section(row);
  text += ".SH COMMON FLAGS\n" + flags(common_flags());
  text += ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] : exit_code_table)
    text += fmt::format(".TP\n.B {}\n{}.\n", roff(code), roff(meaning));
  text +=
      ".SH ENVIRONMENT\n.TP\n.B HOLDFAST_STORE\nThe store when there is no \\-\\-store. The place "
      "for "
      "a URL with a password: the list of processes does not show it.\n.TP\n.B "
      "HOLDFAST_PASSWORD\nThe password of the store, when its address gives none: neither in "
      "itself nor as password_file or password_env. Handed on to the command of run and "
      "elect.\n.TP\n.B HOLDFAST_STORE_PASSWORD\nInside run and elect: the password that stood in "
      "the address outside, which is not handed on. Never set by holdfast.\n.TP\n.B "
      "HOLDFAST_TOKEN, "
      "HOLDFAST_LOCK\nSet for the command of run and elect: its fencing token and the name of its "
      "lock.\n.TP\n.B NO_COLOR\nWhen set, no colours.\n";
  text +=
      ".SH CAVEATS\nA lock with a ttl cannot stop a paused holder from believing that it still has "
      "the "
      "lock. Pass HOLDFAST_TOKEN to what you protect, and let that refuse older tokens. See "
      ".B holdfast explain\nfor what your store guarantees.\n";
  print(text);
  return exit_code::ok;
}

}  // namespace holdfast::cli
