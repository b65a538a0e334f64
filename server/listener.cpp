#include "listener.hpp"

#include "problems.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <fmt/format.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <csignal>
#include <map>
#include <unordered_set>

namespace holdfast::server {

namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;
using parser_type = http::request_parser<http::string_body>;
using steady = std::chrono::steady_clock;
using std::chrono::nanoseconds;
using namespace std::chrono_literals;

constexpr std::size_t largest_header = 16 * 1024;
constexpr std::size_t largest_body = 64 * 1024;
constexpr std::size_t most_headers = 100;
// What a client may send ahead while its request is being answered; then it is not read from.
constexpr std::size_t most_ahead = 32 * 1024;
// Of requests that have not arrived whole, and of what is sent ahead, from all clients together. Beyond it only those
// go on that have sent little.
constexpr std::size_t most_unread = 128 * 1024 * 1024;
constexpr std::size_t little_unread = 8 * 1024;
// What may wait to be sent to one reader of events, and to all clients together.
constexpr std::size_t most_events = 32 * 1024;
constexpr std::size_t most_queued = 128 * 1024 * 1024;
constexpr std::size_t largest_small_answer = 16 * 1024;
constexpr std::size_t most_marks = 64;
constexpr auto heartbeat = 5s;
constexpr auto write_patience = connection_silence;
// After an answer that ends the connection the rest of the request is read and thrown away, so that the client gets to
// see the answer, and not a reset. Of a stream that carried a lease the end is waited for until the client must know of
// it. So long are clients waited for, too, when the service ends.
constexpr auto drain_time = 2s;
constexpr auto lease_drain_time = connection_silence;
constexpr auto end_patience = connection_silence + 1s;
constexpr auto sweep_interval = 500ms;
// Clients that greet us at the same time; over TLS each costs far more than later on. The next ones wait in the
// system's line, and nobody has long to greet while they do.
constexpr std::size_t most_greeting = 1'000;
constexpr auto crowded_greeting = 2s;
constexpr auto until_greeted = 20ms;
constexpr std::size_t pool_threads = 4;
constexpr auto token = asio::as_tuple(asio::use_awaitable);

// A dead peer is noticed within 15 s: by probes while nothing is sent, by the missing acknowledgement otherwise.
void prepare_socket(tcp::socket& socket) {
  error_code ignored;
  socket.set_option(tcp::no_delay{true}, ignored);
  socket.set_option(asio::socket_base::keep_alive{true}, ignored);
  const auto set = [&](int option, int value) {
    ::setsockopt(socket.native_handle(), IPPROTO_TCP, option, &value, sizeof value);
  };
  set(TCP_KEEPIDLE, 5);
  set(TCP_KEEPINTVL, 5);
  set(TCP_KEEPCNT, 2);
  set(TCP_USER_TIMEOUT, static_cast<int>(std::chrono::milliseconds{connection_silence}.count()));
}

// TCP or TLS; the coroutines of a connection do not know which.
class wire {
 public:
  virtual ~wire() = default;
  virtual asio::awaitable<bool> handshake() = 0;
  // 0: the other side has ended, or failed.
  virtual asio::awaitable<std::size_t> read_some(asio::mutable_buffer into) = 0;
  virtual asio::awaitable<std::size_t> write_some(asio::const_buffer from) = 0;
  // What the system takes at once; perhaps nothing.
  virtual std::size_t write_now(std::string_view from) noexcept = 0;
  virtual asio::awaitable<void> end_output() = 0;
  virtual tcp::socket& socket() noexcept = 0;
};

class tcp_wire final : public wire {
 public:
  explicit tcp_wire(tcp::socket socket) : socket_(std::move(socket)) {}
  asio::awaitable<bool> handshake() override { co_return true; }
  asio::awaitable<std::size_t> read_some(asio::mutable_buffer into) override {
    const auto [failed, count] = co_await socket_.async_read_some(into, token);
    co_return failed ? 0 : count;
  }
  asio::awaitable<std::size_t> write_some(asio::const_buffer from) override {
    const auto [failed, count] = co_await socket_.async_write_some(from, token);
    co_return failed ? 0 : count;
  }
  std::size_t write_now(std::string_view from) noexcept override {
    const auto count =
        ::send(socket_.native_handle(), from.data(), from.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return count < 0 ? 0 : static_cast<std::size_t>(count);
  }
  asio::awaitable<void> end_output() override {
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    co_return;
  }
  tcp::socket& socket() noexcept override { return socket_; }

 private:
  tcp::socket socket_;
};

class tls_wire final : public wire {
 public:
  tls_wire(tcp::socket socket, asio::ssl::context& context) : stream_(std::move(socket), context) {
    SSL_set_mode(stream_.native_handle(), SSL_MODE_RELEASE_BUFFERS);
  }
  asio::awaitable<bool> handshake() override {
    const auto [failed] = co_await stream_.async_handshake(asio::ssl::stream_base::server, token);
    co_return !failed;
  }
  asio::awaitable<std::size_t> read_some(asio::mutable_buffer into) override {
    const auto [failed, count] = co_await stream_.async_read_some(into, token);
    co_return failed ? 0 : count;
  }
  asio::awaitable<std::size_t> write_some(asio::const_buffer from) override {
    const auto [failed, count] = co_await stream_.async_write_some(from, token);
    co_return failed ? 0 : count;
  }
  std::size_t write_now(std::string_view) noexcept override { return 0; }
  // Waits for the other side's word, too; for no longer than drain_time, as the sweep closes the socket then.
  asio::awaitable<void> end_output() override {
    co_await stream_.async_shutdown(token);
    error_code ignored;
    stream_.next_layer().shutdown(tcp::socket::shutdown_send, ignored);
    co_return;
  }
  tcp::socket& socket() noexcept override { return stream_.next_layer(); }

