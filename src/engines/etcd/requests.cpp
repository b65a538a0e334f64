#include "engines/etcd/requests.hpp"

#include <algorithm>

namespace holdfast::engines::etcd {

namespace {

rpc::Compare& add_compare(rpc::TxnRequest& in, rpc::Compare::Target target,
                          rpc::Compare::Result result, const std::string& key) {
  auto& out = *in.add_compare();
  out.set_target(target);
  out.set_result(result);
  out.set_key(key);
  return out;
}

// To a key of another owner's, which has no label.
void add_mark(operations& to, const std::string& key, const marks& with) {
  auto& put = *to.Add()->mutable_request_put();
  put.set_key(key);
  put.set_value(make_value({}, with));
  put.set_ignore_lease(true);
}

void expect_empty(rpc::TxnRequest& in, const std::string& first, const std::string& end) {
  if (first >= end) return;
  auto& none = add_compare(in, rpc::Compare::CREATE, rpc::Compare::EQUAL, first);
  none.set_create_revision(0);
  none.set_range_end(end);
}

}  // namespace

void expect_created(rpc::TxnRequest& in, const std::string& key, std::int64_t revision) {
  add_compare(in, rpc::Compare::CREATE, rpc::Compare::EQUAL, key).set_create_revision(revision);
}

void expect_modified(rpc::TxnRequest& in, const std::string& key, std::int64_t revision) {
  add_compare(in, rpc::Compare::MOD, rpc::Compare::EQUAL, key).set_mod_revision(revision);
}

void expect_nothing(rpc::TxnRequest& in, const key_range& range, std::vector<stored> but) {
  std::ranges::sort(but, {}, &stored::key);
  auto from = range.first;
  for (auto& gap : but) {
    expect_empty(in, from, gap.key);
    add_compare(in, rpc::Compare::CREATE, rpc::Compare::LESS, gap.key)
        .set_create_revision(gap.created + 1);  // that one, or none
    from = std::move(gap.key);
    from += '\0';  // the next possible key
  }
  expect_empty(in, from, range.end);
}

void expect_unchanged(rpc::TxnRequest& in, const key_range& range, std::int64_t since) {
  auto& older = add_compare(in, rpc::Compare::MOD, rpc::Compare::LESS, range.first);
  older.set_mod_revision(since + 1);
  older.set_range_end(range.end);
}

void add_range(operations& to, const key_range& range) {
  *to.Add()->mutable_request_range() = range_of(range);
}

void add_range(operations& to, const std::string& key) {
  *to.Add()->mutable_request_range() = range_of(key);
}

void add_put(operations& to, const std::string& key, std::string value, std::int64_t lease) {
  auto& put = *to.Add()->mutable_request_put();
  put.set_key(key);
  put.set_value(std::move(value));
  put.set_lease(lease);
}

void add_touch(operations& to, const stored& which) {
  auto& inner = *to.Add()->mutable_request_txn();
  expect_created(inner, which.key, which.created);
  auto& put = *inner.mutable_success()->Add()->mutable_request_put();
  put.set_key(which.key);
  put.set_ignore_value(true);
  put.set_ignore_lease(true);
}

void add_delete(operations& to, const std::string& key) {
  to.Add()->mutable_request_delete_range()->set_key(key);
}

void add_delete(operations& to, const stored& which) {
  auto& inner = *to.Add()->mutable_request_txn();
  expect_created(inner, which.key, which.created);
  add_delete(*inner.mutable_success(), which.key);
}

rpc::TxnRequest& add_hand_over(operations& to, std::span<const successor> successors,
                               const key_range& name) {
  const auto& next = successors.front();
  auto& out = *to.Add()->mutable_request_txn();
  add_range(*out.mutable_failure(), name);
  if (next.overtaken) {
    expect_created(out, next.key, next.created);
    add_touch(*out.mutable_success(), {next.key, next.created});  // it takes a token of its own
    return out;
  }
  expect_modified(out, next.key, next.modified);
  marks with;
  with.sequence = next.sequence;
  with.since_ms = next.since_ms;
  with.token = fencing_token{static_cast<std::uint64_t>(next.created)};
  with.successors.assign(successors.begin() + 1, successors.end());
  add_mark(*out.mutable_success(), next.key, with);
  return out;
}

void add_call(operations& to, const queue_entry& waiter) {
  auto& inner = *to.Add()->mutable_request_txn();
  expect_modified(inner, waiter.key, waiter.modified);
  marks with;
  with.sequence = waiter.owner.sequence;
  with.since_ms = waiter.since_ms;
  with.called = waiter.version + 1;
  add_mark(*inner.mutable_success(), waiter.key, with);
}

rpc::TxnRequest epoch_step(const epoch_view& from, std::int64_t lease) {
  rpc::TxnRequest out;
  expect_modified(out, from.key, from.modified);
  add_put(*out.mutable_success(), from.key, {}, lease);
  add_range(*out.mutable_failure(), from.key);
  return out;
}

rpc::TxnRequest ask_for_keys(std::span<const stored> keys) {
  rpc::TxnRequest out;
  for (const auto& which : keys) {
    auto& range = *out.add_success()->mutable_request_range();
    range.set_key(which.key);
    range.set_keys_only(true);
  }
  return out;
}

std::optional<std::vector<bool>> are_there(std::span<const stored> keys,
                                           const rpc::TxnResponse& said) {
  if (static_cast<std::size_t>(said.responses_size()) != keys.size()) return std::nullopt;
  std::vector<bool> out;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto& kvs = said.responses(static_cast<int>(i)).response_range().kvs();
    out.push_back(!kvs.empty() && kvs[0].create_revision() == keys[i].created);
  }
  return out;
}

rpc::RangeRequest range_of(const key_range& range) {
  rpc::RangeRequest out;
  out.set_key(range.first);
  out.set_range_end(range.end);
  return out;
}

rpc::RangeRequest range_of(const std::string& key) {
  rpc::RangeRequest out;
  out.set_key(key);
  return out;
}

lock_queue queue_in(const google::protobuf::RepeatedPtrField<rpc::KeyValue>& kvs,
                    const key_range& name) {
  std::vector<queue_entry> all;
  for (const auto& kv : kvs)
    if (lies_in(name, kv.key())) all.push_back(read_queue_entry(kv));
  return lock_queue{std::move(all)};
}

}  // namespace holdfast::engines::etcd
