#include "engines/etcd/queue_cache.hpp"

namespace holdfast::engines::etcd {

namespace {

using namespace std::chrono_literals;

constexpr auto look_again_after = 100ms;

}  // namespace

void queue_cache::on_watching(std::int64_t) noexcept {
  ++epoch_;
  complete_ = false;
  early_.clear();
  look();
}

// Reads the whole range.
void queue_cache::look() {
  cluster_.ask_in_background({method::range, bytes_of(range_of(of_))}, cluster::answered_within,
                             [to = weak_from_this(), epoch = epoch_](const answer& said) {
                               if (const auto still = to.lock()) still->looked(said, epoch);
                             });
}

void queue_cache::looked(const answer& said, std::uint64_t epoch) {
  if (epoch != epoch_ || complete_) return;
  rpc::RangeResponse in;
  if (!said.got || !said.got->ok() || !in.ParseFromString(said.got->body)) {
    cluster_.driver().at(std::chrono::steady_clock::now() + look_again_after,
                         [self = weak_from_this(), epoch] {
                           const auto still = self.lock();
                           if (still && still->epoch_ == epoch) still->look();
                         });
    return;
  }
  kvs_.clear();
  revision_ = in.header().revision();
  for (auto& kv : *in.mutable_kvs()) kvs_.insert_or_assign(kv.key(), std::move(kv));
  complete_ = true;
  for (const auto& events : std::exchange(early_, {})) apply(events);
  changed_(*this);
}

void queue_cache::on_events(const rpc::WatchResponse& what) noexcept {
  if (!complete_) {
    early_.push_back(what);
    return;
  }
  apply(what);
  changed_(*this);
}

// The revision in the header may be ahead of what has been told so far.
void queue_cache::apply(const rpc::WatchResponse& what) {
  const auto known = revision_;
  for (const auto& event : what.events()) {
    const auto& kv = event.kv();
    if (kv.mod_revision() <= known) continue;  // was read already
    revision_ = std::max(revision_, kv.mod_revision());
    if (event.type() == rpc::Event::DELETE) {
      kvs_.erase(kv.key());
    } else {
      kvs_.insert_or_assign(kv.key(), kv);
    }
  }
}

void queue_cache::on_break() noexcept {
  ++epoch_;
  complete_ = false;
  early_.clear();
}

lock_queue queue_cache::as_queue() const {
  std::vector<queue_entry> all;
  for (const auto& [key, kv] : kvs_)
    if (lies_in(of_, key)) all.push_back(read_queue_entry(kv));
  return lock_queue{std::move(all)};
}

}  // namespace holdfast::engines::etcd
