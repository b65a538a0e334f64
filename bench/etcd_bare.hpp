// etcd without us: the two transactions of a lock and nothing else, on our transport and on gRPC C++; and the usual
// recipe for a lock, which watches its predecessor from the revision at which it saw it.
#pragma once

#include "harness.hpp"

#include "grpc/channel.hpp"
#include "net/reactor.hpp"

#include <etcd/rpc.pb.h>
#include <fmt/format.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#if HOLDFAST_BENCH_GRPCPP
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#endif

namespace baseline {

namespace rpc = holdfast::engines::etcd::rpc;

// ---------------------------------------------------------------- requests

// Creates the key if it is absent.
inline rpc::TxnRequest creating(const std::string& key, std::int64_t lease) {
  rpc::TxnRequest ask;
  auto& absent = *ask.add_compare();
  absent.set_target(rpc::Compare::CREATE);
  absent.set_key(key);
  absent.set_create_revision(0);
  auto& put = *ask.add_success()->mutable_request_put();
  put.set_key(key);
  put.set_lease(lease);
  return ask;
}

// Deletes it if it is still the one that was created then.
inline rpc::TxnRequest deleting(const std::string& key, std::int64_t revision) {
  rpc::TxnRequest ask;
  auto& mine = *ask.add_compare();
  mine.set_target(rpc::Compare::CREATE);
  mine.set_key(key);
  mine.set_create_revision(revision);
  ask.add_success()->mutable_request_delete_range()->set_key(key);
  return ask;
}

constexpr auto txn_method = "/etcdserverpb.KV/Txn";

// One lock, one unlock: of whatever client has `txn`.
template <class Client>
void bare_pair(Client& client, const std::string& key, std::int64_t lease) {
  const auto made = client.txn(creating(key, lease));
  if (!made.succeeded()) throw std::runtime_error("Another client has " + key + ".");
  client.txn(deleting(key, made.header().revision()));
}

// ---------------------------------------------------------------- on our transport

class bare_client {
 public:
  explicit bare_client(std::uint16_t port)
      : reactor_(holdfast::net::reactor::start().value()),
        channel_(*reactor_, {.where = {.host = "127.0.0.1", .port = port},
                             .description = fmt::format("etcd://127.0.0.1:{}", port)}) {
    rpc::LeaseGrantRequest ask;
    ask.set_ttl(600);
    lease_ = call<rpc::LeaseGrantResponse>("/etcdserverpb.Lease/LeaseGrant", ask).id();
  }

  std::int64_t lease() const noexcept { return lease_; }
  holdfast::grpc::channel& channel() noexcept { return channel_; }

  template <class Answer, class Question>
  Answer call(std::string_view method, const Question& ask) {
    const auto got = channel_.call(method, ask.SerializeAsString(), {},
                                   {.deadline = steady_clock::now() + std::chrono::seconds{5}});
    if (!got) throw std::runtime_error(got.error().message());
    if (!got->ok()) throw std::runtime_error(got->message);
    Answer answer;
    if (!answer.ParseFromString(got->body)) throw std::runtime_error("etcd answers nonsense.");
    return answer;
  }
  rpc::TxnResponse txn(const rpc::TxnRequest& ask) {
    return call<rpc::TxnResponse>(txn_method, ask);
  }

 private:
  std::unique_ptr<holdfast::net::reactor> reactor_;
  holdfast::grpc::channel channel_;
  std::int64_t lease_ = 0;
};

// ---------------------------------------------------------------- on gRPC C++

#if HOLDFAST_BENCH_GRPCPP
// What a generated stub does.
class grpc_client {
 public:
  explicit grpc_client(std::uint16_t port)
      : channel_(::grpc::CreateChannel(fmt::format("127.0.0.1:{}", port),
                                       ::grpc::InsecureChannelCredentials())),
        method_(txn_method, ::grpc::internal::RpcMethod::NORMAL_RPC, channel_) {}

  rpc::TxnResponse txn(const rpc::TxnRequest& ask) {
    ::grpc::ClientContext context;
    rpc::TxnResponse answer;
    const auto status = ::grpc::internal::BlockingUnaryCall<rpc::TxnRequest, rpc::TxnResponse>(
        channel_.get(), method_, &context, ask, &answer);
    if (!status.ok()) throw std::runtime_error(status.error_message());
    return answer;
  }

