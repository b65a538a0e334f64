// Requests that were given up, or sent twice, and may yet be carried out: whatever they would put must not come when
// nobody knows of it any more. See fence_view.
#include "engines/etcd/etcd_engine.hpp"

#include "support/text.hpp"

#include <fmt/format.h>

namespace holdfast::engines::etcd {

// It cannot be forgotten as long as it might yet come true: core asks settle_verb, which sees to that.
std::optional<error> etcd_engine::doubt_about(const asker& who) const {
  {
    const auto lock = book_.lock();
    if (!who.mine->in_doubt) return std::nullopt;
  }
  return error{errc::outcome_unknown,
               fmt::format("Lock {} on {}: a request for it was sent twice, and the first one may "
                           "yet be carried out.",
                           support::quoted(who.ask.name), how_.url)};
}

void etcd_engine::note_fence(std::int64_t lease, const rpc::RangeResponse& seen,
                             std::int64_t revision) {
  session_->note_fence(lease, seen.kvs_size() == 0 ? 0 : seen.kvs(0).mod_revision(), revision);
}

// The last but one of the answers shows it.
bool etcd_engine::fence_moved(const fence_view& sent, std::int64_t lease,
                              const rpc::TxnResponse& said) {
  if (said.responses_size() < 2) return false;
  note_fence(lease, said.responses(said.responses_size() - 2).response_range(),
             said.header().revision());
  return session_->fence(lease).modified != sent.modified;
}

// Whatever was sent for this entry, and is still under way, will not be carried out.
verb<void> etcd_engine::end_doubt(book::ref mine, way how) {
  std::int64_t lease = 0;
  {
    const auto lock = book_.lock();
    bool any = false;
    for (const auto* one = mine.get(); one != nullptr; one = one->over.get())
      any = any || one->in_doubt;
    if (!any) co_return result<void>{};
    lease = mine->lease;
  }
  const auto is_current = [&] {
    const auto now = session_->current();
    return now && now->id == lease;
  };
  if (is_current()) {  // else it is being given back, and nothing can be put under it
    const auto fence = session_->fence(lease);
    auto step = fence_step(fence, lease);
    auto got = co_await transact(std::move(step), mine->name, {lease}, how);
    if (!got && is_current()) co_return std::move(got).error();
    if (got && got->said.succeeded()) {
      const auto revision = got->said.header().revision();
      session_->note_fence(lease, revision, revision);
    } else if (got) {
      note_fence(lease, got->said.responses(0).response_range(), got->said.header().revision());
    }
  }
  const auto lock = book_.lock();
  for (auto* one = mine.get(); one != nullptr; one = one->over.get()) one->in_doubt = false;
  co_return result<void>{};
}

}  // namespace holdfast::engines::etcd
