#include "engines/redis/connections.hpp"

#include "net/reactor_impl.hpp"
#include "support/parker.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace holdfast::engines::redis {

namespace {

using namespace std::chrono_literals;

constexpr nanoseconds between_looks_at_silence = 1s;
constexpr nanoseconds longest_probe = 2s;

// How a channel cuts what this server sends.
class resp_framing final : public net::framing {
 public:
  result<frame> next(std::string_view bytes) override {
    const auto found = scanner_.next(bytes);
    if (!found) return found.error();
    return frame{.length = found->length, .push = found->push};
  }

 private:
  resp::frame_scanner scanner_;
};

std::string greeting(const settings& how, bool lifts, unsigned& replies) {
  std::string out;
  if (how.password.empty()) {
    resp::append_command(out, {"HELLO", "3", "SETNAME", "holdfast"});
  } else {
    resp::append_command(out, {"HELLO", "3", "AUTH", how.user.empty() ? "default" : how.user,
                               how.password, "SETNAME", "holdfast"});
  }
  replies = 1;
  if (how.db != 0) {
    resp::append_command(out, {"SELECT", std::to_string(how.db)});
    ++replies;
  }
  if (lifts) {
    resp::append_command(out, {"EVAL", scripts::lift, "1", how.prefix + "t"});
    ++replies;
  }
  return out;
}

std::function<result<void>(std::string_view)> judge(const settings& how) {
  return
      [url = how.url, is_login = !how.password.empty()](std::string_view frames) -> result<void> {
        while (!frames.empty()) {
          auto value = resp::take(frames);
          if (!value) return std::move(value).error();
          if (value->is_error()) {
            return is_login ? login_error(value->text, url) : reply_error(value->text, {}, url);
          }
        }
        return {};
      };
}

}  // namespace

// Hears that a connection has come up. That of the stream passes on all that it hears to the stream's own listener.
class connections::up_listener final : public net::channel_listener {
 public:
  explicit up_listener(connections& in, net::channel_listener* of_stream = nullptr)
      : in_(in), then_(of_stream) {}
  void of(tracked_channel& commands) noexcept { commands_ = &commands; }  // before its first call

 private:
  void on_push(std::string_view frame) noexcept override {
    if (then_ != nullptr) then_->on_push(frame);
  }
  void on_up(std::uint64_t generation) noexcept override {
    if (then_ != nullptr) then_->on_up(generation);
    in_.came_up(commands_);
  }
  void on_down(const error& why) noexcept override {
    if (then_ != nullptr) then_->on_down(why);
  }
  connections& in_;
  net::channel_listener* const then_;
  tracked_channel* commands_ = nullptr;  // null: it is the stream
};

connections::connections(const settings& how, transport over, std::unique_ptr<net::reactor> own)
    : how_(how),
      url_(how.url),
      over_(std::move(over)),
      own_reactor_(std::move(own)),
      reactor_(own_reactor_ ? *own_reactor_ : *over_.reactor) {}

result<std::unique_ptr<connections>> connections::start(const settings& how, transport over) {
  std::unique_ptr<net::reactor> own;
  if (over.reactor == nullptr) {
    auto started = net::reactor::start();
    if (!started) return std::move(started).error();
    own = std::move(*started);
  }
  return std::unique_ptr<connections>{new connections{how, std::move(over), std::move(own)}};
}

void connections::connect(bool lifts, const stream_setup& stream,
                          std::span<const script* const> ready) {
  net::channel_options options;
  options.where = how_.where;
  options.find_address = over_.find_address;
  options.description = url_;
  options.make_framing = [] { return std::make_unique<resp_framing>(); };
  options.greeting = greeting(how_, lifts, options.greeting_replies);
  options.greeted = judge(how_);
  auto to_stream = options;
  for (const auto* known : ready) {
    resp::append_command(options.greeting, {"SCRIPT", "LOAD", known->text});
    ++options.greeting_replies;
  }
  const nanoseconds busy = how_.wait_replicas > 0 ? nanoseconds{how_.wait_timeout} : 0ns;
  options.longest_silence += busy;
  topic_ = stream.topic;
  for (unsigned i = 0; i < how_.connections; ++i) {
    up_listeners_.push_back(std::make_unique<up_listener>(*this));
    options.listener = up_listeners_.back().get();
    channels_.push_back(std::make_unique<tracked_channel>(reactor_, options, longest_probe + busy));
    up_listeners_.back()->of(*channels_.back());
  }

  options = std::move(to_stream);
  options.greeting += stream.commands;
  options.greeting_replies += stream.replies;
  up_listeners_.push_back(std::make_unique<up_listener>(*this, stream.listener));
  options.listener = up_listeners_.back().get();
  options.keep_open = true;
  stream_ = std::make_unique<tracked_channel>(reactor_, options, longest_probe);
}