 private:
  asio::ssl::stream<tcp::socket> stream_;
};

class connection;

// What all connections share.
struct house {
  explicit house(const options& how) : configured(how) {}
  const options& configured;
  handler serve;
  std::unordered_set<connection*> all;
  std::map<std::string, std::size_t> by_address;
  std::size_t queued = 0;  // bytes that are kept to be sent
  std::size_t unread = 0;  // bytes of requests that have not been given to a handler
  std::size_t greeting = 0;
  bool is_crowded() const noexcept { return greeting >= most_greeting; }
  std::chrono::nanoseconds greeting_time{};
  std::vector<std::shared_ptr<connection>> to_flush;
  bool is_ending = false;
  asio::io_context io{1};  // the last: connections go with it, and sign off above
};

// One request of a connection.
class http_exchange final : public exchange, public std::enable_shared_from_this<http_exchange> {
 public:
  http_exchange(std::shared_ptr<connection> on, std::unique_ptr<parser_type> parser);
  ~http_exchange() override;
  const request& asked() const noexcept override { return asked_; }
  std::stop_token gone() const noexcept override;
  void respond(response answer) override;
  std::shared_ptr<event_stream> stream() override;
  // What waits for a lock may wait for an hour.
  void forget_body() noexcept {
    asked_.body = {};
    parser_->get().body() = std::string{};
  }

 private:
  std::shared_ptr<connection> on_;
  std::unique_ptr<parser_type> parser_;
  request asked_;
  bool is_answered_ = false;
};

class connection final : public std::enable_shared_from_this<connection> {
 public:
  connection(house& of, std::unique_ptr<wire> over, std::string address, bool is_local)
      : house_(of), wire_(std::move(over)), address_(std::move(address)), is_local_(is_local) {
    house_.all.insert(this);
    ++house_.by_address[address_];
    ++house_.greeting;
  }
  ~connection() {
    sign_off();
    house_.queued -= kept_;
  }
  void start() { asio::co_spawn(house_.io, read_all(shared_from_this()), asio::detached); }

  // ---- for its exchange
  bool is_local() const noexcept { return is_local_; }
  const std::string& address() const noexcept { return address_; }
  std::stop_token gone() {
    if (!gone_.stop_possible()) gone_ = std::stop_source{};
    if (is_over_) gone_.request_stop();
    return gone_.get_token();
  }
  void respond(const response& answer);
  bool begin_stream();
  bool send_chunk(std::string_view text, bool whatever_waits);
  void carries_lease() noexcept { carries_lease_ = true; }
  nanoseconds lives_for();
  void end_stream();

  // ---- for the house
  void sweep(steady::time_point now);
  // No further request after this one.
  void end_soon();
  void close();
  void flush();

 private:
  enum class phase { greeting, idle, reading, answering, streaming, draining };

  asio::awaitable<void> read_all(std::shared_ptr<connection> self);
  asio::awaitable<void> write_all(std::shared_ptr<connection> self);
  void parse();
  bool judge_header();
  void dispatch();
  void refuse(const problem& why);
  void refuse(error_code why);
  void queue(std::string_view bytes);
  void sign_off() noexcept;
  void answered();
  std::string head(const response& answer, bool is_stream) const;
  void has_greeted() noexcept {
    if (std::exchange(is_greeting_, false)) --house_.greeting;
  }
  void read(std::size_t bytes) {
    unread_ += bytes;
    house_.unread += bytes;
  }
  void has_read(std::size_t bytes) noexcept {
    unread_ -= bytes;
    house_.unread -= bytes;
  }
  // Bytes that are sent, or to be sent, and not acknowledged.
  std::size_t unheard() const;
  void note_sent();
  void forget_heard(std::size_t unheard);
  bool has_gone() const;
  void set(phase now) {
    has_greeted();
    phase_ = now;
    since_ = steady::now();
  }

