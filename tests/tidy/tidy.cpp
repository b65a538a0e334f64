// Checks the C++ sources of a tree for what a compiler does not: the direction of includes, the
// width of lines, and tabs.
//
//   tidy ROOT              reports each offence as file:line, the line and the rule it breaks
//   tidy --expect ROOT     checks the check: exactly the lines marked "// wrong: WORDS" must be
//                          reported, each with a sentence that contains WORDS
//
// It reads text and knows no preprocessor: an include inside #if counts too, and should.

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace fs = std::filesystem;

constexpr std::size_t widest_line = 120;
constexpr std::string_view mark = "// wrong: ";

// Headers from outside the project, from the most harmless to the least.
enum class outside { standard, fmt, system, third_party };

// One row of the rule of arrows. The first row whose `from` begins a file's path applies to it. "@" stands for the
// file's own folder.
struct arrow {
  std::string_view from;
  std::vector<std::string_view> to;
  outside furthest;
  std::string_view sentence;
};

const std::vector<arrow>& arrows() {
  using enum outside;
  static const std::vector<arrow> table{
      {"include/holdfast/asio.hpp",
       {"include/holdfast/"},
       third_party,
       "the adapter to Asio includes Boost and public headers"},
      {"include/holdfast/",
       {"include/holdfast/"},
       standard,
       "a public header includes only the standard library and holdfast/"},
      // Clock and URL are support's own work, with their declarations in the public part.
      {"src/support/",
       {"src/support/", "include/holdfast/clock.hpp", "include/holdfast/url.hpp"},
       system,
       "support includes only support/, the clock and URL headers, fmt and system headers, and "
       "knows nothing of locks"},
      {"src/resp/",
       {"src/resp/", "include/holdfast/result.hpp"},
       standard,
       "resp includes only resp/ and the header of results: a codec knows no socket and no lock"},
      {"src/jute/",
       {"src/jute/", "include/holdfast/result.hpp"},
       standard,
       "jute includes only jute/ and the header of results: a codec knows no socket and no lock"},
      {"src/http/",
       {"src/http/", "src/support/", "include/holdfast/result.hpp"},
       third_party,
       "http includes only http/, support/ and the header of results: a codec knows no socket and "
       "no "
       "lock"},
      {"src/net/",
       {"src/support/", "src/net/", "include/holdfast/result.hpp", "include/holdfast/error.hpp",
        "include/holdfast/types.hpp"},
       third_party,
       "net includes only support/, net/ and the headers of results, errors and types of this "
       "project, and knows "
       "nothing of locks"},
      {"src/grpc/",
       {"src/support/", "src/net/", "src/grpc/", "include/holdfast/result.hpp",
        "include/holdfast/error.hpp", "include/holdfast/types.hpp"},
       third_party,
       "grpc includes only support/, net/, grpc/ and the headers of results, errors and types of "
       "this project, and knows nothing of locks"},
      {"src/core/",
       {"include/holdfast/", "src/support/", "src/core/"},
       system,
       "core includes only holdfast/, support/, core/, fmt and system headers, never an engine"},
      {"src/locks/",
       {"include/holdfast/", "src/support/", "src/core/", "src/locks/"},
       system,
       "the locks include only holdfast/, support/, core/, locks/, fmt and system headers, never "
       "an engine"},
      {"src/fences/",
       {"include/holdfast/", "src/support/", "src/fences/"},
       system,
       "a fence includes only holdfast/, support/, fmt and system headers: it serves programs that "
       "hold no lock"},
      {"src/engines/registry.",
       {"include/holdfast/", "src/"},
       third_party,
       "the registry may include everything"},
      {"src/engines/common/",
       {"include/holdfast/", "src/support/", "src/engines/common/"},
       system,
       "what engines share includes only holdfast/, support/, common/ and system headers, and "
       "knows no engine"},
      {"src/engines/",
       {"include/holdfast/", "src/support/", "src/engines/common/", "src/net/", "src/resp/",
        "src/jute/", "src/grpc/", "src/http/", "@"},
       third_party,
       "an engine includes only holdfast/, support/, net/, resp/, jute/, grpc/, http/, what all "
       "engines "
       "share "
       "and its "
       "own folder, never core or another engine"},
      {"src/",
       {},
       standard,
       "this folder has no row in the table of arrows in tests/tidy/tidy.cpp; give it one"},
      {"cli/serve.cpp",
       {"include/holdfast/", "cli/", "server/serve.hpp", "server/options.hpp", "server/keys.hpp"},
       third_party,
       "the command serve uses the public headers and the front door of server/"},
      {"cli/",
       {"include/holdfast/", "cli/"},
       third_party,
       "the command line uses only the public headers"},
      {"server/",
       {"include/holdfast/", "server/"},
       third_party,
       "the server uses only the public headers"},
      {"examples/",
       {"include/holdfast/", "examples/"},
       third_party,
       "an example uses only the public headers"},
      // Their baselines are our own transport and our own codec, bare.
      {"bench/etcd_bare.",
       {"include/holdfast/", "src/net/", "src/grpc/", "bench/"},
       third_party,
       "the bare transactions use the public headers and the transport"},
      {"bench/zk_bare.",
       {"include/holdfast/", "src/jute/", "bench/"},
       third_party,
       "the bare requests use the public headers and the codec"},
      {"bench/",
       {"include/holdfast/", "bench/"},
       third_party,
       "a benchmark uses only the public headers"},
  };
  return table;
}

