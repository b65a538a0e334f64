// Why a lock alone is not enough: a holder that slept through the end of its lease comes back and writes.
//
// The fence beside the file remembers the newest token it has seen and refuses older ones.
#include <holdfast/holdfast.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

using namespace std::chrono_literals;

namespace {

// Every touch of the file shows its token first, reads included.
bool write(const holdfast::file_fence& fence, const std::filesystem::path& file,
           holdfast::fencing_token token, const std::string& text) {
  if (const auto admitted = fence.admit(token); !admitted) {
    std::cout << "  refused: " << admitted.error().message() << '\n';
    return false;
  }
  std::ofstream{file} << text;
  return true;
}

}  // namespace

int main(int argc, char** argv) try {
  const auto client = holdfast::client::open(argc > 1 ? argv[1] : holdfast::default_store());
  auto folder = (std::filesystem::temp_directory_path() / "holdfast-fencing-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return 1;
  const auto file = std::filesystem::path{folder} / "report.txt";
  const holdfast::file_fence fence{file.string() + ".fence"};
  holdfast::mutex lock{client, "examples/report"};

  auto sleeper = lock.acquire({.wait = 5s, .label = "falls asleep"}).value();
  std::cout << "The first holder has token " << sleeper.token().value << " and falls asleep.\n";
  // An operator takes the lock away; the end of a ttl during a long pause does the same.
  client.revoke(lock.name()).value();

  const auto fresh = lock.acquire({.wait = 5s}).value();
  std::cout << "The next holder has token " << fresh.token().value << " and writes.\n";
  const bool new_write = write(fence, file, fresh.token(), "written by the rightful holder");

  std::cout << "The sleeper wakes up and writes, too:\n";
  const bool old_write = write(fence, file, sleeper.token(), "overwritten by a ghost");

  std::string text;
  std::getline(std::ifstream{file}, text);
  std::cout << "The file says: " << text << ".\n";
  std::filesystem::remove_all(folder);
  return new_write && !old_write ? 0 : 1;
} catch (const holdfast::lock_error& e) {
  std::cerr << e.what() << '\n';
  return 1;
}
