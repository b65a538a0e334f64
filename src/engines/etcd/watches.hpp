// All watches of one client, over one stream; made again on a new stream when it ends.
//
// A watch begins "now", never at a revision of the past: such a watch is served by a loop of the server's that runs ten
// times a second only. So a watcher looks at the store once more after the watch was made, each time that it was.
//
// Everything here, and every call of a watcher, is of the reactor's thread.
#pragma once

#include "engines/etcd/queue_entry.hpp"
#include "engines/etcd/stream.hpp"

#include <cstdint>
#include <map>
#include <string>

namespace holdfast::engines::etcd {

namespace rpc {
class Event;
class WatchResponse;
}  // namespace rpc

class watcher {
 public:
  // From this revision on everything will be told. Look now: what has happened before was not. Comes again after a
  // break.
  virtual void on_watching(std::int64_t revision) noexcept = 0;
  // One or more whole transactions.
  virtual void on_events(const rpc::WatchResponse& what) noexcept = 0;
  virtual void on_break() noexcept {}

 protected:
  ~watcher() = default;
};

class watches final : private stream::user {
 public:
  explicit watches(cluster& with);
  void end() noexcept;  // from another thread; no calls any more

  using id = std::int64_t;  // never 0, never used twice
  id add(key_range of, watcher& to);
  id add(const std::string& key, watcher& to) { return add(key_range{key, {}}, to); }
  void remove(id which);
  // If it is this member that we listen to: to another one.
  void leave(std::size_t member) {
    if (stream_.is_open() && stream_.member() == member) stream_.move();
  }

 private:
  struct watch {
    key_range of;
    watcher* to = nullptr;
    std::int64_t wire = 0;  // its number on the stream; another one each time that it is made
  };
  void on_open() noexcept override;
  void on_message(std::string_view message) noexcept override;
  void on_close() noexcept override;
  void create(id which, watch& what);
  void canceled(id which, const rpc::WatchResponse& what);

  cluster& cluster_;
  stream stream_;
  bool ending_ = false;
  std::int64_t last_ = 0;
  std::map<id, watch> all_;
  std::map<std::int64_t, id> by_wire_;
};

}  // namespace holdfast::engines::etcd
