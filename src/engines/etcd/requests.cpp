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

void expect_nothing(rpc::TxnRequest& in, const key_range& range, std::span<const std::string> but) {
  std::vector<std::string> gaps{but.begin(), but.end()};
  std::ranges::sort(gaps);
  auto from = range.first;
  for (auto& gap : gaps) {
    expect_empty(in, from, gap);
    from = std::move(gap);
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

void add_touch(operations& to, const std::string& key) {
  auto& put = *to.Add()->mutable_request_put();
  put.set_key(key);
  put.set_ignore_value(true);
  put.set_ignore_lease(true);
}

void add_delete(operations& to, const std::string& key) {
  to.Add()->mutable_request_delete_range()->set_key(key);
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

line line_in(const google::protobuf::RepeatedPtrField<rpc::KeyValue>& kvs, const key_range& name,
             std::span<const std::string> without) {
  std::vector<place> all;
  for (const auto& kv : kvs)
    if (lies_in(name, kv.key()) && std::ranges::find(without, kv.key()) == without.end())
      all.push_back(read_place(kv));
  return line{std::move(all)};
}

}  // namespace holdfast::engines::etcd
