#include "engines/redis/connections.hpp"

#include "engines/common/sentences.hpp"
#include "engines/redis/greeting.hpp"
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

// A server that the sentinels name, or that a map of a cluster shows, may have become a replica meanwhile.
result<void> must_be_master(const settings& how, const resp::value& role) {
  if (!role.items.empty() && role.items[0].text == "master") return {};
  return error{errc::unavailable,
               fmt::format("{}: the server that was named as the master is none.", how.url)};
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
      reactor_(own_reactor_ ? *own_reactor_ : *over_.reactor) {
  if (!how_.has_sentinels() && !how_.in_cluster) return;
  ends_.emplace(*this, is_open_);
  resp::append_command(over_.introduction, {"ROLE"});
  over_.introduction_replies = 1;
  over_.introduced = [this](const resp::value& role) { return must_be_master(how_, role); };
  if (how_.in_cluster) return;
  sentinels_ = std::make_unique<sentinels>(how_, reactor_, [this, open = is_open_] {
    if (*open) leave("the sentinels have named another master");
  });
  over_.find_address = [this](net::address_found done) { sentinels_->find(std::move(done)); };
}

result<std::unique_ptr<connections>> connections::start(const settings& how, transport over) {
  if (how.in_cluster) {
    over.reactor = how.in_cluster->reactor;
    over.find_address = how.in_cluster->find_address;
  }
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
  auto options = begin_channel(how_);
  options.find_address = over_.find_address;
  const auto before = options.greeting_replies;
  options.greeting += over_.introduction;
  options.greeting_replies += over_.introduction_replies;
  options.greeted = greeting_judge(how_, before, options.greeting_replies, over_.introduced);
  // After the introduction: a server that is a replica shall be known as such, and not by what it refuses.
  if (lifts) greet_with(options, {"EVAL", scripts::lift, "1", how_.prefix + "t"});
  auto to_stream = options;
  for (const auto* known : ready) greet_with(options, {"SCRIPT", "LOAD", known->text});
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
  for (const auto* known : stream.ready) greet_with(options, {"SCRIPT", "LOAD", known->text});
  options.greeting += stream.commands;
  options.greeting_replies += stream.replies;
  if (stream.make_commands)
    options.make_greeting = [begin = options.greeting, more = stream.make_commands] {
      return begin + more();
    };
  up_listeners_.push_back(std::make_unique<up_listener>(*this, stream.listener));
  options.listener = up_listeners_.back().get();
  options.keep_open = true;
  // With these, replicas are waited for there, too.
  const bool confirms = how_.has_sentinels() || how_.in_cluster;
  stream_ =
      std::make_unique<tracked_channel>(reactor_, options, longest_probe + (confirms ? busy : 0ns));
}

tracked_channel& connections::of(std::string_view name) noexcept {
  return *channels_[std::hash<std::string_view>{}(name) % channels_.size()];
}

// ---- connections to another server

// On the reactor's thread. The newer one is where the address leads to now.
void connections::came_up(tracked_channel* which) {
  if (!*is_open_) return;
  if (which == nullptr && ends_) ends_->came_up();
  if (topic_.empty()) return;
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

void connections::leave(std::string_view why) {
  if (ends_) ends_->master_changes();
  for (auto* channel : all_channels()) channel->drop({errc::unavailable, std::string{why}});
}

// The master is elsewhere, and perhaps under the same address. From any thread.
void connections::leave_replica(tracked_channel& found, std::uint64_t generation) {
  reactor_.post([this, open = is_open_, &found, generation] {
    if (!*open || generation == 0 || found.generation() != generation) return;  // left already
    leave("it is a replica");
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
  if (getpid() != process_) return;  // after fork() there is no thread to wait for
  const auto close = [this] {
    *is_open_ = false;
    if (sentinels_) sentinels_->close();
  };
  if (reactor_.inside().on_thread()) {  // of a shared one: it would wait for itself
    close();
    return;
  }
  support::parker told;
  reactor_.post([&close, &told] {
    close();
    told.set(1);
  });
  told.wait(steady_time::max());
}

void connections::drain_all(std::span<connections* const> all) noexcept {
  for (const auto* each : all)
    if (each->reactor_.inside().on_thread()) return;  // it would wait for itself
  struct state {
    call soon;
    std::atomic<std::size_t> left{1};
    support::parker served;
    void ended() {
      if (left.fetch_sub(1) == 1) served.set(1);
    }
    void ping(connections& on, tracked_channel& over, int times) {
      on.post(over, command({"PING"}), soon, {},
              [this, &on, &over, times](const result<answer>& got) {
                if (got && times > 1) return ping(on, over, times - 1);
                ended();
              });
    }
  } pings;
  pings.soon.deadline = std::chrono::steady_clock::now() + 1s;
  for (auto* each : all)
    for (const auto& commands : each->channels_) {
      if (commands->generation() == 0) continue;
      pings.left.fetch_add(1);
      pings.ping(*each, *commands, 2);
    }
  pings.ended();
  pings.served.wait(steady_time::max());
}

error connections::about(error why, std::string_view name) {
  return engines::about(std::move(why), name);
}

error connections::refusal(std::string_view reply, std::string_view name) const {
  if (how_.in_cluster && is_redirection(reply)) return redirected(name, url_);
  return reply_error(reply, name, url_);
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
    // ASK: the slot is on its way, and the map is what it was.
    if (value->is_error() && value->text.starts_with("MOVED ") && how_.in_cluster)
      how_.in_cluster->on_redirected();
    if (value->is_error() && !asked.keeps_errors()) return refusal(value->text, name);
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

std::string connections::as_pattern(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view{"*?[]\\"}.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

operation<std::vector<std::string>> connections::scan(std::string_view head,
                                                      std::string_view prefix, invocation how) {
  auto pattern = as_pattern(head) + as_pattern(prefix) + '*';
  auto keys = co_await keys_like(std::move(pattern), how);
  if (!keys) co_return std::move(keys).error();
  for (auto& key : *keys) key.erase(0, head.size());
  co_return std::move(keys);
}

operation<std::vector<std::string>> connections::keys_like(std::string pattern, invocation how) {
  std::vector<std::string> keys;
  std::string cursor = "0";
  do {
    command what({"SCAN", cursor, "MATCH", pattern, "COUNT", "1000"});
    const auto got = co_await ask(of({}), what, {}, how);
    if (!got) co_return got.error();
    const auto& page = got->values.front().items;
    if (page.size() != 2) co_return unexpected_reply({}, url_);
    cursor = page[0].text;
    for (const auto& key : page[1].items) keys.emplace_back(key.text);
  } while (cursor != "0");
  std::ranges::sort(keys);  // SCAN may say a key twice
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  co_return keys;
}

}  // namespace holdfast::engines::redis
