// A copy of what lies in a range of keys, kept up to date by a watch. Of the driver's thread.
#pragma once

#include "engines/etcd/requests.hpp"
#include "engines/etcd/watches.hpp"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace holdfast::engines::etcd {

class queue_cache final : public watcher, public std::enable_shared_from_this<queue_cache> {
 public:
  // `changed` is called whenever the copy is another one, and complete.
  queue_cache(cluster& with, watches& by, key_range of, std::function<void(queue_cache&)> changed)
      : cluster_(with), watches_(by), of_(std::move(of)), changed_(std::move(changed)) {}
  void begin() { id_ = watches_.add(of_, *this); }
  void end() { watches_.remove(id_); }

  bool is_true() const noexcept { return complete_; }
  std::int64_t revision() const noexcept { return revision_; }
  lock_queue as_queue() const;
  // Of the only key of the range; 0: there is none.
  std::int64_t modified() const noexcept {
    return kvs_.empty() ? 0 : kvs_.begin()->second.mod_revision();
  }

  steady_time used_at{};  // set by the code that looks at it

 private:
  void on_watching(std::int64_t revision) noexcept override;
  void on_events(const rpc::WatchResponse& what) noexcept override;
  void on_break() noexcept override;
  void look();
  void looked(const answer& said, std::uint64_t epoch);
  void apply(const rpc::WatchResponse& what);

  cluster& cluster_;
  watches& watches_;
  const key_range of_;
  const std::function<void(queue_cache&)> changed_;
  watches::id id_ = 0;
  std::uint64_t epoch_ = 0;  // of the watch: answers from before a break do not count
  bool complete_ = false;
  std::int64_t revision_ = 0;
  std::map<std::string, rpc::KeyValue> kvs_;
  std::vector<rpc::WatchResponse> early_;  // came before what they change was read
};

}  // namespace holdfast::engines::etcd
