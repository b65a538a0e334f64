#include "engines/etcd/watches.hpp"

#include "engines/etcd/requests.hpp"

#include <vector>

namespace holdfast::engines::etcd {

namespace {

using namespace std::chrono_literals;

constexpr auto pause_after_refusal = 1s;

}  // namespace

watches::watches(cluster& with) : cluster_(with), stream_(with, method::watch, *this) {}

void watches::end() noexcept {
  run_there(cluster_.driver(), [this] {
    ending_ = true;
    all_.clear();
    stream_.close();
  });
}

watches::id watches::add(key_range of, watcher& to) {
  const auto which = ++last_;
  if (ending_) return which;
  auto& added = all_.emplace(which, watch{std::move(of), &to}).first->second;
  if (stream_.is_open()) {
    create(which, added);
  } else {
    stream_.open();  // and on_open() creates all
  }
  return which;
}

void watches::remove(id which) {
  const auto at = all_.find(which);
  if (at == all_.end()) return;
  const auto wire = at->second.wire;
  all_.erase(at);
  if (by_wire_.erase(wire) == 0 || !stream_.is_open()) return;
  rpc::WatchRequest out;
  out.mutable_cancel_request()->set_watch_id(wire);
  stream_.write(bytes_of(out));
}

void watches::create(id which, watch& what) {
  what.wire = ++last_;
  by_wire_[what.wire] = which;
  rpc::WatchRequest out;
  auto& create = *out.mutable_create_request();
  create.set_key(what.of.first);
  create.set_range_end(what.of.end);
  create.set_watch_id(what.wire);
  stream_.write(bytes_of(out));
}

void watches::on_open() noexcept {
  by_wire_.clear();
  for (auto& [which, what] : all_) create(which, what);
}

void watches::on_close() noexcept {
  by_wire_.clear();
  std::vector<id> ids;
  for (const auto& [which, what] : all_) ids.push_back(which);
  for (const auto which : ids)
    if (const auto at = all_.find(which); at != all_.end()) at->second.to->on_break();
}

void watches::on_message(std::string_view message) noexcept {
  rpc::WatchResponse in;
  if (!in.ParseFromArray(message.data(), static_cast<int>(message.size()))) return stream_.move();
  const auto known = by_wire_.find(in.watch_id());
  if (known == by_wire_.end()) return;  // removed meanwhile
  if (in.canceled()) return canceled(known->second, in);
  auto& to = *all_.find(known->second)->second.to;
  if (in.created()) return to.on_watching(in.header().revision());
  if (in.events_size() > 0) to.on_events(in);
}

// Compaction, or we may not watch this.
void watches::canceled(id which, const rpc::WatchResponse& what) {
  by_wire_.erase(what.watch_id());
  const auto again = [this, which] {
    const auto at = all_.find(which);
    if (at == all_.end() || !stream_.is_open() || by_wire_.contains(at->second.wire)) return;
    create(which, at->second);
  };
  const bool at_once = what.compact_revision() != 0;
  all_.find(which)->second.to->on_break();
  if (at_once) return again();
  cluster_.driver().at(std::chrono::steady_clock::now() + pause_after_refusal, again);
}

}  // namespace holdfast::engines::etcd
