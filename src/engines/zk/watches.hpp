// What this client watches in the store. A watch of ZooKeeper is set by a read, tells of one change, and is over; a
// session that goes on over another connection has its watches set again there.
//
// Thread-safe. Watchers are told once, on the reactor's thread, without locks.
#pragma once

#include "engines/zk/ensemble.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace holdfast::engines::zk {

class watches {
 public:
  // A node that is there; one that may come; the children of one that is there.
  enum class on : std::uint8_t { node, existence, children };
  // gone: it is not there (any more). changed: it, or its children. unsure: look yourself.
  enum class news : std::uint8_t { gone, changed, unsure };
  using told = std::function<void(news)>;

  explicit watches(ensemble& with) : ensemble_(with) {}
  watches(const watches&) = delete;
  watches& operator=(const watches&) = delete;

  // `key` is the watcher's own: a second watch of the same kind, path and key takes the place of the first. `seen`: the
  // zxid of the last change of the children that the watcher knows of; another one is told at once. 0: any will do.
  void watch(on kind, const std::string& path, std::uint64_t key, told done, std::int64_t seen = 0);
  void forget(on kind, const std::string& path, std::uint64_t key);
  // The czxid of a node that is watched, over this connection; 0: it is not.
  std::int64_t watched(const std::string& node) const;

  // Of the reactor's thread.
  void on_event(const jute::event& what);
  void set_again(std::int64_t since);  // the same session, over another connection
  void tell_all();                     // another session

 private:
  using place = std::pair<on, std::string>;
  struct watcher {
    told done;
    std::int64_t seen;
  };
  struct item {
    bool is_set = false;
    bool is_going =
        false;  // the server is asked to forget it, or what it does not tell apart from it
    std::int64_t version = 0;  // when it was set: of the children; of a node its czxid
    std::map<std::uint64_t, watcher> watchers;
  };

  batch remove_unused(std::vector<place>& going);
  void on_removed(const std::vector<place>& gone);
  item* same_to_the_server(const place& where);
  void set(const place& where);
  void on_answer(const place& where, const result<answers>& said);
  void tell(const place& where, news what);

  ensemble& ensemble_;
  mutable std::mutex guard_;
  static constexpr std::size_t most_unused = 1000;
  std::map<place, item> all_;
  std::size_t sweep_at_ = most_unused;
};

}  // namespace holdfast::engines::zk
