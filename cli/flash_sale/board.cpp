#include "flash_sale/board.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <new>
#include <system_error>

namespace holdfast::cli::flash {

namespace {

constexpr std::size_t rounded(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

std::string_view word(fault what) noexcept {
  switch (what) {
    case fault::none:
      return "none";
    case fault::kill:
      return "kill";
    case fault::pause:
      return "pause";
  }
  return "none";
}

board::board(std::size_t buyers, std::size_t orders_each)
    : buyers_(buyers),
      each_(orders_each),
      size_(rounded(sizeof(board_head)) + rounded(buyers * sizeof(buyer_row)) +
            buyers * orders_each * sizeof(order)),
      memory_(::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
  if (memory_ == MAP_FAILED)
    throw std::system_error(errno, std::generic_category(), "Shared memory cannot be mapped");
  auto* at = static_cast<char*>(memory_);
  head_ = new (at) board_head;
  at += rounded(sizeof(board_head));
  rows_ = new (at) buyer_row[buyers];
  at += rounded(buyers * sizeof(buyer_row));
  // Zeros are orders, too: pages that nobody writes to are never there.
  orders_ = std::launder(reinterpret_cast<order*>(at));
}

board::~board() { ::munmap(memory_, size_); }

}  // namespace holdfast::cli::flash