  house& house_;
  std::unique_ptr<wire> wire_;
  const std::string address_;
  const bool is_local_;
  phase phase_ = phase::greeting;
  bool is_greeting_ = true;                   // counted among those
  steady::time_point since_ = steady::now();  // in this phase; of a stream: that something was sent
  bool is_over_ = false;                      // the socket is closed
  bool ends_ = false;                         // with the answer that is being given
  bool is_chunked_ = true;
  bool carries_lease_ = false;  // the stream that is its last answer
  bool is_header_judged_ = false;
  std::ptrdiff_t fields_ = 0;  // of the header, when it was judged
  std::size_t header_size_ = 0;
  std::size_t unread_ = 0;  // of in_, and of what the parser has
  std::unique_ptr<parser_type> parser_;
  std::stop_source gone_{std::nostopstate};
  std::array<char, 4096> chunk_;
  std::string in_;
  std::string out_, writing_;
  std::size_t unsent_ = 0;  // of out_ and writing_
  std::size_t kept_ = 0;    // the same with what is sent and still there, in house::queued
  bool is_writing_ = false;
  bool is_answer_complete_ = false;            // all of it is in out_
  steady::time_point progress_{};              // of writing
  steady::time_point unheard_since_ = since_;  // if anything is: not later than that was sent
  // Of a stream, in order, what may not be acknowledged yet: all that was queued until then, and since when.
  struct mark {
    std::uint64_t until;
    steady::time_point since;
  };
  std::vector<mark> marks_;
  std::uint64_t all_queued_ = 0;
  std::unique_ptr<asio::steady_timer> resume_reading_;
};

asio::awaitable<void> connection::read_all(std::shared_ptr<connection> /*self*/) {
  const bool greeted = co_await wire_->handshake();
  if (!greeted) co_return close();
  unheard_since_ = steady::now();  // TLS has sent something by itself
  if (phase_ == phase::greeting) set(phase::idle);
  while (!is_over_) {
    if (in_.size() >= most_ahead && phase_ != phase::reading && phase_ != phase::draining) {
      resume_reading_ = std::make_unique<asio::steady_timer>(house_.io, steady::time_point::max());
      co_await resume_reading_->async_wait(token);
      resume_reading_.reset();
      continue;
    }
    const auto count = co_await wire_->read_some(asio::buffer(chunk_));
    if (count == 0) break;
    if (phase_ == phase::draining) continue;
    in_.append(chunk_.data(), count);
    read(count);
    if (house_.unread > most_unread && unread_ > little_unread) {
      if (phase_ != phase::reading && phase_ != phase::idle) break;
      refuse({.status = 503,
              .code = "unavailable",
              .detail = "too many large requests arrive at once; try later",
              .retry_after = 1s});
      continue;
    }
    parse();
  }
  close();
}

// A connection that is closed counts no more, though a call that it began may still go on.
void connection::sign_off() noexcept {
  has_greeted();
  has_read(unread_);
  if (house_.all.erase(this) == 0) return;
  if (const auto it = house_.by_address.find(address_); --it->second == 0)
    house_.by_address.erase(it);
}

void connection::close() {
  if (is_over_) return;
  is_over_ = true;
  sign_off();
  error_code ignored;
  wire_->socket().close(ignored);
  if (resume_reading_) resume_reading_->cancel();
  if (gone_.stop_possible()) {
    const auto alive = shared_from_this();
    gone_.request_stop();
  }
}

void connection::parse() {
  while (!in_.empty() && !is_over_ && (phase_ == phase::idle || phase_ == phase::reading)) {
    if (phase_ == phase::idle) {
      set(phase::reading);
      is_header_judged_ = false;
      header_size_ = 0;
      parser_ = std::make_unique<parser_type>();
      parser_->header_limit(largest_header);
      parser_->body_limit(largest_body);
    }
    error_code failed;
    const auto used = parser_->put(asio::buffer(in_), failed);
    in_.erase(0, used);
    if (failed && failed != http::error::need_more) return refuse(failed);
    // The parser's own limit is one for what it is given at once.
    if (!is_header_judged_) header_size_ += used;
    if (header_size_ > largest_header) return refuse(http::error::header_limit);
    if (parser_->is_header_done() && !is_header_judged_) {
      if (!judge_header()) return;
      parser_->eager(true);  // not before: it would read on to the trailers
    }
    const bool waits = failed == http::error::need_more || used == 0;
    // What comes behind chunks may not add to what was judged, and the parser does not count it: it waits for all of
    // it. Behind the end is the next request.
    if (waits && parser_->is_header_done() && in_.size() > largest_header)
      return refuse(http::error::header_limit);
    if (parser_->is_done() &&
        std::distance(parser_->get().begin(), parser_->get().end()) != fields_)
      return refuse(bad_request("headers behind the body (trailers) are not accepted"));
    if (parser_->is_done()) return dispatch();
    if (waits) break;
  }
  if (in_.empty() && in_.capacity() > sizeof chunk_) in_.shrink_to_fit();
}

bool connection::judge_header() {
  is_header_judged_ = true;
  const auto& message = parser_->get();
  fields_ = std::distance(message.begin(), message.end());
  if (static_cast<std::size_t>(fields_) > most_headers) {
    refuse({.status = 431, .code = "too_large", .detail = "there are more than 100 headers"});
    return false;
  }
  const auto target = message.target();
  if (!target.starts_with('/') || message.count(http::field::host) > 1) {
    refuse(bad_request("the request needs a path that begins with / and one Host header"));
    return false;
  }
  // RFC 9112, 6.3: nobody could say where such a body ends, and a proxy may think otherwise than we.
  if (message.count(http::field::transfer_encoding) > 0 &&
      (!parser_->chunked() || message.version() < 11)) {
    refuse(bad_request("the only Transfer-Encoding is chunked, in HTTP/1.1"));
    return false;
  }
  if (!parser_->is_done() && message[http::field::expect] == "100-continue")
    queue("HTTP/1.1 100 Continue\r\n\r\n");
  return true;
}

void connection::dispatch() {
  set(phase::answering);
  const auto& message = parser_->get();
  ends_ = ends_ || !message.keep_alive() || house_.is_ending;
  is_chunked_ = message.version() >= 11;
  is_answer_complete_ = false;
  gone_ = std::stop_source{std::nostopstate};
  has_read(unread_ - in_.size());
  const auto one = std::make_shared<http_exchange>(shared_from_this(), std::move(parser_));
  house_.serve(one);
  one->forget_body();
}

void connection::refuse(error_code why) {
  if (why == http::error::header_limit || why == http::error::buffer_overflow)
    return refuse(
        {.status = 431, .code = "too_large", .detail = "the headers are larger than 16 KiB"});
  if (why == http::error::body_limit)
    return refuse({.status = 413, .code = "too_large", .detail = "the body is larger than 64 KiB"});
  refuse(bad_request("this is no request of HTTP/1.1"));
}

// Of what is no request: the connection ends, because nobody knows where the next one would begin.
void connection::refuse(const problem& why) {
  ends_ = true;
  set(phase::answering);
  parser_.reset();
  in_.clear();
  in_.shrink_to_fit();
  has_read(unread_);
  respond(answer_of(why));
}

std::string connection::head(const response& answer, bool is_stream) const {
  auto out = fmt::format(
      "HTTP/1.1 {} {}\r\n"
      "Cache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\n",
      answer.status, title_of(answer.status));
  if (answer.status != 204)
    fmt::format_to(std::back_inserter(out), "Content-Type: {}\r\n", answer.content_type);
  for (const auto& [name, value] : answer.headers)
    fmt::format_to(std::back_inserter(out), "{}: {}\r\n", name, value);
  if (is_stream && is_chunked_)
    out += "Transfer-Encoding: chunked\r\n";
  else if (!is_stream && answer.status != 204)
    fmt::format_to(std::back_inserter(out), "Content-Length: {}\r\n", answer.body.size());
  if (ends_) out += "Connection: close\r\n";
  return out += "\r\n";
}

void connection::respond(const response& answer) {
  if (is_over_) return;
  // A small one may be all that its client will ever hear of a grant.
  if (answer.body.size() > largest_small_answer && house_.queued + answer.body.size() > most_queued)
    return respond(answer_of(too_much_to_send()));
  ends_ = ends_ || house_.is_ending;
  is_answer_complete_ = true;
  queue(head(answer, false));
  queue(answer.body);
}

bool connection::begin_stream() {
  if (is_over_) return false;
  set(phase::streaming);
  if (!is_chunked_) ends_ = true;
  marks_.clear();
  if (unheard() > 0) marks_.push_back({all_queued_, unheard_since_});
  queue(head({200, "text/event-stream", {}, {{"X-Accel-Buffering", "no"}}}, true));
  note_sent();
  return true;
}

bool connection::send_chunk(std::string_view text, bool whatever_waits) {
  if (is_over_ || phase_ != phase::streaming || is_answer_complete_) return false;
  if (!whatever_waits && unsent_ + text.size() > most_events) return false;
  since_ = steady::now();
  if (is_chunked_)
    queue(fmt::format("{:x}\r\n{}\r\n", text.size(), text));
  else
    queue(text);
  note_sent();
  return true;
}

std::size_t connection::unheard() const {
  int waits = 0;
  if (::ioctl(wire_->socket().native_handle(), SIOCOUTQ, &waits) != 0) waits = 1;
  return unsent_ + static_cast<std::size_t>(waits);
}

// The system counts from the oldest byte that is not acknowledged (TCP_USER_TIMEOUT).
nanoseconds connection::lives_for() {
  if (is_over_) return 0ns;
  const auto waits = unheard();
  if (waits == 0) return connection_silence;
  forget_heard(waits);
  const auto since = marks_.empty() ? unheard_since_ : marks_.front().since;
  return connection_silence - (steady::now() - since);
}

// Over TLS more bytes wait than were queued, so they seem to be older than they are.
void connection::forget_heard(std::size_t unheard) {
  const auto heard = all_queued_ - std::min<std::uint64_t>(all_queued_, unheard);
  const auto rest =
      std::ranges::find_if(marks_, [&](const mark& one) { return one.until > heard; });
  marks_.erase(marks_.begin(), rest);
}

void connection::note_sent() {
  forget_heard(unheard());
  if (marks_.size() < most_marks)
    marks_.push_back({all_queued_, steady::now()});
  else
    marks_.back().until = all_queued_;
}

// Its client has ended the connection behind bytes that are not read for now.
bool connection::has_gone() const {
  pollfd event{wire_->socket().native_handle(), POLLRDHUP, 0};
  return ::poll(&event, 1, 0) > 0;
}

void connection::end_stream() {
  if (is_over_ || phase_ != phase::streaming || is_answer_complete_) return;
  is_answer_complete_ = true;
  ends_ = true;
  queue(is_chunked_ ? "0\r\n\r\n" : "");
}

void connection::queue(std::string_view bytes) {
  if (!is_writing_ && unheard() == 0) unheard_since_ = steady::now();
  all_queued_ += bytes.size();
  out_ += bytes;
  unsent_ += bytes.size();
  kept_ += bytes.size();
  house_.queued += bytes.size();
  if (is_writing_) return;
  is_writing_ = true;
  progress_ = steady::now();
  // When all requests that have arrived are answered: so a client of many connections is woken once, not for each.
  house_.to_flush.push_back(shared_from_this());
  if (house_.to_flush.size() == 1)
    asio::post(house_.io, [&of = house_] {
      for (const auto& each : std::exchange(of.to_flush, {})) each->flush();
    });
}

void connection::flush() {
  const auto sent = is_over_ ? 0 : wire_->write_now(out_);
  unsent_ -= sent;
  kept_ -= sent;
  house_.queued -= sent;
  out_.erase(0, sent);
  if (sent > largest_small_answer) out_.shrink_to_fit();
  if (!out_.empty() || is_over_ || (is_answer_complete_ && ends_))
    return asio::co_spawn(house_.io, write_all(shared_from_this()), asio::detached);
  is_writing_ = false;
  if (out_.capacity() > sizeof chunk_) out_.shrink_to_fit();
  if (is_answer_complete_) answered();
}

asio::awaitable<void> connection::write_all(std::shared_ptr<connection> /*self*/) {
  while (!out_.empty() && !is_over_) {
    writing_.swap(out_);
    std::size_t sent = 0;
    while (sent < writing_.size() && !is_over_) {
      const auto count = co_await wire_->write_some(asio::buffer(writing_) + sent);
      if (count == 0) break;
      sent += count;
      progress_ = steady::now();
      unsent_ -= count;
    }
    const bool failed = sent < writing_.size();
    kept_ -= writing_.size();
    house_.queued -= writing_.size();
    writing_.clear();
    if (writing_.capacity() > sizeof chunk_) writing_.shrink_to_fit();
    if (failed) close();
  }
  is_writing_ = false;
  if (is_over_) co_return;
  if (!is_answer_complete_) co_return;
  if (!ends_) co_return answered();
  is_answer_complete_ = false;
  set(phase::draining);
  if (resume_reading_) resume_reading_->cancel();
  co_await wire_->end_output();
}

// The next request may be here already.
void connection::answered() {
  is_answer_complete_ = false;
  set(phase::idle);
  gone_ = std::stop_source{std::nostopstate};
  if (resume_reading_) resume_reading_->cancel();
  parse();
  if (house_.is_ending && phase_ == phase::idle) close();
}

void connection::sweep(steady::time_point now) {
  const auto passed = now - since_;
  // Who has nothing to lose does not keep a service that ends from its end.
  const bool is_in_a_hurry = house_.is_ending && !carries_lease_;
  if (is_writing_ && now - progress_ > (is_in_a_hurry ? drain_time : write_patience))
    return close();
  if (resume_reading_ && has_gone()) return close();
  switch (phase_) {
    case phase::greeting:
      if (passed > house_.greeting_time) close();
      return;
    case phase::idle:
      if (passed > house_.configured.idle_time) close();
      return;
    case phase::reading:
      if (is_in_a_hurry && passed > drain_time) return refuse(stopping());
      if (passed > house_.configured.request_time)
        refuse({.status = 408,
                .code = "slow_request",
                .detail = "the request took too long to arrive"});
      return;
    case phase::streaming:
      if (passed > heartbeat) send_chunk(":\n\n", false);
      return;
    case phase::draining:
      if (passed > (carries_lease_ ? lease_drain_time : drain_time)) close();
      return;
    case phase::answering:
      return;
  }
}

void connection::end_soon() {
  if (phase_ == phase::idle || phase_ == phase::greeting) return close();
  ends_ = true;
}

http_exchange::http_exchange(std::shared_ptr<connection> on, std::unique_ptr<parser_type> parser)
    : on_(std::move(on)), parser_(std::move(parser)) {
  const auto& message = parser_->get();
  const auto view = [](auto text) { return std::string_view{text.data(), text.size()}; };
  asked_.method = view(message.method_string());
  asked_.target = view(message.target());
  asked_.body = message.body();
  for (const auto& field : message)
    asked_.headers.emplace_back(view(field.name_string()), view(field.value()));
  asked_.from_this_machine = on_->is_local();
  asked_.peer = on_->address();
}

http_exchange::~http_exchange() {
  if (!is_answered_)
    on_->respond(answer_of({.status = 500,
                            .code = "protocol",
                            .detail = "the service has forgotten to answer; that is a bug",
                            .done = std::nullopt}));
}

std::stop_token http_exchange::gone() const noexcept { return on_->gone(); }

void http_exchange::respond(response answer) {
  if (std::exchange(is_answered_, true)) return;
  // The client takes what comes behind the headers of this answer for its next one.
  if (asked_.method == "HEAD") answer.body.clear();
  on_->respond(answer);
}

class http_event_stream final : public event_stream {
 public:
  explicit http_event_stream(std::shared_ptr<connection> on) : on_(std::move(on)) {}
  ~http_event_stream() override { on_->end_stream(); }
  bool send(std::string_view event, std::string_view data) override {
    return on_->send_chunk(fmt::format("event: {}\ndata: {}\n\n", event, data), false);
  }
  bool send(const event_batch& batch) override { return on_->send_chunk(batch.wire(), false); }
  void carries_lease() override { on_->carries_lease(); }
  nanoseconds lives_for() const override { return on_->lives_for(); }
  void finish(std::string_view event, std::string_view data) override {
    if (!event.empty()) on_->send_chunk(fmt::format("event: {}\ndata: {}\n\n", event, data), true);
    on_->end_stream();
  }

