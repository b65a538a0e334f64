#include "net/channel.hpp"

#include "net/ordered_connection.hpp"
#include "net/reconnector.hpp"

#include <utility>

namespace holdfast::net {

class channel::state final : public reconnector, public ordered_connection_owner {
 public:
  state(reactor::impl& loop, channel_options options)
      : reconnector(loop, options.description, options.keep_open),
        options_(std::make_shared<const channel_options>(std::move(options))) {}

  result<std::shared_ptr<ordered_connection>> current();
  void send(std::string_view request, unsigned replies, const limits& until, reply_handler& done,
            ordered_connection::writer by) noexcept;
  const channel_options& options() const noexcept { return *options_; }

 private:
  std::shared_ptr<connection> make() override {
    return std::make_shared<ordered_connection>(
        loop_, options_, std::static_pointer_cast<state>(shared_from_this()));
  }
  std::uint64_t accepted(const connection& which, int fd) noexcept override {
    return note_accepted(which, fd);
  }
  void lost(const connection& which, const error& why) noexcept override { note_lost(which, why); }
  channel_listener* listener() noexcept override { return closed() ? nullptr : options_->listener; }

  const std::shared_ptr<const channel_options> options_;
};

result<std::shared_ptr<ordered_connection>> channel::state::current() {
  auto found = current_connection();
  if (!found) return std::move(found).error();
  return std::static_pointer_cast<ordered_connection>(std::move(*found));
}

void channel::state::send(std::string_view request, unsigned replies, const limits& until,
                          reply_handler& done, ordered_connection::writer by) noexcept {
  if (forked()) return done.on_reply(fork_refusal());
  for (;;) {
    const auto on = current();
    if (on && (*on)->send(request, replies, until, done, by)) return;
    if (on) continue;  // lost since current() returned it, and the next current() knows that
    // Not here and now: a handler that tries again would come back deeper and deeper.
    loop_.post([&done, why = on.error()] { done.on_reply(why); });
    return;
  }
}

// ---- The public face -------------------------------------------------------------------------------------------

channel::channel(reactor& on, channel_options options)
    : state_(std::make_shared<state>(on.inside(), std::move(options))) {
  if (state_->options().keep_open) static_cast<void>(state_->current());
}

channel::~channel() {
  if (!state_->forked()) {
    state_->close();
    return;
  }
  state_->close_in_child();
  // Its locks may be held for ever by threads that only the parent has: nothing of it is ever destroyed.
  static_cast<void>(new std::shared_ptr<state>{state_});
}

result<std::uint64_t> channel::exchange(std::string_view request, unsigned replies,
                                        const limits& until, std::string& into) {
  if (state_->forked()) return state_->fork_refusal();
  if (auto no = state_->refuse_on_reactor()) return std::move(*no);
  for (;;) {
    const auto on = state_->current();
    if (!on) return on.error();
    // Nothing: it was lost since current() returned it, and the next current() knows that.
    if (auto answer = (*on)->exchange(request, replies, until, into)) return std::move(*answer);
  }
}

void channel::send(std::string_view request, unsigned replies, const limits& until,
                   reply_handler& done) noexcept {
  state_->send(request, replies, until, done, ordered_connection::writer::reactor);
}

void channel::send_now(std::string_view request, unsigned replies, const limits& until,
                       reply_handler& done) noexcept {
  state_->send(request, replies, until, done, ordered_connection::writer::caller);
}

std::uint64_t channel::generation() const noexcept { return state_->generation(); }

std::uint64_t channel::received() const noexcept { return state_->received(); }

void channel::drop(const error& why) noexcept {
  if (!state_->forked()) state_->drop(why);
}

}  // namespace holdfast::net
