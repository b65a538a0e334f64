// The verbs of the contract, each passed on to the engine that a service has for us, one to one. What takes its time
// (a ticket's progress, a watch, losses) comes as an event, so a thousand waiters need no connection more.
//
// Each verb is an operation, driven in two ways (common/remote_engine.hpp).
#pragma once

#include "engines/common/remote_engine.hpp"
#include "engines/http/link.hpp"
#include "engines/http/settings.hpp"

#include <holdfast/engine.hpp>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace holdfast::engines::http {

class http_engine final : public remote_engine, private link_listener {
 public:
  static result<std::unique_ptr<engine>> open(const settings& how, const engine_config& config);
  ~http_engine() override;

  const capabilities& caps() const noexcept override { return caps_; }
  result<std::vector<finding>> diagnose(const call& limits) override;
  bool contended(const grant&) const noexcept override { return true; }
  void start_await(const ticket& place, const call& limits,
                   completion<progress>& done) noexcept override;
  void start_renew(std::span<renewal> batch, const call& limits,
                   completion<session_proof>& done) noexcept override;
  void start_watch(watch_kind kind, std::string_view name, std::uint64_t seen, const call& limits,
                   completion<void>& done) noexcept override;

 private:
  class watching;
  http_engine(const settings& how, const engine_config& config);

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
    link_->waits().look_again(place.owner.sequence);
  }

  operation<session_proof> renew_all(std::span<renewal> batch, bool must_ask, invocation how);
  operation<session_proof> renew_some(std::span<renewal> batch, bool must_ask, invocation how);
  grant make_grant(std::string_view name, const grant_record& from, steady_time valid_from,
                   const session_proof& proof) const;
  grant read_grant_of(const answer& got, const grant_record& from, std::string_view name) const;
  result<entered> read_answer_to(const result<answer>& got, const request& ask,
                                 std::uint64_t stream);
  error strange(std::string_view name) const;
  void ended(const owner_id& owner) { link_->waits().forget(owner.sequence); }

  void on_event(std::string_view name, const reply& words, std::uint64_t session) noexcept override;
  void on_progress(const reply& words, std::uint64_t session);
  void on_losses(const reply& words);

  const settings how_;
  const std::array<std::uint64_t, 2> client_;
  const class clock& clock_;
  engine_listener& listener_;
  capabilities caps_;
  std::atomic<std::uint64_t> watches_{0};
  std::unique_ptr<link> link_;  // goes first: its thread uses everything above
};

}  // namespace holdfast::engines::http
