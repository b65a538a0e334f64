// The table of commands: what there is, how it is called, and what it is good for.
//
// Parsing, --help, the manual page and the shell completions all come from this one table, so they cannot
// disagree with each other or with what the program does.
#pragma once

#include <string_view>
#include <vector>

namespace holdfast::cli {

class arguments;

struct flag {
  std::string_view name;           // "--wait"
  std::string_view value;          // what it takes, "DURATION"; empty for a switch
  std::string_view text;           // one sentence without the full stop
  std::string_view choices = {};   // "kill|warn": nothing else is accepted
  std::string_view excludes = {};  // other flags that must not stand beside it, with | between
  bool hidden = false;
  std::string_view letter = {};  // "-w": the short way to say it
};

struct example {
  std::string_view line;
  std::string_view comment;
};

struct command {
  std::string_view name;         // "run", "latch set"
  std::string_view parameters;   // "NAME [K]": those in brackets may be left out
  std::string_view summary;      // one line, no full stop
  std::string_view description;  // paragraphs separated by newlines
  std::vector<flag> flags;
  std::vector<example> examples;
  int (*act)(const arguments&);  // returns the exit code
  bool runs_program = false;     // "-- CMD..." follows
  bool hidden = false;
};

const std::vector<command>& commands();
// Flags of every command.
const std::vector<flag>& common_flags();
// nullptr when there is none of that name.
const command* find_command(std::string_view name);

int run(const arguments&);
int elect(const arguments&);
int latch_set(const arguments&);
int latch_down(const arguments&);
int latch_wait(const arguments&);
int latch_show(const arguments&);
int latch_ls(const arguments&);
int latch_rm(const arguments&);
int ls(const arguments&);
int show(const arguments&);
int top(const arguments&);
int break_lock(const arguments&);
int explain(const arguments&);
int doctor(const arguments&);
int serve(const arguments&);
int schema(const arguments&);
int bench(const arguments&);
int bench_worker(const arguments&);
int flash_sale(const arguments&);
int completion(const arguments&);
int man(const arguments&);
int help(const arguments&);
int version(const arguments&);

}  // namespace holdfast::cli
