// file_fence: the newest token in a file of one line, 20 digits wide and overwritten in place under flock.
//
// One line fits one sector, which a disk writes whole or not at all; if it ever is not a number,
// that is an error and not "nobody was here". An empty file means that its first writer died before
// it wrote, and admitted nobody.
#include <holdfast/fence.hpp>

#include "fences/token_text.hpp"
#include "support/text.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string_view>

namespace holdfast {

namespace {

constexpr std::size_t line_length = 21;

class descriptor {
 public:
  explicit descriptor(int fd) : fd_(fd) {}
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  ~descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const noexcept { return fd_; }
  bool is_open() const noexcept { return fd_ >= 0; }

 private:
  int fd_;
};

error failed(const std::string& path, std::string_view what, int number) {
  const bool no_right = number == EACCES || number == EPERM || number == EROFS;
  const bool wrong_path = number == ENOENT || number == ENOTDIR || number == ELOOP ||
                          number == EISDIR || number == ENAMETOOLONG || number == ENXIO;
  const auto code = no_right ? errc::denied : wrong_path ? errc::misconfigured : errc::unavailable;
  return {code, fmt::format("The fence file {} could not be {}: {}.", support::quoted(path, 256),
                            what, std::strerror(number))};
}

// Locked until it is closed. NONBLOCK, so that a FIFO in its place is refused instead of hanging us.
result<void> lock_file(const descriptor& file, const std::string& path, int how) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return failed(path, "examined", errno);
  if (!S_ISREG(status.st_mode)) {
    return error{errc::misconfigured,
                 fmt::format("The fence file {} is not a plain file.", support::quoted(path, 256))};
  }
  while (::flock(file.get(), how) != 0) {
    if (errno != EINTR) return failed(path, "locked", errno);
  }
  return {};
}

result<fencing_token> read_token(const descriptor& file, const std::string& path) {
  std::array<char, line_length + 1> line{};
  const auto count = ::pread(file.get(), line.data(), line.size(), 0);
  if (count < 0) return failed(path, "read", errno);
  if (count == 0) return fencing_token{};
  fencing_token token;
  const auto end = line.data() + line_length - 1;
  const auto read = std::from_chars(line.data(), end, token.value);
  if (count != line_length || *end != '\n' || read.ec != std::errc{} || read.ptr != end) {
    return error{
        errc::protocol,
        fmt::format(
            "The fence file {} is damaged; it should hold one number. Find the newest token of its "
            "lock (holdfast show), and write that into it as 20 digits and a newline.",
            support::quoted(path, 256))};
  }
  return token;
}

result<void> sync_file(const descriptor& file, const std::string& path) {
  if (::fsync(file.get()) != 0) return failed(path, "brought to disk", errno);
  return {};
}

result<void> write_token(const descriptor& file, const std::string& path, fencing_token token) {
  const auto line = fmt::format("{:020}\n", token.value);
  const auto count = ::pwrite(file.get(), line.data(), line.size(), 0);
  if (count < 0) return failed(path, "written", errno);
  if (static_cast<std::size_t>(count) != line.size()) return failed(path, "written", ENOSPC);
  return sync_file(file, path);
}

// A new file is only there for good once its directory is.
result<void> sync_directory(const std::string& path) {
  auto parent = std::filesystem::path{path}.parent_path();
  if (parent.empty()) parent = ".";
  const descriptor folder{::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!folder.is_open() || ::fsync(folder.get()) != 0) {
    return failed(path, "brought to disk with its folder", errno);
  }
  return {};
}

}  // namespace

file_fence::file_fence(std::string path) : path_(std::move(path)) {}

result<void> file_fence::admit(fencing_token token) const {
  if (token.value == 0) return fences::no_lease_has_it();
  const descriptor file{
      ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600)};
  if (!file.is_open()) return failed(path_, "opened", errno);
  if (auto ok = lock_file(file, path_, LOCK_EX); !ok) return ok;
  const auto newest = read_token(file, path_);
  if (!newest) return newest.error();
  if (token < *newest) {
    return error{errc::lost,
                 fmt::format("The fence {} has seen token {} and refuses the older {}: another "
                             "holder was here since, so stop.",
                             support::quoted(path_, 256), newest->value, token.value)};
  }
  // Synced again, because whoever wrote it may have died before it did.
  if (token == *newest) return sync_file(file, path_);
  if (auto ok = write_token(file, path_, token); !ok) {
    // After a failed fsync the kernel forgets what it owed the disk, and the next one would
    // "succeed". So the new token must not be found here as if it had been admitted.
    if (newest->value != 0) static_cast<void>(write_token(file, path_, *newest));
    if (newest->value == 0) static_cast<void>(::ftruncate(file.get(), 0) == 0);
    return ok;
  }
  return newest->value == 0 ? sync_directory(path_) : result<void>{};
}

result<fencing_token> file_fence::newest() const {
  const descriptor file{::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
  if (!file.is_open()) {
    if (errno == ENOENT) return fencing_token{};
    return failed(path_, "opened", errno);
  }
  if (auto ok = lock_file(file, path_, LOCK_SH); !ok) return std::move(ok).error();
  return read_token(file, path_);
}

}  // namespace holdfast
