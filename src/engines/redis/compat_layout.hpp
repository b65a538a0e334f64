// What the layouts that others have defined (setnx.hpp, redisson.hpp) have in common.
//
// Every verb is one script, sent over the connection that the name chooses; a layout says which scripts, and where its
// waiters hear of a change. Scripts that enter or settle answer in one form: {1, token, ms left, weight (permits)} when
// the lock is ours, {0, ms after which it may be free (negative: not known)} when it is not.
//
// There is no presence as in the native layout: a dead holder is noticed when its ttl has passed, and a grant is
// believed for its ttl from before it was asked for.
#pragma once

#include "engines/redis/cluster_part.hpp"
#include "engines/redis/connections.hpp"
#include "engines/redis/late_requests.hpp"
#include "engines/redis/waits.hpp"

#include <holdfast/engine.hpp>

#include <atomic>
#include <charconv>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::engines::redis {

// A number comes as an integer or, where Lua's numbers are too small, as text.
inline std::int64_t number_in(const resp::value& v) {
  if (v.what == resp::value::kind::integer) return v.integer;
  std::int64_t out = 0;
  std::from_chars(v.text.data(), v.text.data() + v.text.size(), out);
  return out;
}

// An owner that another program has written: any bytes.
std::string shown_owner(std::string_view written);

// Of setnx and its relatives: the name of the last token given, behind the prefix.
inline constexpr std::string_view token_counter = "holdfast-token";

class compat_layout : public cluster_part, protected net::channel_listener {
 public:
  const capabilities& caps() const noexcept override { return caps_; }
  result<std::vector<finding>> diagnose(const call& limits) override;
  bool contended(const grant&) const noexcept override { return true; }
  void leave_server(std::string_view why) override { connections_->leave(why); }
  void start_watch(watch_kind kind, std::string_view name, std::uint64_t seen, const call& limits,
                   completion<void>& done) noexcept override;

 protected:
  compat_layout(const settings& how, const engine_config& config, capabilities caps);

  operation<entered> do_enter(const request& ask, invocation how) override;
  operation<void> do_leave(const ticket& place, invocation how) override;
  operation<void> do_release(const grant& held, invocation how) override;
  operation<entered> do_settle(const request& ask, invocation how) override;
  operation<session_proof> do_renew(std::span<renewal> batch, invocation how) override;
  operation<grant> do_downgrade(const grant& held, lock_mode to, invocation how) override;
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

  // What is the same for all of them; the layout adds its own words.
  static capabilities common_caps(const settings& how);
  // Opens the connections; `prepare` runs when connections_ is there and nothing can come over it yet.
  result<void> connect(const std::function<void()>& prepare = {});
  // Closes them: from then on nothing calls back. Every layout does it first in its destructor: answers that come until
  // then may ask for more.
  void disconnect() noexcept;

  std::string key(std::string_view name) const { return how_.prefix + std::string{name}; }
  // There while a request of an owner that was given up may still be delivered: such a request finds it, and is refused
  // (HFOVER). Scripts that enter look for it; it is of no interest to programs of others.
  std::string mark_key(std::string_view name, const owner_id& owner) const;
  // A key in the slot of the lock's key, as Redisson makes them: "{NAME}:suffix", or "NAME:suffix" for a name with a
  // brace.
  std::string after(std::string_view name, std::string_view suffix) const;

  // ---- what a layout says

  virtual result<void> check(const request& ask) const = 0;  // before anything is sent
  virtual command enter_command(const request& ask) const = 0;
  virtual command settle_command(const request& ask) const = 0;
  virtual command release_command(const grant& held) const = 0;
  virtual std::vector<const script*> release_scripts() const = 0;  // all that it may use
  // What releases it names its owner, so it has no effect the second time.
  virtual bool names_owner(const grant&) const { return true; }
  virtual std::optional<command> leave_command(const ticket& place) const = 0;
  // Answers one digit per grant: 1 for held.
  virtual command renew_command(std::span<const renewal> batch) const = 0;
  virtual command inspect_command(std::string_view name) const = 0;
  virtual command revoke_command(std::string_view name) const = 0;  // answers how many
  virtual lock_info read_info(const resp::value& got, std::string_view name) const = 0;

  // How many messages a waiter of this request had heard before it asked; comes back in its ticket's handle.
  virtual std::uint64_t messages_before(const request& ask) const = 0;
  // When it asks again although it has heard nothing. `left`: how long the holder still has, if that is known.
  virtual nanoseconds patience(std::optional<nanoseconds> left) const = 0;

  // Watching: look at the version, wait until it may be another one, look again.
  using on_version = std::function<void(result<std::uint64_t>)>;
  using on_wait_over = std::function<void(result<void>)>;
  virtual std::uint64_t messages_so_far(watch_kind kind, std::string_view name) const;
  virtual void look(watch_kind kind, std::string_view name, const call& limits, on_version done);
  virtual void wait_for_change(watch_kind kind, std::string_view name, std::uint64_t heard,
                               const call& limits, on_wait_over done);

  // What a layout wants to know that keeps a list of its own grants.
  virtual void note_granted(const request&) {}
  virtual void note_released(const grant&, const result<void>&) {}

  error unsupported(std::string_view name, std::string_view what) const;
  error cannot_list(std::string_view one, std::string_view all) const;

  const settings how_;
  const class clock& clock_;
  const capabilities caps_;
  late_requests late_requests_;
  std::unique_ptr<waits> waits_;
  std::atomic<bool> ending_{false};
  std::unique_ptr<connections> connections_;  // goes first: its thread uses everything above

 private:
  class watching;
  result<void> check_slot(std::string_view name) const;
  command marked(command what, std::string_view name, const owner_id& owner) const;
  command marked_in_doubt(command what, std::string_view name, const owner_id& owner) const;
  result<void> read_ended(const result<answer>& got, std::string_view name, const owner_id& owner);
  result<entered> read_settled(const result<answer>& got, const request& ask, steady_time sent);
  command renew_in_parts(std::span<const renewal> batch) const;
  result<entered> read_entered(const result<answer>& got, const request& ask, steady_time sent,
                               std::uint64_t heard);
  result<void> read_released(const result<answer>& got, const grant& held);
};

}  // namespace holdfast::engines::redis
