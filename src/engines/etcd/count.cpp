// Counters: one key each, apart from the locks; its value is the number, its version the revision of the last change. A
// lease of its own forgets a counter that is not changed any more.
#include "engines/etcd/etcd_engine.hpp"

#include "engines/common/counter_rule.hpp"

namespace holdfast::engines::etcd {

namespace {

using namespace std::chrono_literals;

constexpr std::int64_t longest_lease = 9'000'000'000;  // seconds; etcd takes no longer ones

}  // namespace

// Reads, and writes if no client has written meanwhile; else reads again. Asked twice, an addition would count twice: a
// write that is not answered is not repeated.
operation<counter> etcd_engine::do_count(const counter_request& ask, invocation how) {
  const auto key = counter_key(how_.root, ask.name);
  for (;;) {
    const question what{method::range, bytes_of(range_of(key))};
    const auto said = co_await cluster_->ask(what, how);
    const auto in = read_reply<rpc::RangeResponse>(said.got, ask.name, how_.url);
    if (!in) co_return in.error();
    const bool exists = in->kvs_size() > 0;
    const auto before = exists ? read_counter(in->kvs(0).value()) : std::nullopt;
    if (exists && !before) co_return unexpected_answer(ask.name, how_.url);
    const auto version = exists ? in->kvs(0).mod_revision() : 0;
    const auto change = change_of(ask, before);
    if (change.what == counter_change::kind::none)
      co_return as_counter(exists, change.applied, before.value_or(0), version);

    rpc::TxnRequest out;
    expect_modified(out, key, version);
    const auto lease = exists ? in->kvs(0).lease() : 0;
    if (change.what == counter_change::kind::erase) {
      add_delete(*out.mutable_success(), key);
    } else if (exists) {
      add_put(*out.mutable_success(), key, std::to_string(change.value), lease);
    } else {
      auto made = co_await counter_lease(ask.keep, how);
      if (!made) co_return std::move(made).error();
      add_put(*out.mutable_success(), key, std::to_string(change.value), *made);
    }
    txn_options once;
    once.repeatable = false;
    auto got = co_await transact(std::move(out), ask.name, once, how);
    if (!got) co_return std::move(got).error();
    if (!got->said.succeeded()) continue;
    if (change.what == counter_change::kind::erase) co_return as_counter(false, true, 0, 0);
    if (lease != 0) session_->touch(lease);
    co_return as_counter(true, true, change.value, got->said.header().revision());
  }
}

// 0: for ever.
operation<std::int64_t> etcd_engine::counter_lease(nanoseconds keep, invocation how) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(keep).count();
  if (seconds <= 0 || seconds > longest_lease) co_return std::int64_t{0};
  rpc::LeaseGrantRequest ask;
  ask.set_ttl(seconds);
  const question what{method::grant, bytes_of(ask)};
  const auto said = co_await cluster_->ask(what, how);
  const auto in = read_reply<rpc::LeaseGrantResponse>(said.got, {}, how_.url);
  if (!in) co_return in.error();
  if (in->id() == 0) co_return unexpected_answer({}, how_.url);
  co_return in->id();
}

}  // namespace holdfast::engines::etcd
