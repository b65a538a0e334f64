// Requests that were given up, or sent twice, and may yet be carried out: whatever they would put must not come when
// this client has forgotten it. See epoch_view.
#include "engines/etcd/etcd_engine.hpp"

namespace holdfast::engines::etcd {

// A request that compares the epoch reads it first of all when it has moved.
void etcd_engine::note_epoch(std::int64_t lease, const rpc::TxnResponse& said) {
  if (said.responses_size() == 0) return;
  const auto& seen = said.responses(0).response_range();
  session_->note_epoch(lease, seen.kvs_size() == 0 ? 0 : seen.kvs(0).mod_revision(),
                       said.header().revision());
}

// The epoch is moved on, so whatever was sent for this entry, and is still under way, will not be carried out. It may
// have been until now: then the key is there, and its revision is not known. The same for a session that we have given
// up: the store may still have it, and would take a late request. Only if it says that there is none is nothing to do.
operation<bool> etcd_engine::end_late_requests(own_entries::ref mine, invocation how) {
  std::int64_t lease = 0;
  {
    const auto lock = entries_.lock();
    if (!may_have_late_requests(*mine)) co_return false;
    lease = mine->lease;
  }
  const auto now = session_->current();
  const bool is_current = now && now->id == lease;
  const auto epoch = session_->epoch(lease);
  rpc::TxnRequest step;
  if (is_current) {
    step = epoch_step(epoch, lease);
  } else {
    add_put(*step.mutable_success(), epoch.key, {}, lease);
  }
  const question ask{method::txn, bytes_of(step)};
  auto said = co_await cluster_->ask(ask, how);
  if (!said.got) co_return error{errc::outcome_unknown, said.got.error().message()};
  if (!said.got->ok() && !lease_is_gone(*said.got))
    co_return error{errc::outcome_unknown, status_error(*said.got, mine->name, how_.url).message()};
  if (!said.got->ok()) {
    session_->is_gone(lease, "the session has ended in the store");
  } else {
    rpc::TxnResponse in;
    if (!in.ParseFromString(said.got->body)) co_return unexpected_answer(mine->name, how_.url);
    const auto revision = in.header().revision();
    if (is_current && in.succeeded()) session_->note_epoch(lease, revision, revision);
    if (is_current && !in.succeeded()) note_epoch(lease, in);
  }
  const auto lock = entries_.lock();
  for (auto* entry = mine.get(); entry != nullptr; entry = entry->over.get())
    entry->in_doubt = false;
  co_return true;
}

}  // namespace holdfast::engines::etcd