 private:
  std::shared_ptr<connection> on_;
};

std::shared_ptr<event_stream> http_exchange::stream() {
  is_answered_ = true;
  on_->begin_stream();
  return std::make_shared<http_event_stream>(on_);
}

class asio_timer final : public timer {
 public:
  asio_timer(asio::io_context& io, std::chrono::nanoseconds delay, std::function<void()> what)
      : timer_(io, delay) {
    timer_.async_wait([run = std::move(what), alive = std::weak_ptr{alive_}](error_code failed) {
      if (!failed && !alive.expired()) run();
    });
  }

 private:
  std::shared_ptr<bool> alive_ = std::make_shared<bool>();
  asio::steady_timer timer_;
};

class descriptor_watch final : public timer {
 public:
  descriptor_watch(asio::io_context& io, int descriptor, std::function<void()> what)
      : descriptor_(io, descriptor) {
    descriptor_.async_wait(
        asio::posix::stream_descriptor::wait_read,
        [run = std::move(what), alive = std::weak_ptr{alive_}](error_code failed) {
          if (!failed && !alive.expired()) run();
        });
  }

 private:
  std::shared_ptr<bool> alive_ = std::make_shared<bool>();
  asio::posix::stream_descriptor descriptor_;
};

class asio_loop final : public server::loop {
 public:
  explicit asio_loop(asio::io_context& io) : io_(io) {}
  void post(std::function<void()> what) override { asio::post(io_, std::move(what)); }
  std::unique_ptr<timer> after(std::chrono::nanoseconds delay,
                               std::function<void()> what) override {
    return std::make_unique<asio_timer>(io_, delay, std::move(what));
  }
  std::unique_ptr<timer> when_readable(int descriptor, std::function<void()> what) override {
    try {
      return std::make_unique<descriptor_watch>(io_, descriptor, std::move(what));
    } catch (const boost::system::system_error&) {
      ::close(descriptor);
      return nullptr;
    }
  }
  bool work(std::function<void()> blocking, std::function<void()> then) override {
    if (waiting_ >= most_work) return false;
    ++waiting_;
    asio::post(pool_, [this, job = std::move(blocking), next = std::move(then)]() mutable {
      job();
      asio::post(io_, [this, next = std::move(next)] {
        --waiting_;
        next();
      });
    });
    return true;
  }
  // What runs, runs to its end; what has not begun does not begin.
  void end() {
    pool_.stop();
    pool_.join();
  }

