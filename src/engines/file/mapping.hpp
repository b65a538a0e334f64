// The store file in memory: opened with suspicion, mapped once at its greatest size, grown block by block.
//
// Every attached process keeps a shared flock on the file; a process that must write all of it (to create it, or to
// clear it after a reboot) needs the exclusive one, so that never happens while another uses it.
#pragma once

#include <holdfast/result.hpp>
#include <holdfast/types.hpp>

#include "engines/file/layout.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace holdfast::engines::file {

struct open_options {
  std::string path;
  std::uint64_t limit = std::uint64_t{1} << 30;
  bool limit_is_explicit = false;
};

class mapping {
 public:
  static result<std::unique_ptr<mapping>> open(const open_options& options);
  mapping(const mapping&) = delete;
  mapping& operator=(const mapping&) = delete;
  ~mapping();

  header& head() const noexcept { return at<header>(0); }
  session& session_at(std::uint32_t index) const noexcept {
    return at<session>(sessions_at + index * sizeof(session));
  }
  shard& shard_at(std::uint32_t index) const noexcept {
    return at<shard>(shards_at + index * sizeof(shard));
  }
  record& record_at(offset where) const noexcept { return at<record>(where * offset_unit); }
  entry& entry_at(offset where) const noexcept { return at<entry>(where * offset_unit); }
  chunk& chunk_at(offset where) const noexcept { return at<chunk>(where * offset_unit); }
  chunk& chunk_number(std::uint32_t index) const noexcept {
    return at<chunk>(chunks_at + index * chunk_bytes);
  }
  // The chunk that a record or entry lies in. Its shard never changes.
  chunk& chunk_around(offset where) const noexcept {
    return at<chunk>(where * offset_unit / chunk_bytes * chunk_bytes);
  }
  template <class T>
  offset offset_of(const T& what) const noexcept {
    return static_cast<offset>(
        static_cast<std::size_t>(reinterpret_cast<const std::byte*>(&what) - base_) / offset_unit);
  }
  // Is this the offset of a record or entry that we can see? For values that may be damaged.
  bool is_item(offset where, chunk_kind kind) const noexcept;

  // Another process with a larger max_size may have grown the file beyond what we mapped.
  bool sees_everything() const noexcept { return head().size.get() <= mapped_; }

  std::uint32_t visible_chunks() const noexcept {
    return static_cast<std::uint32_t>((mapped_ - chunks_at) / chunk_bytes);
  }

  // A fresh chunk for that shard. REQUIRES: the shard's mutex is held. unavailable when the file is full.
  result<offset> take_chunk(std::uint32_t shard_index, chunk_kind kind);

  // header.growing. unavailable when a stopped process has it for that long.
  result<void> lock_growing(nanoseconds patience) const;
  void unlock_growing() const noexcept { pthread_mutex_unlock(&head().growing); }

  const std::string& path() const noexcept { return path_; }

 private:
  mapping(std::string path, int file) : path_(std::move(path)), file_(file) {}

  template <class T>
  T& at(std::size_t bytes) const noexcept {
    return *reinterpret_cast<T*>(base_ + bytes);
  }
  result<void> attach(const open_options& options);
  result<bool> needs_work(const std::array<char, 36>& boot);
  result<void> create(const open_options& options, const std::array<char, 36>& boot);
  result<void> map(std::uint64_t bytes);
  void unmap() noexcept;
  result<void> extend(std::uint64_t bytes);
  std::string quoted() const;

  std::string path_;
  int file_ = -1;
  std::byte* base_ = nullptr;
  std::uint64_t mapped_ = 0;
  std::uint64_t limit_found_ = 0;  // in the header, when it was last examined
};

void init_robust(pthread_mutex_t& mutex) noexcept;
// Like pthread_mutex_lock, but ETIMEDOUT after that long: a stopped process must not stop all others.
int lock_within(pthread_mutex_t& mutex, nanoseconds limit) noexcept;
std::uint64_t wall_microseconds() noexcept;
std::int64_t wall_nanoseconds() noexcept;

}  // namespace holdfast::engines::file
