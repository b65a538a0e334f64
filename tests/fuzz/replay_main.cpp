// Runs a fuzz target without a fuzzer: over its seeds, and over some thousands of mutations of them that are the same
// every time. So what was found once stays found, with every compiler; finding more is the business of `make fuzz`.
//
//   NAME_replay FOLDER [MUTATIONS]
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using random_source = std::minstd_rand;  // the same numbers everywhere, unlike the distributions

std::vector<std::string> read_seeds(const std::filesystem::path& folder) {
  std::map<std::string, std::string> by_name;  // in the same order everywhere
  for (const auto& entry : std::filesystem::directory_iterator{folder}) {
    std::ifstream file{entry.path(), std::ios::binary};
    by_name[entry.path().filename()] = {std::istreambuf_iterator<char>{file}, {}};
  }
  std::vector<std::string> out;
  for (auto& [name, bytes] : by_name) out.push_back(std::move(bytes));
  return out;
}

std::size_t below(random_source& random, std::size_t limit) { return random() % limit; }

void mutate(std::string& bytes, const std::vector<std::string>& seeds, random_source& random) {
  // Lengths and ends are what protocols trip over.
  static constexpr std::array<std::string_view, 10> words{"\r\n",
                                                          "-1",
                                                          "0",
                                                          "2147483647",
                                                          "4294967296",
                                                          "9223372036854775807",
                                                          "18446744073709551615",
                                                          "99999999999999999999",
                                                          "\xff",
                                                          "-"};
  const auto at = below(random, bytes.size() + 1);
  switch (below(random, 6)) {
    case 0:
      if (at < bytes.size()) bytes[at] = static_cast<char>(below(random, 256));
      break;
    case 1:
      if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(random, 8)));
      break;
    case 2:
      bytes.erase(at, 1 + below(random, 4));
      break;
    case 3:
      bytes.insert(at, words.at(below(random, words.size())));
      break;
    case 4:
      bytes.resize(at);
      break;
    default:
      bytes.insert(at, seeds[below(random, seeds.size())]);
  }
}

void run(const std::string& bytes) {
  // An allocation of exactly that size: the sanitizer then sees a read behind the end.
  const std::vector<std::uint8_t> exact{bytes.begin(), bytes.end()};
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

}  // namespace

int main(int argc, char** argv) {
  const auto seeds = argc > 1 ? read_seeds(argv[1]) : std::vector<std::string>{};
  if (seeds.empty()) {
    std::fprintf(stderr, "usage: %s FOLDER-WITH-SEEDS [MUTATIONS]\n", argv[0]);
    return 2;
  }
  const auto mutations = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 20000;
  run({});
  for (const auto& seed : seeds) run(seed);
  random_source random{42};
  for (unsigned long i = 0; i < mutations; ++i) {
    auto bytes = seeds[below(random, seeds.size())];
    for (auto times = 1 + below(random, 4); times > 0; --times) mutate(bytes, seeds, random);
    run(bytes);
  }
  std::printf("%zu seeds and %lu mutations of them hold.\n", seeds.size(), mutations);
}
