// What is asked of a server together, and its answers.
#pragma once

#include "jute/zookeeper.hpp"

#include <holdfast/types.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::engines::zk {

// Requests that are sent together and answered together, one answer each.
class batch {
 public:
  batch();

  batch& create(const jute::creation& what) {
    return jute::append_create(bytes_, next(kind::write), what), *this;
  }
  batch& erase(std::string_view path, std::int32_t version = jute::any_version) {
    return jute::append_delete(bytes_, next(kind::write), path, version), *this;
  }
  batch& set(std::string_view path, std::string_view data, std::int32_t version) {
    return jute::append_set(bytes_, next(kind::write), path, data, version), *this;
  }
  batch& get(std::string_view path, bool watch = false) {
    return jute::append_get(bytes_, next(kind::read), path, watch), *this;
  }
  batch& exists(std::string_view path, bool watch = false) {
    return jute::append_exists(bytes_, next(kind::read), path, watch), *this;
  }
  batch& children(std::string_view path, bool watch = false) {
    return jute::append_children(bytes_, next(kind::read), path, watch), *this;
  }
  batch& remove_watch(std::string_view path, bool of_children) {
    return jute::append_remove_watches(bytes_, next(kind::read), path, of_children), *this;
  }
  batch& rights(std::string_view path) {
    return jute::append_get_acl(bytes_, next(kind::read), path), *this;
  }
  // Several changes as one; `fill` is given the jute::multi.
  template <class Fill>
  batch& multi(Fill&& fill) {
    jute::multi all{bytes_, next(kind::several_writes)};
    fill(all);
    return *this;
  }
  // A change that changes nothing, and that a majority agrees to all the same.
  batch& agree(std::string_view on) {
    return multi([&](jute::multi& all) { all.check(on); });
  }
  // Alone in their batch: their answers have numbers of their own.
  batch& ping();
  batch& set_watches(const jute::watch_list& what);
  batch& close_session() { return jute::append_close(bytes_, next(kind::write)), *this; }

  const std::string& bytes() const noexcept { return bytes_; }
  unsigned size() const noexcept { return size_; }
  bool at_once = false;  // the caller's thread writes, although it does not wait
  // ensemble::connection(), for what counts on the session that it carries: over no other is it sent, and when that one
  // is gone it fails at once. 0: any.
  std::uint64_t only_over = 0;

  // The header of the answer to request `i`; protocol: it is not the answer to that.
  result<jute::reply> header(std::string_view inside, unsigned i) const;
  // What became of request `i`, with that header. A refused multi has an Ok there, and says it inside.
  jute::code outcome(const jute::reply& header, unsigned i) const {
    return kinds_[i] == kind::several_writes ? jute::failure_of(header) : header.err;
  }
  bool is_write(unsigned i) const { return kinds_[i] != kind::read; }

 private:
  enum class kind : char { read, write, several_writes };
  std::int32_t next(kind what) {
    kinds_.push_back(what);
    return first_ + static_cast<std::int32_t>(size_++);
  }

  std::string bytes_;
  std::int32_t first_;
  unsigned size_ = 0;
  std::vector<kind> kinds_;  // one for each request
  std::optional<std::int32_t> fixed_{};
};

// The answers to a batch. The views in them live as long as this.
struct answers {
  std::unique_ptr<std::string> frames;
  std::vector<jute::reply> all;
  steady_time sent;  // of engine_config::clock: before the batch was
  std::uint64_t session =
      0;  // the number of the session that it was asked in; 0: that has changed meanwhile

  const jute::reply& operator[](std::size_t i) const { return all[i]; }
  jute::code err(std::size_t i) const { return all[i].err; }
  bool ok(std::size_t i) const { return all[i].err == jute::code::ok; }
};

// Is that the answer to a write that a majority has agreed to, in a session that lives? An agreed refusal is one, too.
// All others are not known to be: the session's end among them, and what one server says by itself.
bool is_agreed(jute::code said) noexcept;
// Why the answer to batch::agree() is no proof of anything; ok: it is.
jute::code why_not_agreed(const jute::reply& said);

// Why the folder that the first `count` requests were to make is not there.
jute::code why_no_folder(const answers& got, std::size_t count);

}  // namespace holdfast::engines::zk
