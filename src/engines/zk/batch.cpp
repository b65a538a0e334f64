#include "engines/zk/batch.hpp"

#include <atomic>

namespace holdfast::engines::zk {

batch::batch() {
  static std::atomic<std::uint32_t> batches{0};
  // Any number that is not negative will do, as long as a neighbour's is another.
  first_ = static_cast<std::int32_t>((batches.fetch_add(1, std::memory_order_relaxed) << 10U) &
                                     0x3FFFFFFFU);
}

batch& batch::ping() {
  jute::append_ping(bytes_);
  fixed_ = jute::ping_xid;
  static_cast<void>(next(kind::read));
  return *this;
}

batch& batch::set_watches(const jute::watch_list& what) {
  jute::append_set_watches(bytes_, what);
  fixed_ = jute::set_watches_xid;
  static_cast<void>(next(kind::read));
  return *this;
}

result<jute::reply> batch::header(std::string_view inside, unsigned i) const {
  auto out = jute::open_reply(inside);
  if (!out) return out;
  const auto expected = fixed_.value_or(first_ + static_cast<std::int32_t>(i));
  if (out->xid != expected) return error{errc::protocol, "the answer is not to this request"};
  return out;
}

bool is_agreed(jute::code said) noexcept {
  switch (said) {
    case jute::code::ok:
    case jute::code::no_node:
    case jute::code::no_auth:
    case jute::code::bad_version:
    case jute::code::no_children_for_ephemerals:
    case jute::code::node_exists:
    case jute::code::not_empty:
    case jute::code::invalid_acl:
    case jute::code::quota_exceeded:
      return true;
    default:
      return false;
  }
}

jute::code why_not_agreed(const jute::reply& said) {
  const auto why = jute::failure_of(said);
  return is_agreed(why) ? jute::code::ok : why;
}

jute::code why_no_folder(const answers& got, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    if (!got.ok(i) && got.err(i) != jute::code::node_exists) return got.err(i);
  return jute::code::no_node;
}

}  // namespace holdfast::engines::zk
