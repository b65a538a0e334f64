// The verbs on ZooKeeper, in the layouts of Curator, kazoo and go-zookeeper.
//
// Acquire: an ephemeral sequential node below the lock's node, and a list of all such nodes, asked for together: one
// round trip. Which of them hold follows from their order (lock_queue.hpp). Release: the node is deleted. A waiter
// watches the one node that it waits for (watches.hpp). All nodes belong to the client's session (ensemble.hpp).
//
// Each verb is an operation, driven in two ways (common/remote_engine.hpp).
#pragma once

#include "engines/common/remote_engine.hpp"
#include "engines/common/wait_registry.hpp"
#include "engines/zk/ensemble.hpp"
#include "engines/zk/errors.hpp"
#include "engines/zk/janitor.hpp"
#include "engines/zk/lock_queue.hpp"
#include "engines/zk/lone_folders.hpp"
#include "engines/zk/own_nodes.hpp"
#include "engines/zk/settings.hpp"
#include "engines/zk/watches.hpp"

#include <holdfast/engine.hpp>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace holdfast::engines::zk {

struct its_turn {
};  // the node that a waiter waited for was the last one before its own, and is gone
using wait_registry = engines::wait_registry<its_turn, net::reactor>;

class zk_engine final : public remote_engine, private ensemble_listener {
 public:
  static result<std::unique_ptr<engine>> open(const settings& how, const engine_config& config);
  ~zk_engine() override;

  const capabilities& caps() const noexcept override { return caps_; }
  result<std::vector<finding>> diagnose(const call& limits) override;
  // A holder does not hear of those that come behind it.
  bool contended(const grant&) const noexcept override { return true; }
  void start_await(const ticket& place, const call& limits,
                   completion<progress>& done) noexcept override;
  void start_renew(std::span<renewal> batch, const call& limits,
                   completion<session_proof>& done) noexcept override;
  void start_watch(watch_kind kind, std::string_view name, std::uint64_t seen, const call& limits,
                   completion<void>& done) noexcept override;

 private:
  zk_engine(const settings& how, const engine_config& config);

  operation<entered> do_enter(const request& ask, invocation how) override;
  operation<void> do_leave(const ticket& place, invocation how) override;
  operation<void> do_release(const grant& held, invocation how) override;
  operation<entered> do_settle(const request& ask, invocation how) override;
  operation<session_proof> do_renew(std::span<renewal> batch, invocation how) override;
  operation<grant> do_downgrade(const grant& held, lock_mode to, invocation how) override;
  operation<std::vector<grant>> do_enter_all(std::span<const request> asks,
                                             invocation how) override;
  operation<lock_info> do_inspect(std::string_view name, invocation how) override;
  operation<std::vector<lock_info>> do_list(std::string_view prefix, std::size_t limit,
                                            invocation how) override;
  operation<std::size_t> do_revoke(std::string_view name, invocation how) override;
  operation<counter> do_count(const counter_request& ask, invocation how) override;
  operation<std::vector<counter_info>> do_list_counters(std::string_view prefix, std::size_t limit,
                                                        invocation how) override;
  void end_await(const ticket& place) noexcept override {
    waits_->look_again(place.owner.sequence);
  }

  using mine = own_nodes::ref;

  // enter.cpp
  struct sight {  // a queue as it was read, and when
    lock_queue queue;
    steady_time sent{};
    // Of the lock's node; all 0: there was none, so it takes no marks either.
    std::int64_t overtaken = 0;  // see overtaken_at()
    std::int64_t folder = 0;     // its czxid
    std::int32_t version = 0;
    bool takes_marks = false;
  };
  sight sight_of(const jute::children& folder, steady_time sent) const;
  void note_alone(std::int64_t czxid, const own_node& own, const contender& there);
  bool is_alone(const std::string& folder, const own_node& own);
  static std::int64_t overtaken_at(const jute::stat& folder) noexcept;
  operation<std::optional<entered>> barge_in(const request& ask, mine own, sight seen,
                                             invocation how);
  operation<bool> raise_token(const request& ask, mine own, std::int32_t version, invocation how);
  operation<std::optional<entered>> look_before_entering(const request& ask, mine own, bool doubted,
                                                         invocation how);
  operation<entered> enter_queue(const request& ask, mine own, invocation how);
  operation<entered> make_place(const request& ask, mine own, bool lone, invocation how);
  operation<entered> stand(const request& ask, mine own, sight seen, invocation how);
  operation<sight> look(std::string_view name, bool after_all_writes, invocation how);
  operation<void> refuse_if_semaphore(const request& ask, invocation how);
  operation<std::vector<grant>> read_all_entered(std::span<const request> asks,
                                                 const std::vector<mine>& all, const answers& got,
                                                 std::size_t before,
                                                 const std::vector<jute::part>& parts,
                                                 invocation how);
  void add_folders(batch& to, std::string_view folder) const;
  void note_made(std::string_view folder, const answers& got, std::size_t count);
  void add_creation(batch& to, const own_node& own, const request& ask, std::string_view folder,
                    std::string_view base) const;
  jute::creation creation(std::string_view path, std::string_view data,
                          jute::create_mode mode) const;
  std::optional<bool> take_created(own_node& own, const jute::reply& said);
  operation<void> remove(mine own, invocation how);
  operation<void> take_back(mine own, invocation how);
  operation<entered> give_up(mine own, invocation how);
  operation<entered> begin_anew(const request& ask, mine own, invocation how);

