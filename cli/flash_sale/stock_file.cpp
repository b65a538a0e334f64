// The stock in a mapped file, where there is no server. Its fence is compared under flock(2), which the kernel takes
// from a process that dies.
#include "flash_sale/stock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>

namespace holdfast::cli::flash {

namespace {

struct file_shelf {
  std::atomic<std::int64_t> amount;
  std::atomic<std::uint64_t> newest;  // token
};

std::string stock_file_of(const sale_setting& about) { return about.folder + "/stock"; }

[[noreturn]] void fail_for_file(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

class file_stock final : public stock {
 public:
  explicit file_stock(const sale_setting& about)
      : fd_(::open(stock_file_of(about).c_str(), O_RDWR | O_CLOEXEC)),
        size_(sizeof(file_shelf) * static_cast<std::size_t>(about.shelves())) {
    if (fd_ < 0) fail_for_file("The stock cannot be opened");
    void* const memory = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (memory == MAP_FAILED) fail_for_file("The stock cannot be mapped");
    shelves_ = static_cast<file_shelf*>(memory);
  }
  ~file_stock() override {
    ::munmap(shelves_, size_);
    ::close(fd_);
  }
  file_stock(const file_stock&) = delete;
  file_stock& operator=(const file_stock&) = delete;

  std::int64_t read(int shelf) override { return shelves_[shelf].amount; }
  void write(int shelf, std::int64_t amount) override { shelves_[shelf].amount = amount; }

  std::optional<std::int64_t> read(int shelf, fencing_token shown) override {
    const flocked guard{fd_};
    if (!admits(shelf, shown)) return std::nullopt;
    return shelves_[shelf].amount;
  }
  bool write(int shelf, std::int64_t amount, fencing_token shown) override {
    const flocked guard{fd_};
    if (!admits(shelf, shown)) return false;
    shelves_[shelf].amount = amount;
    return true;
  }

 private:
  struct flocked {
    explicit flocked(int fd) : file(fd) {
      while (::flock(file, LOCK_EX) != 0)
        if (errno != EINTR) fail_for_file("The stock cannot be locked");
    }
    ~flocked() { ::flock(file, LOCK_UN); }
    flocked(const flocked&) = delete;
    flocked& operator=(const flocked&) = delete;
    int file;
  };
  bool admits(int shelf, fencing_token shown) {
    if (shelves_[shelf].newest > shown.value) return false;
    shelves_[shelf].newest = shown.value;
    return true;
  }

  int fd_;
  std::size_t size_;
  file_shelf* shelves_ = nullptr;
};

}  // namespace

std::unique_ptr<stock> open_stock_file(const sale_setting& about) {
  return std::make_unique<file_stock>(about);
}

void put_stock_file(const sale_setting& about) {
  const int fd = ::open(stock_file_of(about).c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) fail_for_file("The stock cannot be made");
  const auto size =
      static_cast<off_t>(sizeof(file_shelf) * static_cast<std::size_t>(about.shelves()));
  const bool grown = ::ftruncate(fd, size) == 0;
  ::close(fd);
  if (!grown) fail_for_file("The stock cannot be made");
  file_stock all{about};
  for (int shelf = 0; shelf < about.shelves(); ++shelf) all.write(shelf, about.on_shelf(shelf));
}

}  // namespace holdfast::cli::flash
