#include "engines/file/mapping.hpp"

#include "engines/file/path.hpp"
#include "engines/file/recovery.hpp"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>
#include <vector>

namespace holdfast::engines::file {

namespace {

constexpr std::chrono::seconds opening_timeout{5};

using boot_id = std::array<char, 36>;

result<boot_id> current_boot() {
  boot_id id{};
  std::ifstream file{"/proc/sys/kernel/random/boot_id"};
  if (file.read(id.data(), static_cast<std::streamsize>(id.size()))) return id;
  return error{
      errc::unavailable,
      "The boot id in /proc/sys/kernel/random/boot_id cannot be read; a file store needs it to "
      "tell the locks of this boot from older ones."};
}

std::uint64_t checksum_of(const constants& fixed) {
  std::uint64_t sum = 0xCBF29CE484222325U;
  const auto* bytes = reinterpret_cast<const unsigned char*>(&fixed);
  for (std::size_t i = 0; i < offsetof(constants, checksum); ++i) {
    sum = (sum ^ bytes[i]) * 0x100000001B3U;
  }
  return sum;
}

constants constants_here() {
  constants c{};
  c.magic = magic;
  c.version = format_version;
  c.endian = 0x01020304;
  c.mutex_bytes = sizeof(pthread_mutex_t);
  c.page_bytes = static_cast<std::uint32_t>(sysconf(_SC_PAGESIZE));
  c.header_bytes = sizeof(header);
  c.session_bytes = sizeof(session);
  c.shard_bytes = sizeof(shard);
  c.record_bytes = sizeof(record);
  c.entry_bytes = sizeof(entry);
  c.sessions = session_count;
  c.shards = shard_count;
  c.buckets = bucket_count;
  c.chunk_bytes = chunk_bytes;
  c.sessions_at = sessions_at;
  c.shards_at = shards_at;
  c.chunks_at = chunks_at;
  return c;
}

bool same_machine_type(constants a, const constants& b) {
  a.hash_seed = b.hash_seed;
  a.created = b.created;
  a.checksum = b.checksum;
  return std::memcmp(&a, &b, sizeof a) == 0;
}

// Creation writes nothing but zeros before it writes the magic number.
bool is_all_zero(int file, std::uint64_t size) {
  std::vector<char> block(1 << 16);
  for (std::uint64_t at = 0; at < size;) {
    const auto got = pread(file, block.data(), block.size(), static_cast<off_t>(at));
    if (got <= 0) return false;
    if (std::any_of(block.begin(), block.begin() + got, [](char c) { return c != 0; }))
      return false;
    at += static_cast<std::uint64_t>(got);
  }
  return true;
}

}  // namespace

void init_robust(pthread_mutex_t& mutex) noexcept {
  std::memset(static_cast<void*>(&mutex), 0, sizeof mutex);
  pthread_mutexattr_t how;
  pthread_mutexattr_init(&how);
  pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&mutex, &how);
  pthread_mutexattr_destroy(&how);
}

int lock_within(pthread_mutex_t& mutex, nanoseconds limit) noexcept {
#if defined(__SANITIZE_THREAD__)
  // gcc 12's ThreadSanitizer does not know pthread_mutex_clocklock, and would take its unlock for a mistake.
  (void)limit;
  return pthread_mutex_lock(&mutex);
#else
  const int got = pthread_mutex_trylock(&mutex);
  if (got != EBUSY) return got;
  const auto end = (std::chrono::steady_clock::now() + limit).time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(end);
  const timespec until{seconds.count(), static_cast<long>(nanoseconds{end - seconds}.count())};
  return pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &until);
#endif
}

