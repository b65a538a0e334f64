// The native layout: one Lua script per verb (scripts.hpp), sessions tied to a connection, grants by message.
//
// Acquire, uncontended: one script, three calls inside the server, one round trip. Contended: the script queues us and
// our client hears of the grant on its own channel, hf:c:CLIENT; the release has granted it in the same script.
//
// Presence. With a grace (?grace=, 3 s unless told otherwise) the store may take our locks when no connection has
// listened to our channel for that long, although their ttl has not passed. So a lease must not be believed for longer
// than the grace after the last proof that we were listening. The proof is an answered command on the connection that
// listens: connections do not come back to life, so we were listening at least until that command was sent. It counts
// for grants that the store made, or was asked about, while that connection was there (session_belief.hpp): between two
// connections the store may have given them away. So a connection that listens is a session as in engine.hpp, and its
// heartbeat is one TIME and one DEL (with Sentinel, see presence_command).
//
// The clock of the server. A grant by message counts from the instant at which the releaser's script ran. The message
// says when that was by the server's clock, and answered commands tell how that clock relates to ours: not later than
// "the answer says s, we had sent at t" allows. This trusts the server's clock as far as expiry in Redis does anyway.
// What was learned in one session says nothing in the next: that may be another server, with another clock.
//
// Each verb is an operation, driven in two ways (common/remote_engine.hpp).
#pragma once

#include "engines/common/modes.hpp"
#include "engines/common/session_belief.hpp"
#include "engines/redis/cluster_part.hpp"
#include "engines/redis/connections.hpp"
#include "engines/redis/late_requests.hpp"
#include "engines/redis/waits.hpp"

#include <holdfast/engine.hpp>

#include <atomic>
#include <mutex>
#include <optional>
#include <set>

namespace holdfast::engines::redis {

inline lock_mode mode_in(std::string_view letter) {
  return mode_of(letter).value_or(lock_mode::exclusive);
}
std::optional<owner_id> parse_owner(std::string_view text);

class native final : public cluster_part, private net::channel_listener {
 public:
  // Of a shard: returns at once, and connects when it is needed.
  static result<std::unique_ptr<cluster_part>> open(const settings& how,
                                                    const engine_config& config);
  ~native() override;

  const capabilities& caps() const noexcept override { return caps_; }
  result<std::vector<finding>> diagnose(const call& limits) override;
  bool contended(const grant&) const noexcept override { return true; }
  void serve(std::vector<unsigned> tags) override;
  void leave_server(std::string_view why) override { connections_->leave(why); }

  void start_await(const ticket& place, const call& limits,
                   completion<progress>& done) noexcept override;
  void start_watch(watch_kind kind, std::string_view name, std::uint64_t seen, const call& limits,
                   completion<void>& done) noexcept override;

 private:
  class watching;
  native(const settings& how, const engine_config& config);

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

  // Requests, and how their answers are read (native_wire.cpp).
  std::string key(char kind, std::string_view name) const;
  std::string token_key(std::string_view name) const;
  // Of this client: in a cluster in a slot that the server has.
  std::string client_key(char kind) const;
  std::string listening() const;
  std::string owner_text(const owner_id& owner) const;
  std::string meta(std::string_view label) const;
  command enter_command(const request& ask) const;
  command settle_command(const request& ask) const;
  command release_command(std::string_view name, const owner_id& owner) const;
  command leave_command(std::string_view name, const owner_id& owner, bool place_only) const;
  command enter_all_command(std::span<const request> asks) const;
  command count_command(const counter_request& ask) const;
  command observe_command(watch_kind kind, std::string_view name) const;
  sending send_now() const;
  result<entered> read_entered(const result<answer>& got, const request& ask, const sending& sent);
  result<std::vector<grant>> read_all(const result<answer>& got, std::span<const request> asks,
                                      const sending& sent) const;
  result<void> read_released(const result<answer>& got, const grant& held);
  result<void> read_left(const result<answer>& got, const ticket& place);
  // The owner is done with: nothing that was kept of it counts any more.
  void forget(const owner_id& owner);
  result<counter> read_count(const result<answer>& got, std::string_view name) const;
  command inspect_command(std::string_view name) const;
  result<lock_info> read_inspected(const result<answer>& got, std::string_view name) const;
  std::optional<lock_info> read_info(const resp::value& got, std::string_view name) const;

  // A grant whose ttl the store counts from `from` on, made or asked about in this session.
  grant make_grant(std::string_view name, const owner_id& owner, lock_mode mode,
                   std::uint64_t weight, fencing_token token, steady_time from, nanoseconds ttl,
                   std::uint64_t session) const;
  void note_server_time(std::int64_t server_us, const sending& sent) noexcept;
  steady_time server_instant(std::int64_t server_us, std::uint64_t session, steady_time now) const;

  // Presence (native_renew.cpp).
  command presence_command() const;
  // What replicas must confirm, behind the rest: so many answers more. `renews`: grants are renewed before it.
  std::size_t confirmations(bool renews) const;
  void confirm(command& what, bool renews) const;
  result<void> check_mastership(const answer& got, bool renews, std::string_view for_lock) const;
  bool is_present(steady_time now) const;
  result<void> note_presence(const result<answer>& got, steady_time sent, bool renews,
                             std::string_view for_lock = {});
  // Asks for it unless has_presence(). When it fails, what it was for was not sent.
  operation<void> prove_presence(std::string_view for_lock, invocation how);
  bool has_presence() const { return belief_.current() != 0 && is_present(clock_.now()); }
  command renew_command(std::span<const renewal> batch) const;

  operation<entered> undo(const request& ask, error why, invocation how);
  // On which connections releases of these names may be under way.
  std::set<tracked_channel*> releasing(std::span<const request> asks) const;
  result<entered> read_settled(const result<answer>& got, const request& ask, const sending& sent);
  result<answer> unless_refused(result<answer> got, std::string_view name) const;
  bool enough_replicas(const answer& got) const;
  error not_replicated(const answer& got, std::string_view name) const;
  progress read_push(const std::optional<pushed_grant>& news, const ticket& place) const;
  static waits::judge news_for(const ticket& place);
  operation<std::vector<std::string>> names_of(char kind, std::string_view prefix, invocation how);
  operation<void> inspect_some(std::span<const std::string> names, std::vector<lock_info>& out,
                               invocation how);
  operation<void> read_counters(std::span<const std::string> names, std::vector<counter_info>& out,
                                invocation how);

  void on_push(std::string_view frame) noexcept override;
  void on_message(std::string_view text);
  void on_up(std::uint64_t generation) noexcept override;
  void on_down(const error& why) noexcept override;

  const settings how_;
  const class clock& clock_;
  engine_listener& listener_;
  const std::string client_;  // 32 hex digits
  mutable std::mutex tags_guard_;
  std::vector<unsigned> tags_;      // in a cluster: of this shard
  const std::string host_and_pid_;  // "HOST PID "
  capabilities caps_;
  session_belief belief_;                       // a session is a connection that listens
  std::uint64_t message_session_ = 0;           // the session of messages; of the driver's thread
  std::atomic<std::int64_t> server_offset_{0};  // steady ns - server ns, at least
  mutable std::mutex offset_guard_;             // of writers, and of readers of its session:
  std::uint64_t offset_session_ = 0;            // in which it was learned
  std::atomic<unsigned> releases_sent_{0};      // and not answered yet
  std::atomic<bool> ending_{false};
  late_requests late_requests_;
  std::shared_ptr<waits> waits_;
  std::unique_ptr<connections> connections_;  // goes first: its thread uses everything above
};

}  // namespace holdfast::engines::redis
