#include "grpc/channel.hpp"

#include "grpc/http2_connection.hpp"
#include "net/reactor.hpp"
#include "net/reconnector.hpp"

#include <map>
#include <mutex>
#include <utility>

namespace holdfast::grpc {

class channel::state final : public net::reconnector, public http2_connection_owner {
 public:
  state(net::reactor::impl& loop, channel_options options)
      : reconnector(loop, options.description, false),
        options_(std::make_shared<const channel_options>(std::move(options))) {}

  result<std::shared_ptr<http2_connection>> current();
  void send(const http2_connection::request& what, const net::limits& until, reply_handler& done,
            http2_connection::writer by) noexcept;
  stream_id open_stream(const http2_connection::request& what, stream_listener& listener) noexcept;
  // The connection that a stream was opened on, if it is still there.
  std::shared_ptr<http2_connection> connection_of(stream_id which) noexcept;

 private:
  std::shared_ptr<net::connection> make() override;
  std::uint64_t accepted(const net::connection& which, int fd) noexcept override {
    return note_accepted(which, fd);
  }
  void lost(const net::connection& which, const error& why) noexcept override {
    note_lost(which, why);
  }
  void retired(const net::connection& which) noexcept override { note_retired(which); }

  const std::shared_ptr<const channel_options> options_;

  std::mutex connections_guard_;  // innermost
  std::map<std::uint32_t, std::weak_ptr<http2_connection>> connections_;
  std::uint32_t last_serial_ = 0;
};

std::shared_ptr<net::connection> channel::state::make() {
  std::lock_guard locked{connections_guard_};
  std::erase_if(connections_, [](const auto& home) { return home.second.expired(); });
  const auto serial = ++last_serial_;
  auto made = std::make_shared<http2_connection>(
      loop_, options_, std::static_pointer_cast<state>(shared_from_this()), serial);
  connections_.emplace(serial, made);
  return made;
}

std::shared_ptr<http2_connection> channel::state::connection_of(stream_id which) noexcept {
  std::lock_guard locked{connections_guard_};
  const auto known = connections_.find(http2_connection::serial_of(which));
  return known == connections_.end() ? nullptr : known->second.lock();
}

result<std::shared_ptr<http2_connection>> channel::state::current() {
  auto found = current_connection();
  if (!found) return std::move(found).error();
  return std::static_pointer_cast<http2_connection>(std::move(*found));
}

void channel::state::send(const http2_connection::request& what, const net::limits& until,
                          reply_handler& done, http2_connection::writer by) noexcept {
  if (forked()) return done.on_reply(fork_refusal());
  for (;;) {
    const auto on = current();
    if (on && (*on)->send(what, until, done, by)) return;
    if (on) continue;  // lost since current() returned it, and the next current() knows that
    // Not here and now: a handler that tries again would come back deeper and deeper.
    loop_.post([&done, why = on.error()] { done.on_reply(why); });
    return;
  }
}

channel::stream_id channel::state::open_stream(const http2_connection::request& what,
                                               stream_listener& listener) noexcept {
  if (forked()) {
    listener.on_end(fork_refusal());
    return 0;
  }
  for (;;) {
    const auto on = current();
    if (!on) {
      loop_.post([&listener, why = on.error()] { listener.on_end(why); });
      return 0;
    }
    if (const auto number = (*on)->open_stream(what, listener)) return *number;
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
    const auto on = state_->current();
    if (!on) return on.error();
    // Nothing: it was lost since current() returned it, and the next current() knows that.
    if (auto answer = (*on)->call({method, request, extra}, until)) return std::move(*answer);
  }
}

void channel::send(std::string_view method, std::string_view request, const header_list& extra,
                   const net::limits& until, reply_handler& done) noexcept {
  state_->send({method, request, extra}, until, done, http2_connection::writer::reactor);
}

void channel::send_now(std::string_view method, std::string_view request, const header_list& extra,
                       const net::limits& until, reply_handler& done) noexcept {
  state_->send({method, request, extra}, until, done, http2_connection::writer::caller);
}

channel::stream_id channel::open_stream(std::string_view method, const header_list& extra,
                                        stream_listener& listener) noexcept {
  return state_->open_stream({method, {}, extra}, listener);
}

bool channel::write(stream_id to, std::string_view message) noexcept {
  if (state_->forked()) return false;
  const auto on = state_->connection_of(to);
  return on && on->write(to, message);
}

void channel::cancel(stream_id which) noexcept {
  if (state_->forked()) return;
  if (const auto on = state_->connection_of(which)) on->cancel(which);
}

void channel::drop(const error& why) noexcept {
  if (!state_->forked()) state_->drop(why);
}

std::uint64_t channel::generation() const noexcept { return state_->generation(); }

}  // namespace holdfast::grpc
