// mapping: more room, chunk by chunk.
#include "engines/file/mapping.hpp"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace holdfast::engines::file {

namespace {

// A client that wants a chunk has a shard's mutex, for which others wait.
constexpr std::chrono::milliseconds growing_timeout{250};
constexpr std::uint64_t growth_step = 4 * chunk_bytes;

}  // namespace

bool mapping::is_item(offset where, chunk_kind kind) const noexcept {
  const std::size_t bytes = where * offset_unit;
  if (bytes < chunks_at || bytes >= std::min<std::uint64_t>(head().size, mapped_)) return false;
  const std::size_t inside = bytes % chunk_bytes - sizeof(chunk);
  const std::size_t item = kind == chunk_kind::records ? sizeof(record) : sizeof(entry);
  return bytes % chunk_bytes >= sizeof(chunk) && inside % item == 0 &&
         chunk_around(where).kind == kind;
}

// Blocks are reserved before they are written to: a full disk is an error here and not a SIGBUS there.
result<void> mapping::extend(std::uint64_t bytes) {
  rlimit most{};
  int why = 0;
  if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY &&
      most.rlim_cur < bytes) {
    why = EFBIG;  // the kernel would say so with a deadly signal
  } else {
    do why = posix_fallocate(file_, 0, static_cast<off_t>(bytes));
    while (why == EINTR);
  }
  if (why == 0) return {};
  return error{
      errc::unavailable,
      fmt::format("{} cannot grow to {} bytes: {}. Free some space, or use fewer lock names.",
                  quoted(), bytes, std::strerror(why))};
}

result<void> mapping::lock_growing(nanoseconds limit) const {
  const int got = lock_within(head().growing, limit);
  // Nothing to mend: size is written after the blocks are there, the count after the chunk's header, a
  // session's generation before it is alive.
  if (got == EOWNERDEAD) pthread_mutex_consistent(&head().growing);
  if (got == 0 || got == EOWNERDEAD) return {};
  return error{errc::unavailable,
               fmt::format("{} does not answer: another process has been growing it for "
                           "too long; perhaps it is stopped.",
                           quoted())};
}

result<offset> mapping::take_chunk(std::uint32_t shard_index, chunk_kind kind) {
  if (auto locked = lock_growing(growing_timeout); !locked) return locked.error();
  header& top = head();
  const std::uint32_t index = top.chunk_count;
  const std::uint64_t end = chunks_at + (std::uint64_t{index} + 1) * chunk_bytes;
  result<void> grown;
  if (end > std::min<std::uint64_t>(top.limit, mapped_)) {
    grown =
        error{errc::unavailable,
              fmt::format("{} is full: it has reached {} bytes with {} chunks of lock names; raise "
                          "?max_size= or use fewer names.",
                          quoted(), top.limit.get(), index)};
  } else if (end > top.size) {
    const std::uint64_t wanted =
        std::max(end, std::min<std::uint64_t>({top.size + growth_step, top.limit, mapped_}) /
                          chunk_bytes * chunk_bytes);
    grown = extend(wanted);
    if (grown) top.size.publish(wanted);
  }
  offset where = 0;
  if (grown) {
    chunk& fresh = chunk_number(index);
    fresh.shard = shard_index;
    fresh.next = 0;
    fresh.kind.publish(kind);
    top.chunk_count.publish(index + 1);
    where = offset_of(fresh);
  }
  unlock_growing();
  if (!grown) return grown.error();
  return where;
}

}  // namespace holdfast::engines::file
