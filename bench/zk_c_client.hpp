// ZooKeeper without us, through its official C client (libzookeeper_mt): the two requests of a lock and nothing else,
// and the usual recipe for a lock, which watches the node just before its own.
#pragma once

#include "harness.hpp"

#include <fmt/format.h>
#include <zookeeper/zookeeper.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string_view>

namespace baseline {

inline void check_zk(int code, const std::string& path) {
  if (code != ZOK) throw std::runtime_error(fmt::format("ZooKeeper, {}: {}", path, zerror(code)));
}

// What a watcher, on the client's own thread, tells a thread that waits.
class signal_once {
 public:
  void set() {
    const std::lock_guard lock{guard_};
    is_set_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock{guard_};
    changed_.wait(lock, [&] { return is_set_; });
  }

 private:
  std::mutex guard_;
  std::condition_variable changed_;
  bool is_set_ = false;
};

// One session. Threads may share it.
class c_client {
 public:
  explicit c_client(std::uint16_t port) {
    zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
    handle_ = zookeeper_init(fmt::format("127.0.0.1:{}", port).c_str(), on_session, 30'000, nullptr,
                             &connected_, 0);
    if (handle_ == nullptr) fail("zookeeper_init");
    connected_.wait();
  }
  c_client(const c_client&) = delete;
  c_client& operator=(const c_client&) = delete;
  ~c_client() { zookeeper_close(handle_); }

  // The path of what was created.
  std::string create(const std::string& path, int mode) {
    std::string made(path.size() + 16, '\0');
    check_zk(zoo_create(handle_, path.c_str(), "", 0, &ZOO_OPEN_ACL_UNSAFE, mode, made.data(),
                        static_cast<int>(made.size())),
             path);
    made.resize(made.find('\0'));
    return made;
  }
  void create_if_absent(const std::string& path) {
    const auto code = zoo_create(handle_, path.c_str(), "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, nullptr, 0);
    if (code != ZNODEEXISTS) check_zk(code, path);
  }
  void erase(const std::string& path) { check_zk(zoo_delete(handle_, path.c_str(), -1), path); }

  std::vector<std::string> children(const std::string& path) {
    String_vector names{};
    check_zk(zoo_get_children(handle_, path.c_str(), 0, &names), path);
    std::vector<std::string> out{names.data, names.data + names.count};
    deallocate_String_vector(&names);
    return out;
  }

  // Returns when the node has changed, or at once when there is none.
  void wait_for_change(const std::string& path) {
    signal_once changed;
    const auto code = zoo_wexists(handle_, path.c_str(), on_change, &changed, nullptr);
    if (code == ZOK) return changed.wait();
    // Its creation would be told to the signal, which is gone then; but a sequential node never comes again.
    if (code != ZNONODE) check_zk(code, path);
  }

 private:
  static void on_session(zhandle_t*, int type, int state, const char*, void* connected) {
    if (type == ZOO_SESSION_EVENT && state == ZOO_CONNECTED_STATE)
      static_cast<signal_once*>(connected)->set();
  }
  static void on_change(zhandle_t*, int type, int, const char*, void* changed) {
    if (type != ZOO_SESSION_EVENT) static_cast<signal_once*>(changed)->set();
  }

  signal_once connected_;
  zhandle_t* handle_ = nullptr;
};

// The two requests of a lock that nobody else wants.
inline void bare_pair(c_client& client, const std::string& folder) {
  client.erase(client.create(folder + "/lock-", ZOO_EPHEMERAL_SEQUENTIAL));
}

// A node in the queue; while another was created before it, watch the one just before and look again.
class recipe_lock {
 public:
  recipe_lock(c_client& client, std::string folder)
      : client_(client), folder_(std::move(folder)), prefix_(folder_ + "/lock-") {
    client_.create_if_absent(folder_);
  }

  void lock() {
    mine_ = client_.create(prefix_, ZOO_EPHEMERAL_SEQUENTIAL);
    while (const auto before = predecessor()) client_.wait_for_change(folder_ + '/' + *before);
  }
  void unlock() { client_.erase(mine_); }

 private:
  std::optional<std::string> predecessor() {
    const auto all = client_.children(folder_);
    const auto me = std::string_view{mine_}.substr(folder_.size() + 1);
    const std::string* last = nullptr;
    for (const auto& name : all)
      if (name < me && (last == nullptr || name > *last)) last = &name;
    if (last == nullptr) return std::nullopt;
    return *last;
  }

  c_client& client_;
  const std::string folder_, prefix_;
  std::string mine_;
};

}  // namespace baseline