 private:
  std::shared_ptr<::grpc::Channel> channel_;
  ::grpc::internal::RpcMethod method_;
};
#endif

// ---------------------------------------------------------------- the recipe

// Watches, one at a time, over one stream.
class deletion_watch final : holdfast::grpc::stream_listener {
 public:
  explicit deletion_watch(holdfast::grpc::channel& on)
      : channel_(on), stream_(on.open_stream("/etcdserverpb.Watch/Watch", {}, *this)) {}
  ~deletion_watch() {
    channel_.cancel(stream_);
    std::unique_lock lock{guard_};
    changed_.wait(lock, [&] { return ended_; });
  }
  deletion_watch(const deletion_watch&) = delete;
  deletion_watch& operator=(const deletion_watch&) = delete;

  // Returns when the key has been deleted, at that revision or later.
  void wait(const std::string& key, std::int64_t from) {
    const auto id = ++last_;
    rpc::WatchRequest ask;
    auto& create = *ask.mutable_create_request();
    create.set_key(key);
    create.set_start_revision(from);
    create.set_watch_id(id);
    channel_.write(stream_, ask.SerializeAsString());
    {
      std::unique_lock lock{guard_};
      changed_.wait(lock, [&] { return ended_ || deleted_.contains(id); });
      if (ended_) throw std::runtime_error("The watch has ended.");
      deleted_.erase(id);
    }
    rpc::WatchRequest done;
    done.mutable_cancel_request()->set_watch_id(id);
    channel_.write(stream_, done.SerializeAsString());
  }

 private:
  void on_message(std::string_view message) noexcept override {
    rpc::WatchResponse news;
    if (!news.ParseFromArray(message.data(), static_cast<int>(message.size()))) return;
    for (const auto& event : news.events()) {
      if (event.type() != rpc::Event::DELETE) continue;
      const std::lock_guard lock{guard_};
      deleted_.insert(news.watch_id());
      changed_.notify_all();
    }
  }
  void on_end(holdfast::result<holdfast::grpc::reply>) noexcept override {
    const std::lock_guard lock{guard_};
    ended_ = true;
    changed_.notify_all();
  }

  holdfast::grpc::channel& channel_;
  std::int64_t last_ = 0;
  std::mutex guard_;
  std::condition_variable changed_;
  std::set<std::int64_t> deleted_;
  bool ended_ = false;
  holdfast::grpc::channel::stream_id stream_;
};

// A key in the queue; while another was created before it, watch the one just before from the revision at which it was
// seen. Here as everywhere it is the watch that costs, not the client: the server serves a watch that begins in its
// past every 100 ms.
class recipe_lock {
 public:
  recipe_lock(std::uint16_t port, std::string name)
      : client_(port),
        watch_(client_.channel()),
        name_(std::move(name)),
        key_(fmt::format("{}/{:x}", name_, client_.lease())) {}

  void lock() {
    auto ask = creating(key_, client_.lease());
    *ask.add_success()->mutable_request_range() = queue_range();
    const auto made = client_.txn(ask);
    if (!made.succeeded()) throw std::runtime_error("It is locked by ourselves.");
    const auto mine = made.header().revision();
    auto before = predecessor(made.responses(1).response_range(), mine);
    for (auto seen = mine; before;) {
      watch_.wait(*before, seen);
      const auto now = client_.call<rpc::RangeResponse>("/etcdserverpb.KV/Range", queue_range());
      seen = now.header().revision();
      before = predecessor(now, mine);
    }
  }
  void unlock() {
    rpc::DeleteRangeRequest ask;
    ask.set_key(key_);
    client_.call<rpc::DeleteRangeResponse>("/etcdserverpb.KV/DeleteRange", ask);
  }

 private:
  rpc::RangeRequest queue_range() const {
    rpc::RangeRequest ask;
    ask.set_key(name_ + "/");
    ask.set_range_end(name_ + "0");
    ask.set_keys_only(true);
    return ask;
  }
  static std::optional<std::string> predecessor(const rpc::RangeResponse& all, std::int64_t mine) {
    const rpc::KeyValue* last = nullptr;
    for (const auto& entry : all.kvs())
      if (entry.create_revision() < mine &&
          (last == nullptr || entry.create_revision() > last->create_revision()))
        last = &entry;
    if (last == nullptr) return std::nullopt;
    return last->key();
  }

  bare_client client_;
  deletion_watch watch_;
  const std::string name_, key_;
};

}  // namespace baseline
