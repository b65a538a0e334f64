// The layout "exclusive": one ephemeral node, which is the lock. Whoever makes it holds; all others watch it, and come
// all at once when it goes (a herd). It is here for comparison, and for programs that lock so.
//
// The node has no owner in its name, and is deleted by its path. When an operator deletes it while we hold it, we hear
// of that; but when another client makes it anew before we have heard, and we release just then, we delete the other's.
// The other layouts have no such moment. That our session has ended, and the node with it, is no such case: what is
// deleted by its path goes only over a connection of the session that made it.
#include "engines/zk/paths.hpp"
#include "engines/zk/zk_engine.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

namespace holdfast::engines::zk {

namespace {

using jute::code;

std::string mark_of(const owner_id& owner) { return fmt::format(" owner={} ", to_string(owner)); }

}  // namespace

std::string zk_engine::plain_data(const own_node& own) const {
  return fmt::format("holdfast pid={}{}host={} label={}", pid_, mark_of(own.owner), host_,
                     own.label);
}

bool zk_engine::is_plain_node_of(const owner_id& owner, const jute::reply& said) {
  const auto node = jute::read_node(said.rest);
  return said.err == code::ok && node && node->data.find(mark_of(owner)) != std::string_view::npos;
}

operation<zk_engine::plain_node> zk_engine::find_plainly(std::string_view name, owner_id owner,
                                                         invocation how) {
  const auto path = flat_path_of(how_.root, name);
  batch ask;
  ask.agree(ensemble_->root()).get(path);
  auto got = co_await ensemble_->ask(ask, how);
  if (!got) co_return as_reading(about(std::move(got).error(), name));
  if (const auto why = why_not_agreed((*got)[0]); why != code::ok)
    co_return refusal(why, name, how_.url);
  if (!got->ok(1) && got->err(1) != code::no_node) co_return refusal(got->err(1), name, how_.url);
  if (!is_plain_node_of(owner, (*got)[1])) co_return plain_node{};
  co_return plain_node{path, got->session == 0 ? 0 : ensemble_->connection_in(got->session)};
}

operation<entered> zk_engine::enter_plainly(const request& ask, mine own, invocation how) {
  auto path = flat_path_of(how_.root, ask.name);
  batch out;
  out.create(creation(path, plain_data(*own), jute::create_mode::ephemeral));
  out.get(path);
  auto got = co_await ensemble_->ask(out, how);
  if (!got) co_return failed(own, about(std::move(got).error(), ask.name));
  if (!got->ok(0) && got->err(0) != code::node_exists)
    co_return failed(own, refusal(got->err(0), ask.name, how_.url));
  const auto node = jute::read_node((*got)[1].rest);
  const bool is_ours = is_plain_node_of(ask.owner, (*got)[1]);
  if (is_ours) {
    {
      const auto lock = entries_.lock();
      own->path = path;
      own->session = ensemble_->number_of(node->stat.ephemeral_owner);
      own->token = {static_cast<std::uint64_t>(node->stat.czxid)};
      own->in_doubt = false;
    }
    auto in = co_await granted(ask, own, got->sent, how);
    watch_own(
        own);  // from now on we hear of it when it is taken away, and leave the next one's alone
    co_return in;
  }
  if (got->ok(0))  // made, and not read: settle finds it
    co_return failed(
        own, error{errc::outcome_unknown,
                   fmt::format("Lock {} on {}: its node was created, but could not be read.",
                               support::quoted(ask.name), how_.url)});
  if (got->ok(1) && node && node->stat.ephemeral_owner == 0)
    co_return failed(own, refusal(code::node_exists, ask.name, how_.url));
  if (!ask.wait) {
    forget(own);
    co_return entered{};
  }
  const auto lock = entries_.lock();
  own->in_doubt = false;
  co_return waiting(ask, *own, std::move(path), watches::on::node, false);
}

// Deletes its node, if that is there: false, if it is not. By its path, so the deletion must not come into another
// session than the look (nor, below, than the grant): by then the node is gone, and what is there is another client's.
operation<bool> zk_engine::erase_found_plainly(std::string_view name, owner_id owner,
                                               invocation how) {
  auto found = co_await find_plainly(name, owner, how);
  if (!found) co_return std::move(found).error();
  if (found->path.empty()) co_return false;
  if (found->over == 0)
    co_return error{errc::unavailable,
                    how_.url + ": the session or its connection ended meanwhile."};
  co_return co_await erase_plainly(name, *found, how);
}

operation<bool> zk_engine::erase_plainly(std::string_view name, plain_node there, invocation how) {
  batch out;
  out.at_once = true;
  out.only_over = there.over;
  out.erase(there.path);
  auto got = co_await ensemble_->ask(out, how);
  if (!got) co_return about(std::move(got).error(), name);
  if (!got->ok(0) && got->err(0) != code::no_node) co_return refusal(got->err(0), name, how_.url);
  co_return got->ok(0);
}

// What we are known to hold goes at once, so that whatever is asked afterwards finds it gone; after a doubt, and over a
// connection that is new, only what a look has shown to be ours.
operation<void> zk_engine::remove_plainly(mine own, invocation how) {
  bool was_erased = false;
  plain_node there;
  {
    const auto lock = entries_.lock();
    if (own->path.empty() && !own->in_doubt) co_return result<void>{};  // it only waited
    was_erased = std::exchange(own->is_erased, true);
    if (!was_erased && !own->in_doubt) there = {own->path, ensemble_->connection_in(own->session)};
  }
  result<bool> was_there = false;
  if (there.over != 0) {
    auto erased = co_await erase_plainly(own->name, there, how);
    was_there = std::move(erased);
  }
  const bool is_unsent = !was_there && was_there.error().code() == errc::unavailable;
  if (there.over == 0 || is_unsent) {
    auto erased = co_await erase_found_plainly(own->name, own->owner, how);
    was_there = std::move(erased);
  }
  if (!was_there) co_return std::move(was_there).error();
  const auto lock = entries_.lock();
  own->path.clear();
  if (!*was_there && !was_erased) co_return gone(own->name, own->owner);
  co_return result<void>{};
}

}  // namespace holdfast::engines::zk