  // semaphore.cpp
  struct permits_sight {
    lock_queue queue;                         // below "locks"
    std::vector<contender> permits;           // below "leases", in order
    std::optional<std::uint64_t> capacity{};  // nothing: another program's, which does not say
    std::int64_t changed = 0;                 // zxid of the last change of the permits
    std::int32_t version = 0;                 // of the node that says the capacity
    bool is_blank = false;                    // that node has no content
    bool is_mutex = false;                    // the name is in use as one
    steady_time sent{};

    std::uint64_t taken_by_others(const owner_id& than) const noexcept;
    // Has this owner permits, and none of them beyond the capacity?
    bool are_first(const request& ask) const noexcept;
    bool is_in_no_order(const owner_id& owner) const noexcept;
    bool is_used_by_others(const owner_id& than) const noexcept;
  };
  operation<entered> enter_semaphore(const request& ask, mine own, invocation how);
  operation<permits_sight> try_permits(const request& ask, mine own, invocation how);
  operation<permits_sight> queue_for_permits(const request& ask, mine own, invocation how);
  operation<entered> stand_at_semaphore(const request& ask, mine own, permits_sight seen,
                                        invocation how);
  operation<entered> enter_with_other_number(const request& ask, mine own, std::int32_t version,
                                             invocation how);
  operation<entered> refuse_other_use(const request& ask, mine own, std::uint64_t use,
                                      invocation how);
  operation<entered> wait_for_permits(const request& ask, mine own, permits_sight seen,
                                      invocation how);
  operation<entered> hold_permits(const request& ask, mine own, steady_time sent, invocation how);
  void leave_queue(const mine& own);
  operation<permits_sight> look_at_semaphore(std::string_view name, bool after_all_writes,
                                             invocation how);
  void add_semaphore_folders(batch& to, const request& ask, bool queues) const;
  void add_semaphore_look(batch& to, std::string_view name) const;
  result<permits_sight> read_semaphore(std::string_view name, const answers& got,
                                       std::size_t from) const;
  void add_permits(batch& to, const own_node& own, const request& ask) const;
  bool fit_one_request(const request& ask, const own_node& own) const;
  result<void> take_permits(own_node& own, const request& ask, const answers& got, std::size_t at);
  std::optional<std::uint64_t> other_use(const request& ask, const permits_sight& seen) const;
  bool adopt(own_node& own, const permits_sight& seen);
  operation<void> drop_permits(mine own, invocation how);

  // plain.cpp
  operation<entered> enter_plainly(const request& ask, mine own, invocation how);
  std::string plain_data(const own_node& own) const;
  static bool is_plain_node_of(const owner_id& owner, const jute::reply& said);
  operation<void> remove_plainly(mine own, invocation how);
  struct plain_node {
    std::string path{};      // empty: it is not there
    std::uint64_t over = 0;  // a connection of its session; 0: there is none
  };
  operation<plain_node> find_plainly(std::string_view name, owner_id owner, invocation how);
  operation<bool> erase_plainly(std::string_view name, plain_node there, invocation how);
  operation<bool> erase_found_plainly(std::string_view name, owner_id owner, invocation how);