constexpr std::array folders{"include", "src", "cli", "server", "examples", "bench", "tests"};

struct offence {
  std::string file;
  std::size_t line;
  std::string text;
  std::string sentence;
};

struct include {
  std::string path;
  bool angled;
};

// The path in an #include line, or nothing.
std::optional<include> parse_include(std::string_view line) {
  auto skip_blanks = [&line] {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  };
  skip_blanks();
  if (!line.starts_with('#')) return std::nullopt;
  line.remove_prefix(1);
  skip_blanks();
  if (!line.starts_with("include")) return std::nullopt;
  line.remove_prefix(7);
  skip_blanks();
  if (!line.starts_with('<') && !line.starts_with('"')) return std::nullopt;
  const bool angled = line.front() == '<';
  const auto end = line.find(angled ? '>' : '"', 1);
  if (end == std::string_view::npos) return std::nullopt;
  return include{std::string{line.substr(1, end - 1)}, angled};
}

outside kind_of(std::string_view path) {
  // No header of the standard library has a dot or a slash in its name, and nearly no other header lacks both.
  if (path.find_first_of("./") == std::string_view::npos) return outside::standard;
  if (path.starts_with("fmt/")) return outside::fmt;
  constexpr std::array system_folders{"sys/", "linux/", "net/", "netinet/", "arpa/", "asm/"};
  const bool in_system_folder = std::any_of(system_folders.begin(), system_folders.end(),
                                            [&](auto folder) { return path.starts_with(folder); });
  const bool at_top = path.find('/') == std::string_view::npos && path.ends_with(".h");
  return in_system_folder || at_top ? outside::system : outside::third_party;
}

// The file of this project that an include names, as a path from the root, or nothing when it comes from outside.
// A quoted path is looked up as the compiler does: beside the file first, then from the include roots.
std::optional<std::string> resolve(const fs::path& root, const fs::path& file,
                                   const include& target) {
  if (!target.angled) {
    const auto beside = (file.parent_path() / target.path).lexically_normal();
    if (fs::exists(root / beside)) return beside.generic_string();
  }
  const auto top = file.begin()->string();  // a program finds its own headers from there
  for (const std::string& include_root :
       {std::string{"include"}, std::string{"src"}, top, std::string{"."}}) {
    const auto candidate = (include_root / fs::path{target.path}).lexically_normal();
    if (fs::exists(root / candidate)) return candidate.generic_string();
  }
  return std::nullopt;
}

