#include "engines/etcd/stream.hpp"

#include "support/parker.hpp"

namespace holdfast::engines::etcd {

namespace {

using namespace std::chrono_literals;

constexpr nanoseconds first_pause = 20ms;
constexpr nanoseconds longest_pause = 500ms;

}  // namespace

// Of one connection's stream; outlives our interest in it until the channel has said its last word.
class stream::listener final : public grpc::stream_listener {
 public:
  explicit listener(stream* to) : to_(to) {}
  void detach() noexcept { to_ = nullptr; }

 private:
  void on_message(std::string_view message) noexcept override {
    if (to_ == nullptr) return;
    to_->pause_ = {};
    to_->user_.on_message(message);
  }
  void on_end(result<grpc::reply> why) noexcept override {
    auto* to = to_;
    delete this;
    if (to != nullptr) to->ended(why);
  }
  stream* to_;
};

void stream::open() {
  if (std::exchange(wanted_, true)) return;
  connect();
}

void stream::connect() {
  timer_.reset();
  if (!wanted_ || listener_ != nullptr) return;
  member_ = cluster_.current();
  over_ = cluster_.channel(member_);
  if (!over_) return;  // the client is being closed
  listener_ = new listener{this};
  id_ = over_->open_stream(method_, cluster_.stream_headers(), *listener_);
  user_.on_open();
}

void stream::write(std::string_view message) {
  if (listener_ != nullptr) over_->write(id_, message);  // if it has ended, we shall hear of that
}

void stream::move() {
  let_go();
  cluster_.rotate(member_);
  user_.on_close();
  reconnect_later({});
}

void stream::ended(const result<grpc::reply>& why) {
  listener_ = nullptr;
  over_.reset();
  cluster_.rotate(member_);
  if (why && wants_login(*why) && cluster_.can_login()) cluster_.log_in_soon();
  user_.on_close();
  pause_ = std::clamp(pause_ * 2, first_pause, longest_pause);
  reconnect_later(pause_);
}

void stream::reconnect_later(nanoseconds pause) {
  if (!wanted_ || timer_) return;
  timer_ = cluster_.driver().at(std::chrono::steady_clock::now() + pause, [this] { connect(); });
}

void stream::let_go() noexcept {
  if (listener_ == nullptr) return;
  std::exchange(listener_, nullptr)->detach();
  const auto over = std::move(over_);
  over->cancel(id_);
}

void stream::close() noexcept {
  wanted_ = false;
  if (timer_) cluster_.driver().cancel(*timer_);
  timer_.reset();
  let_go();
}

void run_there(net::reactor& driver, const std::function<void()>& work) {
  support::parker parker;
  driver.post([&] {
    work();
    parker.set(1);
  });
  parker.wait(steady_time::max());
}

}  // namespace holdfast::engines::etcd
