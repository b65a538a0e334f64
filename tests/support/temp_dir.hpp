// A directory that is gone with the test.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>
#include <string>

namespace holdfast::testing {

class temp_dir {
 public:
  temp_dir() : temp_dir(std::filesystem::temp_directory_path()) {}
  explicit temp_dir(const std::filesystem::path& under) {
    auto pattern = (under / "holdfast-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = pattern;
  }
  temp_dir(const temp_dir&) = delete;
  temp_dir& operator=(const temp_dir&) = delete;
  ~temp_dir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const noexcept { return path_; }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

// For a server that writes much and cannot be told not to fsync.
inline std::filesystem::path memory_if_possible() {
  constexpr auto shared_memory = "/dev/shm";
  return ::access(shared_memory, W_OK) == 0 ? std::filesystem::path{shared_memory}
                                            : std::filesystem::temp_directory_path();
}

}  // namespace holdfast::testing