// The reason why `file` may not include `target`, or nothing when it may.
std::optional<std::string> wrong_arrow(const fs::path& root, const fs::path& file,
                                       const include& target) {
  const std::string from = file.generic_string();
  const auto rule = std::find_if(arrows().begin(), arrows().end(),
                                 [&](const arrow& row) { return from.starts_with(row.from); });
  if (rule == arrows().end()) return std::nullopt;

  bool allowed = false;
  if (const auto to = resolve(root, file, target)) {
    const std::string own = file.parent_path().generic_string() + "/";
    allowed = std::any_of(rule->to.begin(), rule->to.end(), [&](std::string_view prefix) {
      return to->starts_with(prefix == "@" ? own : prefix);
    });
  } else {
    allowed = kind_of(target.path) <= rule->furthest;
  }
  if (allowed) return std::nullopt;
  return std::string{rule->sentence};
}

// Columns, not bytes: the continuation bytes of UTF-8 take no room.
std::size_t width(std::string_view line) {
  return static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

std::vector<std::string> lines_of(const fs::path& path) {
  std::ifstream in{path};
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<fs::path> sources(const fs::path& root) {
  std::vector<fs::path> found;
  for (const char* folder : folders) {
    if (!fs::is_directory(root / folder)) continue;
    for (auto it = fs::recursive_directory_iterator{root / folder};
         it != fs::recursive_directory_iterator{}; ++it) {
      const auto& path = it->path();
      // The fixture is wrong on purpose.
      if (it->is_directory() && path.filename() == "fixture") it.disable_recursion_pending();
      if (path.extension() == ".hpp" || path.extension() == ".cpp")
        found.push_back(path.lexically_relative(root));
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<offence> check_file(const fs::path& root, const fs::path& file) {
  std::vector<offence> offences;
  std::size_t number = 0;
  for (const auto& line : lines_of(root / file)) {
    ++number;
    auto report = [&](std::string sentence) {
      offences.push_back({file.generic_string(), number, line, std::move(sentence)});
    };
    if (width(line) > widest_line)
      report("a line has at most " + std::to_string(widest_line) + " columns");
    if (line.find('\t') != std::string::npos)
      report("indentation and alignment use spaces, never tabs");
    if (const auto target = parse_include(line)) {
      if (auto reason = wrong_arrow(root, file, *target)) report(std::move(*reason));
    }
  }
  return offences;
}

void print(const offence& found) {
  std::cout << found.file << ':' << found.line << ": " << found.text << "\n    " << found.sentence
            << ".\n";
}

int check(const fs::path& root) {
  std::size_t files = 0;
  std::size_t offences = 0;
  for (const auto& file : sources(root)) {
    ++files;
    for (const auto& found : check_file(root, file)) {
      ++offences;
      print(found);
    }
  }
  if (files == 0) {
    std::cout << "There is no C++ source under " << root << ".\n";
    return 1;
  }
  std::cout << files << " files, " << offences << " offences.\n";
  return offences == 0 ? 0 : 1;
}

int check_the_check(const fs::path& root) {
  std::size_t marked = 0;
  std::size_t surprises = 0;
  for (const auto& file : sources(root)) {
    std::map<std::size_t, std::string> expected;
    std::size_t number = 0;
    for (const auto& line : lines_of(root / file)) {
      ++number;
      if (const auto at = line.find(mark); at != std::string::npos)
        expected[number] = line.substr(at + mark.size());
    }
    marked += expected.size();
    for (const auto& found : check_file(root, file)) {
      const auto it = expected.find(found.line);
      if (it != expected.end() && found.sentence.find(it->second) != std::string::npos) {
        expected.erase(it);
        continue;
      }
      ++surprises;
      std::cout << "Not expected: ";
      print(found);
    }
    for (const auto& [line, words] : expected) {
      ++surprises;
      std::cout << "Not reported: " << file.generic_string() << ':' << line << ": " << words
                << '\n';
    }
  }
  std::cout << marked << " marked lines, " << surprises << " surprises.\n";
  return marked > 0 && surprises == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args{argv + 1, argv + argc};
  if (args.size() == 1 && !args[0].starts_with("--")) return check(args[0]);
  if (args.size() == 2 && args[0] == "--expect") return check_the_check(args[1]);
  std::cerr << "Usage: tidy [--expect] ROOT\n";
  return 64;
}