tracked_channel& connections::of(std::string_view name) noexcept {
  return *channels_[std::hash<std::string_view>{}(name) % channels_.size()];
}

// ---- connections to another server

// On the reactor's thread. The newer one is where the address leads to now.
void connections::came_up(tracked_channel* which) {
  if (!*is_open_ || topic_.empty()) return;
  if (which != nullptr) {
    if (stream_->generation() != 0) compare(*which, *stream_);
    return;
  }
  for (const auto& commands : channels_)
    if (commands->generation() != 0) compare(*commands, *commands);
}

// The stream's server has us as a listener since before its connection counted as up.
void connections::compare(tracked_channel& commands, tracked_channel& older) {
  const auto listening = stream_->generation(), before = older.generation();
  call soon;
  soon.deadline = std::chrono::steady_clock::now() + longest_probe;
  post(commands, command({"PUBSUB", "NUMSUB", topic_}), soon, {},
       [this, listening, before, &older](const result<answer>& got) {
         if (!*is_open_ || !got) return;
         const auto& items = got->values.front().items;
         if (items.size() != 2 || items[1].integer != 0) return;
         if (stream_->generation() != listening || older.generation() != before) return;
         older.drop({errc::unavailable, "a newer connection has reached another server"});
       });
}

// The master is elsewhere, and perhaps under the same address. From any thread.
void connections::leave_replica(tracked_channel& found, std::uint64_t generation) {
  reactor_.post([this, open = is_open_, &found, generation] {
    if (!*open || generation == 0 || found.generation() != generation) return;  // left already
    for (auto* channel : all_channels())
      if (channel->generation() != 0) channel->drop({errc::unavailable, "it is a replica"});
  });
}

// ---- silent connections

bool tracked_channel::was_silent() noexcept {
  const auto come = received();
  const bool owed = owes();
  const bool silent = owed && owed_then_ && come == received_then_;
  owed_then_ = owed;
  asked_then_ = asked();
  received_then_ = come;
  return silent;
}

std::vector<tracked_channel*> connections::all_channels() const {
  std::vector<tracked_channel*> out;
  for (const auto& commands : channels_) out.push_back(commands.get());
  if (stream_) out.push_back(stream_.get());
  return out;
}

void connections::look_later() {
  reactor_.at(std::chrono::steady_clock::now() + between_looks_at_silence, [this, open = is_open_] {
    if (*open) look();
  });
}

// On the reactor's thread, once a second while there is something to look at.
void connections::look() {
  bool goes_on = false;
  bool silent = false;
  for (auto* channel : all_channels()) {
    goes_on = goes_on || channel->owes() || channel->was_used();
    silent = channel->was_silent() || silent;
  }
  if (silent) suspect();
  if (goes_on) return look_later();
  looks_.store(false);
  // A caller that asked in between has relied on us (see begin()).
  const auto all = all_channels();
  const bool any =
      std::ranges::any_of(all, [](const tracked_channel* channel) { return channel->was_used(); });
  if (any && !looks_.exchange(true)) look_later();
}

void connections::suspect() {
  if (suspects_.load(std::memory_order_relaxed) || suspects_.exchange(true)) return;
  reactor_.post([this, open = is_open_] {
    if (*open) probe_all();
  });
}

class connections::probe final : public net::reply_handler {
 public:
  probe(connections& in, tracked_channel& over)
      : in_(in), over_(over), generation_(over.generation()), received_(over.received()) {}

 private:
  void on_reply(result<std::string_view> frames) noexcept override {
    auto& in = in_;
    if (--in.probes_ == 0) in.suspects_.store(false);
    // The PING may stand behind others whose answers have come meanwhile: then the peer lives, and is busy.
    const bool silent =
        !frames && frames.error().code() == errc::outcome_unknown && over_.received() == received_;
    if (silent && *in.is_open_ && over_.generation() == generation_)
      over_.drop({errc::unavailable, "it answered nothing, not even a PING"});
    delete this;
  }
  connections& in_;
  tracked_channel& over_;
  const std::uint64_t generation_, received_;
};

void connections::probe_all() {
  std::string ping;
  resp::append_command(ping, {"PING"});
  const auto now = std::chrono::steady_clock::now();
  ++probes_;  // none ends the round before all have begun
  for (auto* channel : all_channels()) {
    if (channel->generation() == 0) continue;
    ++probes_;
    channel->send(ping, 1, {now + channel->patience(), {}}, *new probe{*this, *channel});
  }
  if (--probes_ == 0) suspects_.store(false);
}

connections::~connections() {
  if (getpid() != process_) return;     // after fork() there is no thread to wait for
  if (reactor_.inside().on_thread()) {  // of a shared one: it would wait for itself
    *is_open_ = false;
    return;
  }
  support::parker told;
  reactor_.post([this, &told] {
    *is_open_ = false;
    told.set(1);
  });
  told.wait(steady_time::max());
}