std::int64_t wall_nanoseconds() noexcept {
  return std::chrono::duration_cast<nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::uint64_t wall_microseconds() noexcept {
  return static_cast<std::uint64_t>(wall_nanoseconds() / 1000);
}

std::string mapping::quoted() const { return "The store " + path_; }

// ---- opening

result<std::unique_ptr<mapping>> mapping::open(const open_options& options) {
  for (;;) {
    auto file = open_private(options.path);
    if (!file) return file.error();
    std::unique_ptr<mapping> opened{new mapping{options.path, *file}};
    if (auto attached = opened->attach(options); !attached) return attached.error();
    // Removed between our open and our flock: no other client would ever meet us there.
    struct stat at {};
    if (fstat(*file, &at) == 0 && at.st_nlink > 0) return opened;
  }
}

result<void> mapping::attach(const open_options& options) {
  const auto boot = current_boot();
  if (!boot) return boot.error();
  const auto busy = [this] {
    return error{
        errc::unavailable,
        fmt::format(
            "{} is of an earlier boot or unfinished, and has been in use for {} s by "
            "another process, which must finish or close it first; perhaps a sandbox with a "
            "boot id of its own shares it.",
            quoted(), opening_timeout.count())};
  };
  const auto end = std::chrono::steady_clock::now() + opening_timeout;
  for (;;) {
    if (flock(file_, LOCK_SH | LOCK_NB) == 0) {
      auto work = needs_work(*boot);
      if (!work) return work.error();
      if (!*work) break;
      // Two processes that both found it unfinished must not wait for each other, and the one that finishes it keeps
      // its shared lock for life: so try to be alone, else let go and look again.
      if (flock(file_, LOCK_EX | LOCK_NB) == 0) {
        work = needs_work(*boot);
        if (!work) return work.error();
        if (*work) {
          if (auto done = create(options, *boot); !done) return done;
        }
        continue;
      }
      flock(file_, LOCK_UN);
    }
    if (std::chrono::steady_clock::now() > end) return busy();
    std::this_thread::sleep_for(std::chrono::milliseconds{1});  // there is no flock with a deadline
  }
  if (base_ == nullptr) {
    if (auto mapped = map(std::max(limit_found_, options.limit)); !mapped) return mapped;
  }
  if (options.limit_is_explicit && head().limit < options.limit) head().limit = options.limit;
  return {};
}

// Must it be created, finished or cleared? protocol when it is not ours to touch.
result<bool> mapping::needs_work(const boot_id& boot) {
  const auto refuse = [this](std::string_view why) {
    return error{errc::protocol,
                 fmt::format("{} {}; it was left as it is. Move it away to begin a new "
                             "one, or name another path.",
                             quoted(), why)};
  };
  alignas(header) std::array<std::byte, sizeof(header)> page{};
  const auto got = pread(file_, page.data(), page.size(), 0);
  // The size second: a client that makes the store grow extends the file first and says so in the header then, so the
  // file is never shorter than what its header said before.
  struct stat at {};
  if (fstat(file_, &at) != 0) return refuse("cannot be examined");
  const auto size = static_cast<std::uint64_t>(at.st_size);
  if (size == 0) return true;
  const auto& found = *reinterpret_cast<const header*>(page.data());
  if (got == static_cast<ssize_t>(page.size()) && found.fixed.magic == std::array<char, 8>{}) {
    if (size <= chunks_at && is_all_zero(file_, size)) return true;
  }
  if (got < static_cast<ssize_t>(sizeof(constants)) || found.fixed.magic != magic) {
    return refuse("is not a lock store");
  }
  if (found.fixed.version != format_version) {
    return refuse(fmt::format("has format version {}, and this program knows version {}",
                              found.fixed.version, format_version));
  }
  if (found.fixed.checksum != checksum_of(found.fixed)) return refuse("has a damaged header");
  if (!same_machine_type(constants_here(), found.fixed)) {
    return refuse("was made on another kind of machine or with another C library");
  }
  if (found.ready != header_ready) return true;  // its creator was killed
  const std::uint64_t used = chunks_at + std::uint64_t{found.chunk_count} * chunk_bytes;
  if (size < found.size || found.size < used) return refuse("is truncated or has a damaged header");
  limit_found_ = found.limit;
  return found.boot != boot;
}

// REQUIRES: the exclusive flock. Killed anywhere in here, the next process begins anew.
result<void> mapping::create(const open_options& options, const boot_id& boot) {
  std::uint32_t ready = 0;
  const bool exists = pread(file_, &ready, sizeof ready, offsetof(header, ready)) == sizeof ready &&
                      ready == header_ready;
  if (!exists) {
    if (ftruncate(file_, 0) != 0) {
      return error{errc::unavailable,
                   fmt::format("{} cannot be written: {}.", quoted(), std::strerror(errno))};
    }
    if (auto grown = extend(chunks_at); !grown) return grown;
  }
  unmap();
  if (auto mapped = map(exists ? std::max(limit_found_, options.limit) : options.limit); !mapped) {
    return mapped;
  }
  header& top = head();
  if (!exists) {
    constants fixed = constants_here();
    if (getrandom(&fixed.hash_seed, sizeof fixed.hash_seed, 0) < 0)
      fixed.hash_seed = wall_microseconds();
    fixed.created = wall_microseconds();
    fixed.checksum = checksum_of(fixed);
    top.fixed = fixed;
    top.size = chunks_at;
    top.limit = options.limit;
  }
  begin_boot(*this);
  std::atomic_signal_fence(std::memory_order_seq_cst);  // should we be killed now, it is done again
  top.boot = boot;
  top.ready.publish(header_ready);
  return {};
}

result<void> mapping::map(std::uint64_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
  if (at == MAP_FAILED) {
    return error{errc::unavailable,
                 fmt::format("{} cannot be mapped ({} bytes): {}. A smaller ?max_size= may help.",
                             quoted(), bytes, std::strerror(errno))};
  }
  base_ = static_cast<std::byte*>(at);
  mapped_ = bytes;
  return {};
}

void mapping::unmap() noexcept {
  if (base_ != nullptr) munmap(base_, mapped_);
  base_ = nullptr;
}

mapping::~mapping() {
  unmap();
  ::close(file_);  // and with it our shared flock
}

}  // namespace holdfast::engines::file
