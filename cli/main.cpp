// holdfast: distributed locks from the shell. Reads the command line, does it, says what went wrong.
#include "args.hpp"
#include "exit_codes.hpp"
#include "output.hpp"

#include <holdfast/error.hpp>

#include <fmt/format.h>

#include <exception>

int main(int argc, char** argv) {
  using namespace holdfast;
  using namespace holdfast::cli;
  ignore_broken_pipe_signal();
  try {
    const auto what_to_do = parse(argc, argv);
    return what_to_do.what->act(what_to_do.args);
  } catch (const broken_pipe&) {
    return exit_code::ok;
  } catch (const usage_error& e) {
    complain(e.what());
    return exit_code::usage;
  } catch (const lock_error& e) {
    complain(e.what());
    return exit_code_for(e.reason());
  } catch (const std::exception& e) {
    complain(fmt::format("{}.", e.what()));
    return exit_code::internal;
  }
}
