// What a client asks the store about one lease: to prove it, and to release it without waiting for the answer.
#include "core/client_core.hpp"
#include "core/hold.hpp"

namespace holdfast::core {

result<void> client_core::renew_now(hold& held, std::uint64_t generation) {
  const auto current = held.current_grant(generation);
  if (!current || !held.valid_at(generation, clock_->now())) return held.lost_error();
  renewal asked;
  asked.held = &*current;
  const auto since = clock_->now();
  const auto answer = engine_->renew({&asked, 1}, bounded_call());
  return conclude_renewal(held, generation, asked, answer, since);
}

result<void> client_core::conclude_renewal(hold& held, std::uint64_t generation, renewal asked,
                                           const result<session_proof>& answer, steady_time since) {
  const auto took = clock_->now() - since;
  if (!answer) {
    note_renewal_failed(answer.error(), took);
    return answer.error();
  }
  if (asked.answer == renewal::verdict::lost && held.changing.load())
    asked.answer = renewal::verdict::unknown;
  if (asked.answer == renewal::verdict::unknown) {
    auto why = could_not_say(held.name);
    note_renewal_failed(why, took);
    return why;
  }
  note_renewed(1, took);
  if (asked.answer == renewal::verdict::lost) {
    held.lose(asked.held->owner, let_go_by_the_store);
    return held.lost_error();
  }
  // Proof that comes after the validity has ended proves nothing: the holder may have relied on that end.
  if (!held.prolong(asked.held->owner, asked) || !held.is_current(generation))
    return held.lost_error();
  return {};
}

namespace {

class sent_release final : public completion<void> {
 public:
  sent_release(client_core& core, std::string name, const grant& held,
               std::unique_ptr<std::stop_source> loss, std::function<void()> answered)
      : core_(core),
        name_(std::move(name)),
        held_(held),
        loss_(std::move(loss)),
        answered_(std::move(answered)),
        limits_(core.bounded_call()) {
    held_.name = name_;
  }
  void start() noexcept { core_.store().start_release(held_, limits_, *this); }

 private:
  void complete(result<void> answer) noexcept override {
    const background_thread mark;
    if (!answer) failed(answer.error());
    const auto answered = std::move(answered_);
    delete this;
    if (answered) answered();
  }
  void failed(const error& why) noexcept {
    if (why.code() == errc::not_held) {
      core_.announce_loss(std::move(loss_), name_, held_.token, let_go_by_the_store);
    } else {
      core_.clear_up(name_, held_.owner, held_.mode);
    }
    core_.tell_release_failed(name_, why);
  }

  client_core& core_;  // outlives its engine, which completes us at the latest when it goes
  const std::string name_;
  grant held_;
  std::unique_ptr<std::stop_source> loss_;
  std::function<void()> answered_;
  const call limits_;
};

}  // namespace

void client_core::send_release(const std::string& name, const grant& held,
                               std::unique_ptr<std::stop_source> loss,
                               std::function<void()> answered) noexcept {
  (new sent_release{*this, name, held, std::move(loss), std::move(answered)})->start();
}

}  // namespace holdfast::core
