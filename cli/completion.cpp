// holdfast completion: scripts for bash, zsh and fish, from the table of commands.
//
// Lock names come from the store, so from other users: no script ever evaluates one. bash gets them quoted by printf
// %q; zsh and fish quote what they insert themselves.
#include "args.hpp"
#include "exit_codes.hpp"
#include "output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

namespace holdfast::cli {

namespace {

std::string first_words() {
  std::vector<std::string_view> words;
  for (const auto& row : commands()) {
    const auto first = row.name.substr(0, row.name.find(' '));
    if (!row.hidden && std::find(words.begin(), words.end(), first) == words.end())
      words.push_back(first);
  }
  return fmt::format("{}", fmt::join(words, " "));
}

std::string flag_names(const command& row) {
  std::vector<std::string_view> names;
  for (const auto* flags : {&row.flags, &common_flags()})
    for (const auto& option : *flags) {
      if (!option.letter.empty()) names.push_back(option.letter);
      names.push_back(option.name);
    }
  return fmt::format("{}", fmt::join(names, " "));
}

// The second words of a command of two: "set down wait".
std::string words_after(std::string_view first) {
  std::vector<std::string_view> words;
  for (const auto& row : commands())
    if (row.name.starts_with(fmt::format("{} ", first)))
      words.push_back(row.name.substr(first.size() + 1));
  return fmt::format("{}", fmt::join(words, " "));
}

bool takes_lock(const command& row) {
  return row.parameters.starts_with("NAME") && !row.name.starts_with("latch");
}

std::string in_single_quotes(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string{"'\\''"} : std::string(1, c);
  return out + "'";
}

std::string bash() {
  std::string cases;
  for (const auto& row : commands()) {
    if (row.hidden) continue;
    cases += fmt::format("    {}) flags={}; locks={} ;;\n", in_single_quotes(row.name),
                         in_single_quotes(flag_names(row)), takes_lock(row) ? 1 : 0);
  }
  std::string values;
  for (const auto& row : commands())
    for (const auto& option : row.flags)
      if (!option.choices.empty()) {
        std::string words{option.choices};
        std::replace(words.begin(), words.end(), '|', ' ');
        values += fmt::format("    {}) COMPREPLY=($(compgen -W {} -- \"$word\")); return ;;\n",
                              option.name, in_single_quotes(words));
      }
  return fmt::format(R"sh(# bash completion for holdfast
_holdfast() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command='' flags='' locks=0 i name
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${{COMP_WORDS[i]}} in
      --) COMPREPLY=($(compgen -c -- "$word")); return ;;
      --store) ((i++)) ;;
      -*) ;;
      *) if [[ -z $command ]]; then command=${{COMP_WORDS[i]}}
         elif [[ $command == latch ]]; then command="latch ${{COMP_WORDS[i]}}"; fi ;;
    esac
  done
  case $before in
{values}  esac
  case $command in
    '') COMPREPLY=($(compgen -W '{commands} --store --help --version' -- "$word")); return ;;
    latch) COMPREPLY=($(compgen -W '{latches}' -- "$word")); return ;;
    completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$word")); return ;;
    help) COMPREPLY=($(compgen -W '{commands}' -- "$word")); return ;;
{cases}  esac
  if [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$word"))
  elif ((locks)); then
    while IFS= read -r name; do
      [[ $name == "$word"* ]] && COMPREPLY+=("$(printf %q "$name")")
    done < <(holdfast ls --names 2>/dev/null)
  fi
}}
complete -F _holdfast holdfast
)sh",
                     fmt::arg("values", values), fmt::arg("cases", cases),
                     fmt::arg("commands", first_words()),
                     fmt::arg("latches", words_after("latch")));
}

