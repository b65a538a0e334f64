#include "engines/redis/peers.hpp"

#include "engines/redis/errors.hpp"
#include "engines/redis/greeting.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace holdfast::engines::redis {

class peers::peer final : public net::channel_listener {
 public:
  peer(const settings& how, std::string_view topic, net::reactor& on, listener* hears)
      : how_(how), listener_(hears) {
    auto options = begin_channel(how_);
    options.greeted = greeting_judge(how_);
    options.listener = this;
    options.keep_open = !topic.empty();
    // Its answer is a push, and none that the greeting waits for.
    if (!topic.empty()) resp::append_command(options.greeting, {"SUBSCRIBE", topic});
    channel_ = std::make_unique<net::channel>(on, std::move(options));
  }
  const settings& how() const noexcept { return how_; }
  net::channel& channel() noexcept { return *channel_; }

 private:
  void on_push(std::string_view frame) noexcept override {
    const auto push = resp::take(frame);
    if (listener_ == nullptr || !push || push->items.size() != 3) return;
    if (push->items[0].text == "message") listener_->on_told(push->items[2].text);
  }
  void on_up(std::uint64_t) noexcept override {
    if (listener_ != nullptr) listener_->on_peer_up();
  }

  const settings how_;
  listener* const listener_;
  std::unique_ptr<net::channel> channel_;  // goes first
};

class peers::round {
 public:
  round(std::size_t peers, judge is_enough, std::function<void(const answers&)> done)
      : got_(peers), left_(peers + 1), is_enough_(std::move(is_enough)), done_(std::move(done)) {}
  void answer_of(std::size_t which, result<answer> said) {
    got_[which].emplace(std::move(said));
    step();
  }
  // One more has answered; or the last one was asked.
  void step() {
    --left_;
    if (!done_ || (left_ > 0 && !(is_enough_ && is_enough_(got_)))) return;
    std::exchange(done_, nullptr)(got_);
  }

 private:
  answers got_;
  std::size_t left_;
  const judge is_enough_;
  std::function<void(const answers&)> done_;
};

class peers::asked final : public net::reply_handler {
 public:
  asked(std::shared_ptr<round> in, std::size_t which, unsigned replies, std::string url)
      : in_(std::move(in)), which_(which), replies_(replies), url_(std::move(url)) {}

 private:
  void on_reply(result<std::string_view> frames) noexcept override {
    const auto in = std::move(in_);
    const auto which = which_;
    auto said = read(std::move(frames));
    delete this;
    in->answer_of(which, std::move(said));
  }
  result<answer> read(result<std::string_view> frames) const {
    if (!frames) return std::move(frames).error();
    answer out;
    out.frames.reserve(std::max<std::size_t>(frames->size(), 64));  // views survive a move
    out.frames = *frames;
    std::string_view rest = out.frames;
    for (unsigned i = 0; i < replies_; ++i) {
      auto value = resp::take(rest);
      if (!value) return std::move(value).error();
      if (value->is_error()) return reply_error(value->text, {}, url_);
      out.values.push_back(std::move(*value));
    }
    return out;
  }
  std::shared_ptr<round> in_;
  const std::size_t which_;
  const unsigned replies_;
  const std::string url_;
};

peers::peers(net::reactor& on, listener* hears) : reactor_(on), listener_(hears) {}

peers::~peers() = default;

void peers::add(const settings& how, std::string_view topic) {
  all_.push_back(std::make_unique<peer>(how, topic, reactor_, listener_));
}

const settings& peers::how(std::size_t which) const { return all_[which]->how(); }

void peers::keep(const std::function<bool(const settings&)>& wanted) {
  std::erase_if(all_, [&](const auto& one) { return !wanted(one->how()); });
}

void peers::ask(const command& what, nanoseconds patience, judge is_enough,
                std::function<void(const answers&)> done) {
  const net::limits until{std::chrono::steady_clock::now() + patience, {}};
  const auto in = std::make_shared<round>(all_.size(), std::move(is_enough), std::move(done));
  // Not the members themselves: what hears an answer may add peers.
  for (std::size_t i = 0, count = all_.size(); i < count; ++i)
    all_[i]->channel().send(what.bytes(), what.replies(), until,
                            *new asked{in, i, what.replies(), all_[i]->how().url});
  in->step();
}

std::size_t answered(const peers::answers& got) {
  return static_cast<std::size_t>(
      std::ranges::count_if(got, [](const auto& said) { return said && *said; }));
}

}  // namespace holdfast::engines::redis
