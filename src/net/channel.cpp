#include "net/channel.hpp"

#include "net/connection.hpp"
#include "net/ordered_protocol.hpp"
#include "net/reconnector.hpp"

#include <atomic>
#include <utility>

namespace holdfast::net {

class channel::state final : public reconnector {
 public:
  state(reactor::impl& loop, channel_options options)
      : reconnector(loop, {.where = options.where,
                           .find_address = options.find_address,
                           .description = options.description,
                           .connect_timeout = options.connect_timeout,
                           .spin = options.spin,
                           .keep_open = options.keep_open}),
        listener_(std::make_shared<std::atomic<channel_listener*>>(options.listener)),
        options_(std::make_shared<const channel_options>(std::move(options))) {}

  using reconnector::current;
  bool keeps_open() const noexcept { return settings_->keep_open; }
  void send(std::string_view request, unsigned replies, const limits& until, reply_handler& done,
            connection::writer by) noexcept;
  void close() noexcept {
    listener_->store(nullptr);
    reconnector::close();
  }

 private:
  std::unique_ptr<protocol> make_protocol(std::uint32_t) override {
    return std::make_unique<ordered_protocol>(options_, listener_);
  }

  const std::shared_ptr<std::atomic<channel_listener*>> listener_;
  const std::shared_ptr<const channel_options> options_;
};

namespace {

ordered_protocol& spoken(connection& on) { return static_cast<ordered_protocol&>(on.speaks()); }

}  // namespace

void channel::state::send(std::string_view request, unsigned replies, const limits& until,
                          reply_handler& done, connection::writer by) noexcept {
  if (forked()) return done.on_reply(fork_refusal());
  for (;;) {
    const auto found = current();
    if (!found) {
      // Not here and now: a handler that tries again would come back deeper and deeper.
      loop_.post([&done, why = found.error()] { done.on_reply(why); });
      return;
    }
    auto& on = **found;
    auto& speaks = spoken(on);
    const bool begun = on.start(by, [&](protocol_events& out) {
      const auto number = speaks.begin({request, replies, until, on.backlog()}, done,
                                       by == connection::writer::reactor, out);
      if (!number) return true;
      speaks.keep(*number, on.on_stop(until.stop, [number](protocol& to, protocol_events& then) {
        static_cast<ordered_protocol&>(to).cancel(*number, then);
      }));
      return true;
    });
    if (begun)
      return;  // else it was lost since current() returned it, and the next current() knows that
  }
}

// ---- The public face -------------------------------------------------------------------------------------------

channel::channel(reactor& on, channel_options options)
    : state_(std::make_shared<state>(on.inside(), std::move(options))) {
  if (state_->keeps_open()) static_cast<void>(state_->current());
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
  into.clear();
  for (;;) {
    const auto found = state_->current();
    if (!found) return found.error();
    auto& on = **found;
    blocked_exchange self{into};
    const bool begun = on.run(self, until, [&](protocol_events& out) {
      spoken(on).begin({request, replies, until, on.backlog()}, self, out);
      return true;
    });
    if (!begun)
      continue;  // it was lost since current() returned it, and the next current() knows that
    if (self.failure) return std::move(*self.failure);
    return on.generation();
  }
}

void channel::send(std::string_view request, unsigned replies, const limits& until,
                   reply_handler& done) noexcept {
  state_->send(request, replies, until, done, connection::writer::reactor);
}

void channel::send_now(std::string_view request, unsigned replies, const limits& until,
                       reply_handler& done) noexcept {
  state_->send(request, replies, until, done, connection::writer::caller);
}

std::uint64_t channel::generation() const noexcept { return state_->generation(); }

std::uint64_t channel::received() const noexcept { return state_->received(); }

void channel::drop(const error& why) noexcept {
  if (!state_->forked()) state_->drop(why);
}

}  // namespace holdfast::net