// In a zsh _arguments spec, "[", "]" and ":" are syntax.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh() {
  std::string cases;
  for (const auto& row : commands()) {
    if (row.hidden) continue;
    std::string specs;
    for (const auto* flags : {&row.flags, &common_flags()})
      for (const auto& option : *flags) {
        auto spec = fmt::format("[{}]", zsh_text(option.text));
        std::string choices{option.choices};
        std::replace(choices.begin(), choices.end(), '|', ' ');
        if (!option.value.empty())
          spec += fmt::format(":{}:{}", option.value, choices.empty() ? "" : "(" + choices + ")");
        for (const auto name : {option.letter, option.name})
          if (!name.empty()) specs += ' ' + in_single_quotes(fmt::format("{}{}", name, spec));
      }
    if (takes_lock(row)) specs += " '1:lock:_holdfast_locks'";
    if (row.runs_program) specs += " '*::command:_normal'";
    if (row.name == "completion") specs += " '1:shell:(bash zsh fish)'";
    cases += fmt::format("    {}) _arguments{} ;;\n", in_single_quotes(row.name), specs);
  }
  return fmt::format(R"sh(#compdef holdfast
_holdfast_locks() {{
  local -a names
  names=(${{(f)"$(holdfast ls --names 2>/dev/null)"}})
  compadd -- $names
}}
_holdfast() {{
  if ((CURRENT == 2)); then
    compadd -- {commands} --store --help --version
    return
  fi
  local command=$words[2]
  if [[ $command == latch ]]; then
    if ((CURRENT == 3)); then compadd -- {latches}; return; fi
    command="latch $words[3]"
    shift words; ((CURRENT--))
  fi
  shift words; ((CURRENT--))
  case $command in
{cases}  esac
}}
if [[ $funcstack[1] == _holdfast ]]; then _holdfast "$@"; else compdef _holdfast holdfast; fi
)sh",
                     fmt::arg("commands", first_words()), fmt::arg("cases", cases),
                     fmt::arg("latches", words_after("latch")));
}

std::string fish() {
  std::string text = "# fish completion for holdfast\ncomplete -c holdfast -f\n";
  for (const auto& row : commands()) {
    if (row.hidden) continue;
    const auto blank = row.name.find(' ');
    const auto first = row.name.substr(0, blank);
    const auto last = blank == std::string_view::npos ? row.name : row.name.substr(blank + 1);
    const auto seen = fmt::format("'__fish_seen_subcommand_from {}'", last);
    if (blank == std::string_view::npos) {
      text += fmt::format("complete -c holdfast -n __fish_use_subcommand -a {} -d {}\n", first,
                          in_single_quotes(row.summary));
    } else {
      text += fmt::format("complete -c holdfast -n __fish_use_subcommand -a {}\n", first);
      text += fmt::format(
          "complete -c holdfast -n '__fish_seen_subcommand_from {0}; and not "
          "__fish_seen_subcommand_from {3}' -a {1} -d {2}\n",
          first, last, in_single_quotes(row.summary), words_after(first));
    }
    if (takes_lock(row))
      text +=
          fmt::format("complete -c holdfast -n {} -a '(holdfast ls --names 2>/dev/null)'\n", seen);
    for (const auto* flags : {&row.flags, &common_flags()})
      for (const auto& option : *flags) {
        text += fmt::format("complete -c holdfast -n {} -l {} -d {}", seen, option.name.substr(2),
                            in_single_quotes(option.text));
        if (!option.letter.empty()) text += fmt::format(" -s {}", option.letter.substr(1));
        if (!option.value.empty()) text += " -r";
        std::string choices{option.choices};
        std::replace(choices.begin(), choices.end(), '|', ' ');
        if (!choices.empty()) text += fmt::format(" -a '{}'", choices);
        text += '\n';
      }
  }
  return text +
         "complete -c holdfast -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'\n";
}

}  // namespace

int completion(const arguments& args) {
  const auto& shell = args.text("SHELL");
  if (shell == "bash") {
    print(bash());
  } else if (shell == "zsh") {
    print(zsh());
  } else if (shell == "fish") {
    print(fish());
  } else {
    throw usage_error(
        fmt::format("There are completions for bash, zsh and fish, not for \"{}\".", shell));
  }
  return exit_code::ok;
}

}  // namespace holdfast::cli
