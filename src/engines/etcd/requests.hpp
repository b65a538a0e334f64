// The requests that are made in more than one place, and the queues that come back.
#pragma once

#include "engines/etcd/lock_queue.hpp"

#include <etcd/rpc.pb.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::engines::etcd {

namespace method {
inline constexpr std::string_view range = "/etcdserverpb.KV/Range";
inline constexpr std::string_view txn = "/etcdserverpb.KV/Txn";
inline constexpr std::string_view grant = "/etcdserverpb.Lease/LeaseGrant";
inline constexpr std::string_view revoke = "/etcdserverpb.Lease/LeaseRevoke";
inline constexpr std::string_view keep_alive = "/etcdserverpb.Lease/LeaseKeepAlive";
inline constexpr std::string_view time_to_live = "/etcdserverpb.Lease/LeaseTimeToLive";
inline constexpr std::string_view watch = "/etcdserverpb.Watch/Watch";
inline constexpr std::string_view authenticate = "/etcdserverpb.Auth/Authenticate";
inline constexpr std::string_view status = "/etcdserverpb.Maintenance/Status";
inline constexpr std::string_view alarm = "/etcdserverpb.Maintenance/Alarm";
inline constexpr std::string_view members = "/etcdserverpb.Cluster/MemberList";
}  // namespace method

// etcd takes at most 128 (--max-txn-ops) in one transaction; some room is left for the others in it.
inline constexpr std::size_t most_at_once = 100;

using operations = google::protobuf::RepeatedPtrField<rpc::RequestOp>;

void expect_created(rpc::TxnRequest& in, const std::string& key, std::int64_t revision);
void expect_modified(rpc::TxnRequest& in, const std::string& key, std::int64_t revision);
// Nothing lies in the range but, perhaps, these keys.
void expect_nothing(rpc::TxnRequest& in, const key_range& range, std::vector<stored> but);
// Nothing in the range was created or changed after this revision. (What went is not noticed.)
void expect_unchanged(rpc::TxnRequest& in, const key_range& range, std::int64_t since);

void add_range(operations& to, const key_range& range);
void add_range(operations& to, const std::string& key);
void add_put(operations& to, const std::string& key, std::string value, std::int64_t lease);
// If it is still the one that was created then: to touch a key that is not there fails the whole transaction.
void add_touch(operations& to, const stored& which);
void add_delete(operations& to, const std::string& key);
// Only if it is the one that was created then: the key may be in use again when this is carried out.
void add_delete(operations& to, const stored& which);
// To the first of the successors, which is told the others, if it is still there as we know it. Otherwise the queue is
// read.
rpc::TxnRequest& add_hand_over(operations& to, std::span<const successor> successors,
                               const key_range& name);
// The waiter shall look at the queue; no client came in ahead of it.
void add_call(operations& to, const queue_entry& waiter);

// Changes the epoch, if it is still this one; otherwise it is read.
rpc::TxnRequest epoch_step(const epoch_view& from, std::int64_t lease);

// Are these keys still there, each as it was created then? The answer, for each; nothing: it is none to this question.
rpc::TxnRequest ask_for_keys(std::span<const stored> keys);
std::optional<std::vector<bool>> are_there(std::span<const stored> keys,
                                           const rpc::TxnResponse& said);

rpc::RangeRequest range_of(const key_range& range);
rpc::RangeRequest range_of(const std::string& key);

// What lies directly under the name.
lock_queue queue_in(const google::protobuf::RepeatedPtrField<rpc::KeyValue>& kvs,
                    const key_range& name);

template <class Message>
std::string bytes_of(const Message& what) {
  return what.SerializeAsString();
}

}  // namespace holdfast::engines::etcd
