// Requests that were given up, or sent twice, and may yet be carried out: whatever they would put must not come when
// nobody knows of it any more. See fence_view.
#include "engines/etcd/etcd_engine.hpp"

namespace holdfast::engines::etcd {

// Whoever compares the fence reads it first of all when it has moved.
void etcd_engine::note_fence(std::int64_t lease, const rpc::TxnResponse& said) {
  if (said.responses_size() == 0) return;
  const auto& seen = said.responses(0).response_range();
  session_->note_fence(lease, seen.kvs_size() == 0 ? 0 : seen.kvs(0).mod_revision(),
                       said.header().revision());
}

// The fence is moved on, so whatever was sent for this entry, and is still under way, will not be carried out. It may
// have been until now: then the key is there, and its revision is not known.
verb<bool> etcd_engine::end_doubt(book::ref mine, way how) {
  std::int64_t lease = 0;
  {
    const auto lock = book_.lock();
    if (!is_in_doubt(*mine)) co_return false;
    lease = mine->lease;
  }
  const auto is_current = [&] {
    const auto now = session_->current();
    return now && now->id == lease;
  };
  if (is_current()) {  // else it is being given back, with all that is put under it
    const auto fence = session_->fence(lease);
    auto step = fence_step(fence, lease);
    auto got = co_await transact(std::move(step), mine->name, {lease}, how);
    if (!got && is_current()) co_return error{errc::outcome_unknown, got.error().message()};
    if (got && got->said.succeeded()) {
      const auto revision = got->said.header().revision();
      session_->note_fence(lease, revision, revision);
    } else if (got) {
      note_fence(lease, got->said);
    }
  }
  const auto lock = book_.lock();
  for (auto* one = mine.get(); one != nullptr; one = one->over.get()) one->in_doubt = false;
  co_return true;
}

}  // namespace holdfast::engines::etcd
