#include "documents/command.hpp"

#include "documents/page.hpp"
#include "support/process.hpp"

#include <holdfast/client.hpp>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

namespace documents {

said workplace::run(const std::string& line) {
  const auto folder = dir_.file("here");
  std::filesystem::create_directories(folder);
  const auto output = dir_.file("output" + std::to_string(runs_++));
  const auto programs = std::filesystem::path{HOLDFAST_CLI}.parent_path().string();
  const char* path = std::getenv("PATH");
  holdfast::testing::process shell{
      {"/usr/bin/env", "-C", folder, "-u", "HOLDFAST_PASSWORD", "-u", "HOLDFAST_FILE_NO_WAITV",
       "HOLDFAST_STORE=file:" + dir_.file("locks"),
       "PATH=" + programs + ':' + (path == nullptr ? "/usr/bin:/bin" : path), "/bin/sh", "-c",
       line},
      output};
  const auto code = shell.wait(std::chrono::minutes{1});
  if (!code) throw std::runtime_error("does not end: " + line);
  return {*code, content(output)};
}

std::set<std::string> schemes_of_this_build() {
  const auto all = holdfast::known_schemes();
  return {all.begin(), all.end()};
}

}  // namespace documents