  // grants.cpp
  operation<entered> granted(const request& ask, mine own, steady_time sent, invocation how);
  entered waiting(const request& ask, own_node& own, std::string blocker, watches::on kind,
                  bool is_next);
  entered ask_again(const request& ask) const;
  grant as_grant(std::string_view name, own_node& of, steady_time sent) const;
  error failed(const mine& own, error why);
  error gone(std::string_view name, const owner_id& owner) const;
  error session_changed(std::string_view name) const;
  void forget(const mine& own);
  error no_readers_expected(const grant& held) const;
  void stay(const mine& own);
  std::string data_of(const own_node& own, bool is_candidate) const;
  operation<void> release_unlisted(std::string_view name, owner_id owner, invocation how);
  struct found_nodes {
    std::string place;                 // its node in a queue
    std::vector<std::string> permits;  // its nodes among permits
    lock_queue queue;
    std::int64_t overtaken = 0;
    permits_sight semaphore;
    bool any() const noexcept { return !place.empty() || !permits.empty(); }
  };
  operation<found_nodes> find_nodes(std::string_view name, owner_id owner, invocation how);
  void take_found(own_node& own, const found_nodes& found, const struct jute::stat& node,
                  bool is_permit, const contender* there) const;

  // count.cpp
  not_done no_counter(std::string_view path) const;
  nanoseconds counter_lasts(const answers& got) const;
  operation<counter> set_barrier(const counter_request& ask, invocation how);

  // await.cpp
  progress outcome_of(const ticket& place);
  void on_blocker(std::uint64_t number, const std::string& path, watches::news what);
  class observation;

  // renew.cpp
  void conclude_renewal(std::span<renewal> batch, const session_view& now);
  void on_event(const jute::event& what) noexcept override { watches_->on_event(what); }
  void on_session_over(const session_view& gone, std::string_view why) noexcept override;
  void on_connected(bool is_same_session, std::int64_t since) noexcept override;
  void tick();
  void plan_tick();
  void note_new_grant(const mine& own);
  void end_forgotten();
  void watch_own(const mine& own);
  void on_own_node(const mine& own, const std::string& path, watches::news what);
  void on_plain_node(const mine& own, const std::string& path);

  // views.cpp
  std::string folder_of(std::string_view name) const;
  void add_view_look(batch& to, std::string_view name) const;
  struct view {  // holders and waiters, with the path of each
    lock_info info;
    std::vector<std::string> holders, waiters;
  };
  result<view> read_view(std::string_view name, const answers& got, std::size_t from) const;
  result<std::uint64_t> version_in(watch_kind kind, std::string_view name,
                                   const answers& got) const;
  error no_listing() const;
  operation<view> look_at(std::string_view name, invocation how);
  operation<std::vector<view>> look_at_all(std::span<const std::string> names, invocation how);
  operation<void> fill_in(std::span<view> what, invocation how);
  void add_permits_to(view& to, std::string_view folder, const permits_sight& seen) const;
  static view view_of(std::string_view name, std::string_view folder, const lock_queue& queue);
  struct all_views {
    std::map<std::string, view> locks;    // in use
    std::vector<std::string> semaphores;  // perhaps in use: to be looked at
  };
  operation<all_views> find_all(std::string_view prefix, invocation how);
  std::optional<std::string> name_at(std::string_view folder) const;
  void walk(const std::string& folder, const std::vector<std::string_view>& children,
            std::string_view prefix, all_views& found, std::deque<std::string>& todo) const;

  const settings how_;
  const layout& layout_;
  const class clock& clock_;
  engine_listener& listener_;
  const std::string host_;
  const std::int64_t pid_;
  capabilities caps_;
  own_nodes entries_;
  std::unique_ptr<ensemble> ensemble_;
  std::unique_ptr<wait_registry> waits_;
  std::unique_ptr<watches> watches_;
  std::unique_ptr<janitor> janitor_;
  lone_folders lone_;

  // Keys of watches and waits that are not an owner's sequence, which is far smaller.
  static constexpr std::uint64_t own_watch = std::uint64_t{1} << 63U, lone_watch = own_watch - 1;
  std::atomic<std::uint64_t> last_observation_{std::uint64_t{1} << 62U};

  steady_time look_for_forgotten_at_{};  // of the reactor's thread
  std::mutex grants_guard_;
  std::deque<std::pair<steady_time, std::weak_ptr<own_node>>> new_grants_;  // not watched yet
  bool tick_planned_ = false;
  std::atomic<bool> ending_{false};
};

}  // namespace holdfast::engines::zk
