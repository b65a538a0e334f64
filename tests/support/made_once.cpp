#include "support/made_once.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace holdfast::testing {

namespace {

class file_lock {
 public:
  explicit file_lock(const std::string& path)
      : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (file_ < 0 || ::flock(file_, LOCK_EX) != 0)
      throw std::runtime_error(path + ": " + std::strerror(errno));
  }
  file_lock(const file_lock&) = delete;
  file_lock& operator=(const file_lock&) = delete;
  ~file_lock() { ::close(file_); }

 private:
  int file_;
};

}  // namespace

std::filesystem::path made_once(const std::string& name,
                                const std::function<void(const std::filesystem::path&)>& make) {
  const std::filesystem::path cache{HOLDFAST_TEST_CACHE};
  auto ready = cache / name;
  std::filesystem::create_directories(cache);
  const file_lock only_one{ready.string() + ".lock"};
  if (std::filesystem::exists(ready)) return ready;
  const auto unfinished = cache / (name + ".new");
  std::filesystem::remove_all(unfinished);
  make(unfinished);
  std::filesystem::rename(unfinished, ready);
  return ready;
}

}  // namespace holdfast::testing
