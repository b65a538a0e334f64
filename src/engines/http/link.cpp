#include "engines/http/link.hpp"

#include "engines/common/sentences.hpp"
#include "net/reactor_impl.hpp"
#include "support/parker.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace holdfast::engines::http {

namespace {

using namespace std::chrono_literals;
namespace codec = holdfast::http;

constexpr nanoseconds longest_request = 5s;  // server/sessions.hpp relies on it
constexpr nanoseconds opening_takes = 5s;
constexpr nanoseconds shortest_silence = 1s;
constexpr int most_tries = 8;

class answer_framing final : public net::framing {
 public:
  result<frame> next(std::string_view bytes) override {
    const auto length = scanner_.next(bytes);
    if (!length) return length.error();
    return frame{.length = *length, .push = false};
  }

 private:
  codec::answer_scanner scanner_;
};

class stream_framing final : public net::framing {
 public:
  result<frame> next(std::string_view bytes) override {
    const auto found = scanner_.next(bytes);
    if (!found) return found.error();
    return frame{.length = found->bytes, .push = !found->is_head};
  }

 private:
  codec::stream_scanner scanner_;
};

error strange_answer(const settings& how, std::string_view what) {
  return {errc::protocol,
          fmt::format("{} is no holdfast service that we understand: {}", how.url, what)};
}

// It was for a request that has not been sent.
error not_sent(const error& why, std::string_view name) {
  const auto code = why.code() == errc::outcome_unknown ? errc::unavailable : why.code();
  return about(not_done{code, why.message()}, name);
}

}  // namespace

// ---- one request and its answer

class link::exchanging final : private net::reply_handler {
 public:
  exchanging(net::channel& over, const std::string& bytes, net::limits until, bool blocks,
             bool at_once) noexcept
      : over_(over), bytes_(bytes), until_(std::move(until)), blocks_(blocks), at_once_(at_once) {}
  bool await_ready() {
    if (!blocks_) return false;
    std::string frames;
    const auto sent = over_.exchange(bytes_, 1, until_, frames);
    if (sent) {
      got_.emplace(std::move(frames));
    } else {
      got_.emplace(sent.error());
    }
    return true;
  }
  void await_suspend(std::coroutine_handle<> caller) noexcept {
    caller_ = caller;
    if (at_once_) {
      over_.send_now(bytes_, 1, until_, *this);
    } else {
      over_.send(bytes_, 1, until_, *this);
    }
  }
  result<std::string> await_resume() { return std::move(*got_); }

 private:
  void on_reply(result<std::string_view> frames) noexcept override {
    if (frames) {
      got_.emplace(std::string{*frames});
    } else {
      got_.emplace(std::move(frames).error());
    }
    caller_.resume();
  }

  net::channel& over_;
  const std::string& bytes_;
  const net::limits until_;
  const bool blocks_, at_once_;
  std::coroutine_handle<> caller_{};
  std::optional<result<std::string>> got_{};
};

// Nobody waits for it.
class link::forgotten final : public net::reply_handler {
 public:
  explicit forgotten(std::string request) : bytes(std::move(request)) {}
  const std::string bytes;

 private:
  void on_reply(result<std::string_view>) noexcept override { delete this; }
};

link::link(const settings& how, const engine_config& config, link_listener& listener,
           std::unique_ptr<net::reactor> reactor)
    : how_(how),
      clock_(config.clock),
      listener_(listener),
      client_(config.client),
      host_(config.host),
      pid_(config.pid),
      reactor_(std::move(reactor)),
      waits_(*reactor_) {
  control_ = std::make_unique<net::channel>(*reactor_, channel_options());
  views_ = std::make_unique<net::channel>(*reactor_, channel_options());
  for (unsigned i = 0; i < how_.connections; ++i)
    locks_.push_back(std::make_unique<net::channel>(*reactor_, channel_options()));
}