void connections::drain() noexcept {
  std::string ping, pong;
  resp::append_command(ping, {"PING"});
  const net::limits soon{std::chrono::steady_clock::now() + 1s, {}};
  for (int step = 0; step < 2; ++step)
    for (const auto& commands : channels_)
      if (commands->generation() != 0) static_cast<void>(commands->exchange(ping, 1, soon, pong));
}

error connections::about(error why, std::string_view name) {
  if (name.empty()) return why;
  auto sentence = fmt::format("Lock {}: {}", support::quoted(name), why.message());
  if (why.is_not_done()) return not_done{why.code(), std::move(sentence)};
  return {why.code(), std::move(sentence)};
}

result<answer> connections::read(std::string_view frames, const command& asked,
                                 std::string_view name, tracked_channel& over,
                                 std::uint64_t generation) {
  answer out;
  out.generation = generation;
  out.frames.reserve(
      std::max<std::size_t>(frames.size(), 64));  // on the heap, so that views survive a move
  out.frames = frames;
  std::string_view rest = out.frames;
  out.values.reserve(asked.replies());
  for (unsigned i = 0; i < asked.replies(); ++i) {
    auto value = resp::take(rest);
    if (!value) return std::move(value).error();
    if (is_replica(*value)) leave_replica(over, generation);
    if (value->is_error() && !asked.keeps_errors()) return reply_error(value->text, name, url_);
    out.values.push_back(std::move(*value));
  }
  return out;
}

result<answer> connections::run(tracked_channel& over, command& what, const call& limits,
                                std::string_view name) {
  const auto until = to_net(limits);
  thread_local std::string frames;
  begin(over);
  auto sent = over.exchange(what.bytes(), what.replies(), until, frames);
  if (sent && is_unknown_script(frames) && what.spell_out())
    sent = over.exchange(what.bytes(), what.replies(), until, frames);
  finish(over, !sent && sent.error().code() == errc::outcome_unknown);
  if (!sent) return about(std::move(sent).error(), name);
  return read(frames, what, name, over, *sent);
}

result<answer> connections::run(tracked_channel& over,
                                std::initializer_list<std::string_view> words, const call& limits,
                                std::string_view name) {
  command what(words);
  return run(over, what, limits, name);
}

// ---- without waiting

void connections::pending_reply::start(sends when) noexcept {
  connections_.begin(on_);
  const auto until = to_net(limits_);
  if (when == sends::now) {
    on_.send_now(what_.bytes(), what_.replies(), until, *this);
  } else {
    on_.send(what_.bytes(), what_.replies(), until, *this);
  }
}

void connections::pending_reply::on_reply(result<std::string_view> frames) noexcept {
  connections_.finish(on_, !frames && frames.error().code() == errc::outcome_unknown);
  if (frames && is_unknown_script(*frames) && what_.spell_out()) return start(sends::soon);
  if (!frames) return on_answer(about(std::move(frames).error(), name_));
  // We are on the thread that opens connections, so this is the one that answered, or none.
  on_answer(connections_.read(*frames, what_, name_, on_, on_.generation()));
}

// An answer to anything sent behind them says that they have been served.
bool connections::passing::begin() {
  for (auto* channel : over_)
    in_.post(*channel, command({"PING"}), how_.limits, {}, [this](const result<answer>& got) {
      if (!got) failed_ = true;
      if (left_.fetch_sub(1) != 1) return;
      if (how_.blocks) return parker_.set(1);
      caller_.resume();
    });
  return left_.fetch_sub(1) != 1;
}

operation<std::vector<std::string>> connections::scan(std::string_view head,
                                                      std::string_view prefix, invocation how) {
  std::string pattern;
  for (const auto part : {head, prefix})
    for (const char c : part) {
      if (std::string_view{"*?[]\\"}.find(c) != std::string_view::npos) pattern += '\\';
      pattern += c;
    }
  pattern += '*';
  std::vector<std::string> names;
  std::string cursor = "0";
  do {
    command what({"SCAN", cursor, "MATCH", pattern, "COUNT", "1000"});
    const auto got = co_await ask(of(prefix), what, {}, how);
    if (!got) co_return got.error();
    const auto& page = got->values.front().items;
    if (page.size() != 2) co_return unexpected_reply(prefix, url_);
    cursor = page[0].text;
    for (const auto& key : page[1].items)
      names.emplace_back(key.text.substr(std::min(head.size(), key.text.size())));
  } while (cursor != "0");
  std::ranges::sort(names);  // SCAN may say a key twice
  names.erase(std::unique(names.begin(), names.end()), names.end());
  co_return names;
}

}  // namespace holdfast::engines::redis
