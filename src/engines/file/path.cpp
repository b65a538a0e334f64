#include "engines/file/path.hpp"

#include "engines/file/engine.hpp"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace holdfast::engines::file {

namespace {

constexpr mode_t others_may_write = S_IWGRP | S_IWOTH;
constexpr mode_t others_may_anything = S_IRWXG | S_IRWXO;

bool is_safe_folder(const struct stat& at) {
  return S_ISDIR(at.st_mode) && at.st_uid == geteuid() && (at.st_mode & others_may_write) == 0;
}

bool is_safe_folder(const std::string& path) {
  struct stat at {};
  return lstat(path.c_str(), &at) == 0 && is_safe_folder(at);
}

std::string default_folder() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  const auto usual = fmt::format("/run/user/{}", geteuid());
  // /run/user/0 comes and goes with root's logins; root's cron jobs and shells must meet in one store.
  if (geteuid() == 0 && (runtime == nullptr || usual == runtime) && is_safe_folder("/run")) {
    return "/run/holdfast";
  }
  if (runtime != nullptr && *runtime == '/' && is_safe_folder(runtime)) {
    return std::string{runtime} + "/holdfast";
  }
  if (is_safe_folder(usual)) return usual + "/holdfast";
  return fmt::format("/tmp/holdfast-{}", geteuid());
}

// A folder in /tmp may have been made by another user who waits for us to trust it.
result<void> prepare_folder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return error{errc::unavailable,
                 fmt::format("The folder {} for the default store cannot be made: {}.", path,
                             std::strerror(errno))};
  }
  if (is_safe_folder(path)) return {};
  return error{
      errc::denied,
      fmt::format("The folder {} for the default store is not a folder of user {} that only "
                  "that user may write to; remove it or name another store.",
                  path, geteuid())};
}

bool is_store(int file) {
  std::array<char, magic.size()> begin{};
  return pread(file, begin.data(), begin.size(), 0) == static_cast<ssize_t>(begin.size()) &&
         begin == magic;
}

}  // namespace

std::string default_path() { return default_folder() + "/store"; }

result<open_options> locate(const store_url& url) {
  if (auto known = url.allow_only({"max_size"}); !known) return known.error();
  if (!url.endpoints().empty() || !url.user().empty()) {
    return error{errc::misconfigured,
                 fmt::format("The store {} names a host; a file store is local: write file:/path.",
                             url.str())};
  }
  open_options options;
  const auto limit = url.integer("max_size", static_cast<std::int64_t>(options.limit),
                                 static_cast<std::int64_t>(chunks_at), std::int64_t{1} << 36);
  if (!limit) return limit.error();
  options.limit = static_cast<std::uint64_t>(*limit);
  options.limit_is_explicit = url.find("max_size") != nullptr;
  options.path = url.path();
  if (options.path.empty() || options.path == default_path()) {
    if (auto ready = prepare_folder(default_folder()); !ready) return ready.error();
    options.path = default_path();
  }
  return options;
}

result<int> open_private(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY, 0600);
  if (file < 0) {
    const int why = errno;
    if (why == ELOOP) {
      return error{errc::denied,
                   fmt::format("The store {} is a symbolic link, which is never followed; name the "
                               "file itself.",
                               path)};
    }
    const bool forbidden = why == EACCES || why == EPERM || why == EROFS;
    return error{forbidden ? errc::denied : errc::unavailable,
                 fmt::format("The store {} cannot be opened: {}.", path, std::strerror(why))};
  }
  struct stat at {};
  std::string complaint;
  if (fstat(file, &at) != 0) {
    complaint = std::strerror(errno);
  } else if (!S_ISREG(at.st_mode)) {
    complaint = "it is not a regular file; name another path";
  } else if (at.st_uid != geteuid()) {
    complaint = fmt::format("it belongs to user {} and not to user {}; name another path",
                            at.st_uid, geteuid());
  } else if ((at.st_mode & others_may_anything) != 0) {
    // Whatever else it is, its owner had a reason: no advice that would lock other users out of it.
    complaint =
        fmt::format("{}others have permissions on it (mode {:04o}); {}",
                    is_store(file) ? "" : "it is not a lock store, and ", at.st_mode & 07777U,
                    is_store(file) ? "chmod 600 " + path : "name another path");
  }
  if (complaint.empty()) return file;
  ::close(file);
  return error{errc::denied, fmt::format("The store {} is refused: {}.", path, complaint)};
}

}  // namespace holdfast::engines::file
