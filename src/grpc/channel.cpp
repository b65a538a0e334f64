#include "grpc/channel.hpp"

#include "grpc/http2_protocol.hpp"
#include "net/connection.hpp"
#include "net/reactor.hpp"
#include "net/reconnector.hpp"

#include <utility>

namespace holdfast::grpc {

namespace {

using net::connection;
using net::protocol_events;

net::address speaking_http2(net::address where) {
  where.tls.protocol = "h2";
  return where;
}

net::address_provider speaking_http2(net::address_provider inner) {
  if (!inner) return nullptr;
  return [inner = std::move(inner)](net::address_found done) {
    inner([done = std::move(done)](result<net::address> found) {
      if (!found) return done(std::move(found));
      done(speaking_http2(std::move(*found)));
    });
  };
}

http2_protocol& spoken(connection& on) { return static_cast<http2_protocol&>(on.speaks()); }

}  // namespace

class channel::state final : public net::reconnector {
 public:
  state(net::reactor::impl& loop, channel_options options)
      : reconnector(loop, {.where = speaking_http2(options.where),
                           .find_address = speaking_http2(options.find_address),
                           .description = options.description,
                           .connect_timeout = options.connect_timeout,
                           .spin = options.spin}),
        options_(std::make_shared<const channel_options>(std::move(options))) {}

  using reconnector::current;
  void send(std::string_view method, std::string_view message, const header_list& extra,
            const net::limits& until, reply_handler& done, connection::writer by) noexcept;
  stream_id open_stream(std::string_view method, const header_list& extra,
                        stream_listener& listener) noexcept;
  // The connection that a stream was opened on; null when it is lost.
  std::shared_ptr<connection> connection_of(stream_id which) noexcept {
    return find(http2_protocol::serial_of(which));
  }

 private:
  std::unique_ptr<net::protocol> make_protocol(std::uint32_t serial) override {
    return std::make_unique<http2_protocol>(options_, serial);
  }

  const std::shared_ptr<const channel_options> options_;
};

void channel::state::send(std::string_view method, std::string_view message,
                          const header_list& extra, const net::limits& until, reply_handler& done,
                          connection::writer by) noexcept {
  if (forked()) return done.on_reply(fork_refusal());
  auto made = std::make_unique<pending_call>();
  made->handler = &done;
  made->urgent = by == connection::writer::reactor;
  made->message = message;
  made->request = made->message;
  for (;;) {
    const auto found = current();
    if (!found) {
      // Not here and now: a handler that tries again would come back deeper and deeper.
      loop_.post([&done, why = found.error()] { done.on_reply(why); });
      return;
    }
    auto& on = **found;
    const bool begun = on.start(by, [&](protocol_events& out) {
      auto& speaks = spoken(on);
      auto& call = *made;
      if (!speaks.begin({method, message, extra, until, on.backlog()}, made, out)) return false;
      if (made) return true;  // refused
      const auto number = call.number;
      speaks.keep(number,
                  on.on_stop(until.stop, [number](net::protocol& to, protocol_events& then) {
                    static_cast<http2_protocol&>(to).stop(number, then);
                  }));
      return true;
    });
    if (begun)
      return;  // else it was lost since current() returned it, and the next current() knows that
  }
}

channel::stream_id channel::state::open_stream(std::string_view method, const header_list& extra,
                                               stream_listener& listener) noexcept {
  if (forked()) {
    listener.on_end(fork_refusal());
    return 0;
  }
  auto made = std::make_unique<pending_call>();
  made->is_stream = true;
  made->listener = &listener;
  made->urgent = true;
  for (;;) {
    const auto found = current();
    if (!found) {
      loop_.post([&listener, why = found.error()] { listener.on_end(why); });
      return 0;
    }
    auto& on = **found;
    stream_id number = 0;
    const bool begun = on.start(connection::writer::caller, [&](protocol_events& out) {
      auto& call = *made;
      if (!spoken(on).begin({method, {}, extra, {}, on.backlog()}, made, out)) return false;
      number = call.number;
      return true;
    });
    if (begun) return number;
  }
}

// ---- The public face -------------------------------------------------------------------------------------------

channel::channel(net::reactor& on, channel_options options)
    : state_(std::make_shared<state>(on.inside(), std::move(options))) {}

channel::~channel() {
  if (!state_->forked()) {
    state_->close();
    return;
  }
  state_->close_in_child();
  // Its locks may be held for ever by threads that only the parent has: nothing of it is ever destroyed.
  static_cast<void>(new std::shared_ptr<state>{state_});
}

result<reply> channel::call(std::string_view method, std::string_view request,
                            const header_list& extra, const net::limits& until) {
  if (state_->forked()) return state_->fork_refusal();
  if (auto no = state_->refuse_on_reactor()) return std::move(*no);
  for (;;) {
    const auto found = state_->current();
    if (!found) return found.error();
    auto& on = **found;
    blocked_unary self;
    const bool begun = on.run(self, until, [&](protocol_events& out) {
      return spoken(on).begin({method, request, extra, until, on.backlog()}, self, out);
    });
    if (!begun)
      continue;  // it was lost since current() returned it, and the next current() knows that
    if (self.what.failure) return std::move(*self.what.failure);
    return std::move(self.what.answer);
  }
}

void channel::send(std::string_view method, std::string_view request, const header_list& extra,
                   const net::limits& until, reply_handler& done) noexcept {
  state_->send(method, request, extra, until, done, connection::writer::reactor);
}

void channel::send_now(std::string_view method, std::string_view request, const header_list& extra,
                       const net::limits& until, reply_handler& done) noexcept {
  state_->send(method, request, extra, until, done, connection::writer::caller);
}

channel::stream_id channel::open_stream(std::string_view method, const header_list& extra,
                                        stream_listener& listener) noexcept {
  return state_->open_stream(method, extra, listener);
}

bool channel::write(stream_id to, std::string_view message) noexcept {
  if (state_->forked()) return false;
  const auto on = state_->connection_of(to);
  if (!on) return false;
  bool is_open = false;
  on->change([&](protocol_events& out) { is_open = spoken(*on).write(to, message, out); });
  return is_open;
}

void channel::cancel(stream_id which) noexcept {
  if (state_->forked()) return;
  if (const auto on = state_->connection_of(which))
    on->change([&](protocol_events& out) { spoken(*on).cancel(which, out); });
}

void channel::drop(const error& why) noexcept {
  if (!state_->forked()) state_->drop(why);
}

std::uint64_t channel::generation() const noexcept { return state_->generation(); }

}  // namespace holdfast::grpc
