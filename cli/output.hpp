// What the command says, and where.
#pragma once

#include <cstddef>
#include <string_view>

namespace holdfast::cli {

// Thrown when the reader of our output has gone. Not an error: `holdfast ls | head -1` is normal use, so
// main ends quietly, and everything on the way is cleaned up as usual.
struct broken_pipe {};

// Makes a broken pipe an error of write() instead of a signal that would end us without clean-up.
void ignore_broken_pipe_signal();
// Whether SIGPIPE was ignored already when we were started; the commands we run must find it as we did.
bool was_broken_pipe_ignored() noexcept;

// To stdout, flushed. Throws broken_pipe, or std::system_error when the disk is full.
void print(std::string_view text);

// "holdfast: <sentence>" to stderr. Made safe for terminals, URLs without their passwords.
void complain(std::string_view sentence);
void warn(std::string_view sentence);

bool stdout_is_terminal();
bool stderr_is_terminal();
// Terminals only, and not when NO_COLOR is set (no-color.org) or TERM is dumb.
bool use_colour();

struct screen_size {
  std::size_t columns;
  std::size_t rows;
};
// Of the terminal on stdout; 100 columns when there is none.
screen_size screen();

enum class style { plain, bold, dim, red, green, yellow, cyan };

// The escape sequence that switches to a style, or "" without colour.
std::string_view on(style wanted);
std::string_view off();

}  // namespace holdfast::cli