 private:
  asio::io_context& io_;
  asio::thread_pool pool_{pool_threads};
  std::size_t waiting_ = 0;  // the loop's
};

class asio_listener final : public listener {
 public:
  explicit asio_listener(const options& configured) : house_(configured), loop_(house_.io) {}
  ~asio_listener() override { loop_.end(); }

  result<void> bind();
  server::loop& loop() noexcept override { return loop_; }
  std::uint16_t port() const noexcept override { return port_; }
  std::size_t connections() const noexcept override { return house_.all.size(); }
  void run(handler serve, std::function<void()> on_signal) override;
  void end() override;

 private:
  result<void> prepare_tls();
  asio::awaitable<void> accept_all();
  void admit(tcp::socket socket);
  void hear_signals(const std::function<void()>& on_signal);
  void sweep_soon();

  house house_;
  asio_loop loop_;
  asio::ssl::context tls_{asio::ssl::context::tls_server};
  bool has_tls_ = false;
  tcp::acceptor acceptor_{house_.io};
  asio::signal_set signals_{house_.io};
  asio::steady_timer sweep_{house_.io};
  asio::steady_timer breath_{house_.io};
  steady::time_point end_at_ = steady::time_point::max();
  std::uint16_t port_ = 0;
};

error cannot_use(std::string_view what, const std::string& file, const error_code& why) {
  return {errc::misconfigured,
          fmt::format("the {} {} cannot be used: {}", what, file, why.message())};
}

result<void> asio_listener::prepare_tls() {
  const auto& how = house_.configured;
  if (how.tls_cert.empty()) return {};
  has_tls_ = true;
  using context = asio::ssl::context;
  tls_.set_options(context::default_workarounds | context::no_sslv2 | context::no_sslv3 |
                   context::no_tlsv1 | context::no_tlsv1_1);
  error_code failed;
  if (tls_.use_certificate_chain_file(how.tls_cert, failed); failed)
    return cannot_use("certificate", how.tls_cert, failed);
  if (tls_.use_private_key_file(how.tls_key, context::pem, failed); failed)
    return cannot_use("private key", how.tls_key, failed);
  if (how.client_ca.empty()) return {};
  if (tls_.load_verify_file(how.client_ca, failed); failed)
    return cannot_use("authority of client certificates", how.client_ca, failed);
  tls_.set_verify_mode(asio::ssl::verify_peer | asio::ssl::verify_fail_if_no_peer_cert);
  // Without it OpenSSL refuses to resume a session of a client that has shown a certificate.
  constexpr unsigned char session[] = "holdfast";
  SSL_CTX_set_session_id_context(tls_.native_handle(), session, sizeof session - 1);
  return {};
}

result<void> asio_listener::bind() {
  if (auto ok = prepare_tls(); !ok) return ok;
  const auto& at = house_.configured.listen;
  error_code failed;
  // Whoever is told that we serve may end us at once; run() hears it then.
  signals_.add(SIGTERM, failed);
  signals_.add(SIGINT, failed);
  tcp::resolver resolver{house_.io};
  const auto found =
      resolver.resolve(at.host, std::to_string(at.port), tcp::resolver::passive, failed);
  const auto refuse = [&](const error_code& why) {
    return error{errc::unavailable,
                 fmt::format("cannot listen on {} port {}: {}", at.host, at.port, why.message())};
  };
  if (failed) return refuse(failed);
  const tcp::endpoint where = found.begin()->endpoint();
  if (acceptor_.open(where.protocol(), failed); failed) return refuse(failed);
  acceptor_.set_option(tcp::acceptor::reuse_address{true}, failed);
  if (acceptor_.bind(where, failed); failed) return refuse(failed);
  if (acceptor_.listen(4096, failed); failed) return refuse(failed);
  port_ = acceptor_.local_endpoint(failed).port();
  return {};
}

void asio_listener::run(handler serve, std::function<void()> on_signal) {
  house_.serve = std::move(serve);
  hear_signals(on_signal);
  sweep_soon();
  asio::co_spawn(house_.io, accept_all(), asio::detached);
  house_.io.run();
  house_.to_flush.clear();  // a connection needs the context that its socket is of
  loop_.end();              // before those go who have asked for it
}

void asio_listener::hear_signals(const std::function<void()>& on_signal) {
  signals_.async_wait([this, on_signal](error_code failed, int) {
    if (failed) return;
    on_signal();
    hear_signals(on_signal);
  });
}

asio::awaitable<void> asio_listener::accept_all() {
  while (acceptor_.is_open()) {
    while (house_.is_crowded() && acceptor_.is_open()) {
      breath_.expires_after(until_greeted);
      co_await breath_.async_wait(token);
    }
    auto [failed, socket] = co_await acceptor_.async_accept(token);
    if (!failed) {
      admit(std::move(socket));
    } else if (acceptor_.is_open()) {
      // Out of files, most likely: some connection will end.
      breath_.expires_after(100ms);
      co_await breath_.async_wait(token);
    }
  }
}

void asio_listener::admit(tcp::socket socket) {
  error_code failed;
  const auto peer = socket.remote_endpoint(failed);
  if (failed) return;
  auto address = peer.address();
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    address = asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
  auto text = address.to_string();
  const auto known = house_.by_address.find(text);
  const bool too_many_of_it = known != house_.by_address.end() &&
                              known->second >= house_.configured.connections_per_address;
  if (too_many_of_it || house_.all.size() >= house_.configured.connections) {
    if (has_tls_) return;
    // In one piece or not at all: nobody waits for a client that is turned away.
    const auto body = json_of(too_many("there are too many connections"));
    const auto answer = fmt::format(
        "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/problem+json\r\nRetry-After: "
        "1\r\n"
        "Connection: close\r\nContent-Length: {}\r\n\r\n{}",
        body.size(), body);
    socket.non_blocking(true, failed);
    socket.send(asio::buffer(answer), 0, failed);
    return;
  }
  prepare_socket(socket);
  std::unique_ptr<wire> over;
  if (has_tls_)
    over = std::make_unique<tls_wire>(std::move(socket), tls_);
  else
    over = std::make_unique<tcp_wire>(std::move(socket));
  std::make_shared<connection>(house_, std::move(over), std::move(text), address.is_loopback())
      ->start();
}

void asio_listener::sweep_soon() {
  sweep_.expires_after(sweep_interval);
  sweep_.async_wait([this](error_code failed) {
    if (failed) return;
    const auto now = steady::now();
    std::vector<std::shared_ptr<connection>> all;  // sweep() may end some
    all.reserve(house_.all.size());
    for (auto* each : house_.all)
      if (auto alive = each->weak_from_this().lock()) all.push_back(std::move(alive));
    // Of all that have greeted for so long already, not only until one has gone.
    house_.greeting_time =
        house_.is_crowded()
            ? std::min<std::chrono::nanoseconds>(crowded_greeting, house_.configured.request_time)
            : house_.configured.request_time;
    for (const auto& each : all) each->sweep(now);
    if (house_.is_ending && (house_.all.empty() || now > end_at_)) return house_.io.stop();
    sweep_soon();
  });
}

void asio_listener::end() {
  if (house_.is_ending) return;
  house_.is_ending = true;
  end_at_ = steady::now() + end_patience;
  error_code ignored;
  acceptor_.close(ignored);
  std::vector<std::shared_ptr<connection>> all;
  for (auto* each : house_.all)
    if (auto alive = each->weak_from_this().lock()) all.push_back(std::move(alive));
  for (const auto& each : all) each->end_soon();
}

}  // namespace

result<std::unique_ptr<listener>> listener::open(const options& configured) {
  auto out = std::make_unique<asio_listener>(configured);
  if (auto ok = out->bind(); !ok) return std::move(ok).error();
  return std::unique_ptr<listener>{std::move(out)};
}

}  // namespace holdfast::server