result<std::unique_ptr<link>> link::start(const settings& how, const engine_config& config,
                                          link_listener& listener) {
  auto reactor = net::reactor::start();
  if (!reactor) return std::move(reactor).error();
  return std::unique_ptr<link>{new link{how, config, listener, std::move(*reactor)}};
}

link::~link() = default;

net::channel_options link::channel_options() const {
  net::channel_options out;
  out.where = how_.where;
  out.description = how_.url;
  out.make_framing = [] { return std::make_unique<answer_framing>(); };
  return out;
}

net::channel& link::of(const question& what) noexcept {
  if (what.over == line::control) return *control_;
  if (what.over == line::views) return *views_;
  return *locks_[std::hash<std::string_view>{}(what.name) % locks_.size()];
}

std::string link::compose(std::string_view method, std::string_view target, std::string_view body,
                          std::string_view accepts) const {
  std::string out;
  const auto path = how_.prefix + std::string{target};
  codec::request what;
  what.method = method;
  what.target = path;
  what.host = how_.host;
  what.credentials = how_.credentials;
  what.body = body;
  what.accepts = accepts;
  codec::append_request(out, what);
  return out;
}

// Behind the deadline nobody waits for it any more, so it shall not be carried out.
std::string link::compose(const question& what, const std::string& id, const call& limits) const {
  const auto left = std::clamp(limits.deadline - std::chrono::steady_clock::now(),
                               nanoseconds::zero(), longest_request);
  auto words = what.words;
  words.add("by_ns", its_clock_.its(clock_.now()) + left);
  return compose("POST", fmt::format("/v1/sessions/{}:{}", id, what.verb), words.text());
}

who_we_are link::who() const {
  const std::lock_guard lock{guard_};
  return session_.who;
}

void link::saw_owner(std::uint64_t sequence) noexcept {
  auto newest = newest_.load(std::memory_order_relaxed);
  while (sequence > newest && !newest_.compare_exchange_weak(newest, sequence)) {
  }
}

steady_time link::ours(std::uint64_t session, nanoseconds instant) const {
  const std::lock_guard lock{guard_};
  return session_.number == session ? its_clock_.ours(instant) : steady_time{};
}

session_proof link::proof(std::uint64_t session, const store_proof& of_store,
                          steady_time of_store_at) const {
  auto proven = belief_.proven_at(session);
  if (of_store.number != 0) {
    proven = std::min(proven, of_store_at);
  } else if (promised_ && promised_->longest_validity > nanoseconds::zero()) {
    proven = steady_time{};  // its store has sessions, and it said nothing about them
  }
  return {(session << 32U) | (of_store.number & 0xffff'ffffU), proven};
}

operation<answer> link::ask(const question& what, invocation how) {
  error last = about(not_done{errc::unavailable,
                              fmt::format("{}: its sessions end as fast as they begin", how_.url)},
                     what.name);
  bool was_late = false;
  for (int i = 0; i < most_tries; ++i) {
    auto there = co_await be_open(what.name, how);
    if (!there) co_return std::move(there).error();
    std::string id;
    std::uint64_t number = 0;
    {
      const std::lock_guard lock{guard_};
      id = session_.id;
      number = session_.number;
    }
    auto& over = of(what);
    const auto bytes = compose(what, id, how.limits);
    const auto sent = clock_.now();
    const auto since = std::chrono::steady_clock::now();
    const auto received = over.received(), generation = over.generation();
    net::limits until{how.limits.deadline, how.limits.stop};
    if (what.repeats)
      until.deadline =
          std::min(until.deadline, since + std::max<nanoseconds>(how_.grace / 4, 500ms));
    const bool is_last = until.deadline == how.limits.deadline;
    exchanging exchange{over, bytes, std::move(until), how.blocks, what.at_once};
    auto got = co_await exchange;
    if (!got) {
      const auto& why = got.error();
      if (why.code() == errc::outcome_unknown && !how.limits.stop.stop_requested())
        check_silence(over, generation, received, since);
      const bool again = what.repeats && !is_last && why.code() == errc::outcome_unknown &&
                         !how.limits.stop.stop_requested();
      if (!again) co_return about(std::move(got).error(), what.name);
      if (over.generation() == generation)
        over.drop({errc::unavailable, "a renewal was not answered over it"});
      last = about(std::move(got).error(), what.name);
      continue;
    }
    auto said = codec::read_answer(*got);
    if (!said) co_return about(error{errc::protocol, said.error().message()}, what.name);
    if (said->status != 200) {
      auto no = read_refusal(said->status, said->content_type, said->body, how_.url);
      // We do wait for it, so what we think of the service's clock is wrong: ours has stood still, or somebody has
      // lied. It would stay so for a hundred times as long (service_clock), unless another session looks at both
      // clocks anew.
      const bool is_misjudged = no.is_late && !std::exchange(was_late, true) &&
                                std::chrono::steady_clock::now() < how.limits.deadline;
      if (!no.is_session_over && !is_misjudged)
        co_return no.is_ours ? std::move(no.why) : about(std::move(no.why), what.name);
      session_is_over(number);
      continue;
    }
    auto words = reply::parse(said->body);
    const auto now = words ? words->length("now_ns") : std::nullopt;
    if (!now) co_return about(strange_answer(how_, "an answer without an instant"), what.name);
    {
      // An answer from before another session says nothing about the clock of that one's service.
      const std::lock_guard lock{guard_};
      if (session_.number == number) its_clock_.note(sent, *now);
    }
    belief_.proven(number, sent);
    if (what.over == line::control) check_stream();
    co_return answer{std::move(*words), sent, number};
  }
  co_return last;
}

void link::tell(const question& what) noexcept {
  std::string id;
  {
    const std::lock_guard lock{guard_};
    if (!session_.is_open || is_closing_) return;
    id = session_.id;
  }
  call limits;
  limits.deadline = std::chrono::steady_clock::now() + longest_request;
  auto* const sent = new forgotten{compose(what, id, limits)};
  of(what).send(sent->bytes, 1, {limits.deadline, {}}, *sent);
}

// ---- silence

void link::check_silence(net::channel& over, std::uint64_t generation, std::uint64_t received,
                         steady_time since) noexcept {
  if (generation == 0 || std::chrono::steady_clock::now() - since < shortest_silence) return;
  if (over.generation() != generation || over.received() != received) return;
  over.drop({errc::unavailable, "nothing at all came in over it for as long as a request waited"});
}

// Of an answered renewal: before it answered, the service has said something on the stream.
void link::check_stream() noexcept {
  if (!stream_) return;
  const auto heard = stream_->received();
  const auto now = std::chrono::steady_clock::now();
  {
    const std::lock_guard lock{guard_};
    if (heard != heard_ || stream_->generation() == 0) {
      heard_ = heard;
      heard_at_ = now;
      looks_ = 0;
      return;
    }
    if (++looks_ < 2 || now - heard_at_ < std::max<nanoseconds>(how_.grace / 2, shortest_silence))
      return;
    looks_ = 0;
    heard_at_ = now;
  }
  stream_->drop({errc::unavailable, "its events do not come through any more"});
}

// ---- the session

class link::opening final : public net::reply_handler {
 public:
  opening(link& of, std::string request, steady_time sent)
      : bytes(std::move(request)), of_(of), sent_(sent) {}
  const std::string bytes;

 private:
  void on_reply(result<std::string_view> frames) noexcept override {
    of_.finish_opening(std::move(frames), sent_);
    delete this;
  }
  link& of_;
  const steady_time sent_;
};

// co_await: until there is a session, an attempt to open one has failed, or time is up.
class link::opened_wait {
 public:
  opened_wait(link& in, const invocation& how) noexcept : in_(in), how_(how) {}
  bool await_ready() {
    if (!how_.blocks) return false;
    support::parker bed;
    in_.waits_.for_change("session", how_.limits, [&bed](const auto&) { bed.set(1); });
    in_.begin_opening();
    bed.wait(steady_time::max());
    return true;
  }
  void await_suspend(std::coroutine_handle<> caller) {
    auto& in = in_;  // this may be gone as soon as it is told
    in.waits_.for_change("session", how_.limits, [caller](const auto&) { caller.resume(); });
    in.begin_opening();
  }
  void await_resume() const noexcept {}

 private:
  link& in_;
  const invocation& how_;
};

operation<void> link::be_open(std::string_view name, invocation how) {
  std::optional<std::uint64_t> before;
  for (;;) {
    if (is_closing_)
      co_return not_sent({errc::unavailable, fmt::format("the client of {} is ending", how_.url)},
                         name);
    {
      const std::lock_guard lock{guard_};
      if (session_.is_open) co_return result<void>{};
      if (!before) before = session_.attempts;
      if (session_.attempts != *before) co_return not_sent(session_.failure, name);
    }
    if (how.limits.stop.stop_requested() || std::chrono::steady_clock::now() >= how.limits.deadline)
      co_return not_sent(
          {errc::unavailable, fmt::format("no session was to be had with {} in time", how_.url)},
          name);
    opened_wait waiting{*this, how};
    co_await waiting;
  }
}

void link::begin_opening() noexcept {
  bool is_open = false;
  message words;
  {
    const std::lock_guard lock{guard_};
    is_open = session_.is_open;
    if (!is_open && !is_closing_ && std::exchange(session_.is_opening, true)) return;
  }
  if (is_open || is_closing_) return waits_.changed("session");
  words.add("client", hex_of(client_)).add("host", host_).add("pid", pid_);
  words.add("grace_ms", static_cast<std::int64_t>(how_.grace / 1ms)).add("newest", newest_.load());
  const auto sent = clock_.now();
  auto* const asked = new opening{*this, compose("POST", "/v1/sessions", words.text()), sent};
  const net::limits until{std::chrono::steady_clock::now() + opening_takes, {}};
  control_->send(asked->bytes, 1, until, *asked);
}

result<session_begun> link::read_opened(std::string_view frames) const {
  const auto said = codec::read_answer(frames);
  if (!said) return said.error();
  if (said->status != 200)
    return read_refusal(said->status, said->content_type, said->body, how_.url).why;
  const auto words = reply::parse(said->body);
  auto begun = words ? read_session(*words) : std::nullopt;
  if (!begun) return strange_answer(how_, "it does not say what its store can do");
  if (promised_ &&
      (begun->grace < how_.grace || begun->caps.drift_ppm > promised_->drift_ppm ||
       begun->caps.margin > promised_->margin || begun->caps.engine != promised_->engine))
    return error{
        errc::misconfigured,
        fmt::format("{}: the service has another store than before, or keeps sessions for a "
                    "shorter time; open the store anew.",
                    how_.url)};
  return std::move(*begun);
}

// On the reactor's thread.
void link::finish_opening(result<std::string_view> frames, steady_time sent) noexcept {
  auto begun = frames ? read_opened(*frames) : result<session_begun>{std::move(frames).error()};
  bool is_later = false;
  {
    const std::lock_guard lock{guard_};
    session_.is_opening = false;
    ++session_.attempts;
    if (begun) {
      is_later = session_.number > 0;
      session_.id = begun->id;
      ++session_.number;
      session_.is_open = true;
      session_.who = {client_, begun->client};
      belief_.proven(session_.number, sent);
      its_clock_.begin(sent, begun->now);
      if (!begun_) begun_ = std::move(*begun);
    } else {
      session_.failure = begun.error();
    }
  }
  // Its events are those of the session before.
  if (is_later && stream_) stream_->drop({errc::unavailable, "another session has begun"});
  waits_.changed("session");
}

void link::session_is_over(std::uint64_t number) noexcept {
  const std::lock_guard lock{guard_};
  if (session_.number == number) session_.is_open = false;
}

result<session_begun> link::open() {
  call limits;
  limits.deadline = std::chrono::steady_clock::now() + opening_takes;
  const invocation how{limits, true};
  if (auto there = be_open({}, how).run(); !there) return std::move(there).error();
  // On the thread that will hear of it, so that it does not before the channel is known.
  reactor_->post([this] { open_stream(); });
  // The stream itself makes all look again when it comes up, before its first event is read.
  while (!has_events_ && std::chrono::steady_clock::now() < limits.deadline) {
    support::parker heard;
    waits_.for_change("hello", limits, [&heard](const auto&) { heard.set(1); });
    if (has_events_) waits_.changed("hello");  // it came in between
    heard.wait(steady_time::max());
  }
  if (!has_events_)
    return not_done{
        errc::unavailable,
        fmt::format("{} answers, but its events do not come through within {}; a proxy in "
                    "between must pass them on at once (no buffering).",
                    how_.url, format_duration(opening_takes))};
  const std::lock_guard lock{guard_};
  return *begun_;
}

// What is under way completes while the connections go, on the reactor's thread, and asks for nothing more.
void link::close() noexcept {
  if (getpid() != process_) return;
  is_closing_ = true;
  waits_.look_again_all();
  std::string id;
  {
    const std::lock_guard lock{guard_};
    if (session_.is_open) id = session_.id;
  }
  if (!id.empty() && !reactor_->inside().on_thread()) {
    std::string answer;
    const net::limits soon{std::chrono::steady_clock::now() + 1s, {}};
    static_cast<void>(
        control_->exchange(compose("DELETE", "/v1/sessions/" + id, {}), 1, soon, answer));
  }
  support::parker settled;
  if (reactor_->inside().on_thread()) return;
  reactor_->post([&settled] { settled.set(1); });
  settled.wait(steady_time::max());
}

// ---- the stream

void link::open_stream() {
  auto options = channel_options();
  options.make_framing = [] { return std::make_unique<stream_framing>(); };
  options.make_greeting = [this] { return stream_greeting(); };
  options.greeting_replies = 1;
  options.greeted = [this](std::string_view head) { return judge_stream(head); };
  options.listener = this;
  options.keep_open = true;
  stream_ = std::make_unique<net::channel>(*reactor_, std::move(options));
}

std::string link::stream_greeting() {
  std::string id;
  {
    const std::lock_guard lock{guard_};
    id = session_.id;
    stream_session_ = session_.number;
  }
  events_ = {};
  return compose("GET", fmt::format("/v1/sessions/{}/events", id), {}, "text/event-stream");
}

// With a lock of the connection held.
result<void> link::judge_stream(std::string_view bytes) {
  std::size_t searched = 0;
  const auto head = codec::read_head(bytes, searched);
  if (!head) return head.error();
  const auto& said = **head;
  stream_is_chunked_ = said.is_chunked;
  if (said.status == 200 && said.content_type.starts_with("text/event-stream")) return {};
  if (said.status == 404) session_is_over(stream_session_);
  return error{errc::unavailable,
               fmt::format("{} gave no events (status {})", how_.url, said.status)};
}

void link::on_push(std::string_view frame) noexcept {
  auto bytes = frame;
  if (stream_is_chunked_) {
    const auto piece = codec::next_chunk(frame, frame.size());
    if (!piece) return;
    bytes = piece->data;
  }
  std::vector<codec::event> events;
  if (const auto ok = events_.read(bytes, events); !ok)
    return stream_->drop({errc::protocol, ok.error().message()});
  for (const auto& one : events) {
    const auto words = reply::parse(one.data);
    if (!words) continue;
    if (one.name == "hello") {
      has_events_ = true;
      waits_.changed("hello");
    } else {
      listener_.on_event(one.name, *words, stream_session_);
    }
  }
}

// What was told while nobody listened is lost: all look for themselves.
void link::on_up(std::uint64_t) noexcept { waits_.look_again_all(); }
void link::on_down(const error&) noexcept {}

}  // namespace holdfast::engines::http
