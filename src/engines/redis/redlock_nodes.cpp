#include "engines/redis/redlock_nodes.hpp"

#include "engines/redis/redlock_scripts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <utility>

namespace holdfast::engines::redis {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t most_debts = 4'096;
constexpr nanoseconds to_pay = 2s;
constexpr nanoseconds between_payments = 500ms;

// A field of INFO: "uptime_in_seconds:17".
std::string_view field_in(std::string_view info, std::string_view name) {
  const auto at = info.find(name);
  if (at == std::string_view::npos) return {};
  info.remove_prefix(at + name.size());
  return info.substr(0, info.find('\r'));
}

std::int64_t seconds_up(std::string_view info) {
  const auto digits = field_in(info, "uptime_in_seconds:");
  std::int64_t out = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), out);
  return std::max<std::int64_t>(out, 0);
}

}  // namespace

// ---- one node

result<std::unique_ptr<redlock_node>> redlock_node::open(const settings& how,
                                                         nanoseconds quarantine, net::reactor& on) {
  std::unique_ptr<redlock_node> self{new redlock_node{how, quarantine, on}};
  if (auto ok = self->connect(); !ok) return std::move(ok).error();
  return self;
}

result<void> redlock_node::connect() {
  connections::transport over;
  over.reactor = &reactor_;
  resp::append_command(over.introduction, {"INFO", "server"});
  over.introduction_replies = 1;
  over.introduced = [this](const resp::value& info) -> result<void> {
    introduced(info);
    return {};
  };
  auto opened = connections::start(how_, std::move(over));
  if (!opened) return std::move(opened).error();
  connections_ = std::move(*opened);
  waits_ = std::make_unique<waits>(reactor_);
  messages_ = std::make_unique<subscriptions>(*connections_, *waits_);
  connections::stream_setup stream;
  stream.listener = this;
  const std::vector ready{&redlock_scripts::vote(), &redlock_scripts::give_back(),
                          &redlock_scripts::release()};
  connections_->connect(false, stream, ready);
  return {};
}

void redlock_node::close() noexcept {
  if (!connections_) return;
  waits_->look_again_all();
  messages_->close();
  connections_.reset();
}

// With a lock of the connection held. The server takes the difference of two clocks in whole seconds, so it may be up
// to a second younger than it says. Another server than before may be a replica that was promoted, or a stranger behind
// the same address: whatever its age, it may not know the locks that are held. And the other connection may still lead
// to the old one: both begin anew.
void redlock_node::introduced(const resp::value& info) {
  const auto run_id = field_in(info.text, "run_id:");
  const auto id = run_id.empty() ? 0 : std::hash<std::string_view>{}(run_id) | 1U;
  const auto before = identity_.exchange(id);
  const auto now = std::chrono::steady_clock::now();
  const auto whole = quarantine_ > 0ns ? quarantine_ + 1s : quarantine_;
  const auto rest = whole - std::chrono::seconds{seconds_up(info.text)};
  if (before == 0 || before == id) {
    const auto from = rest > 0ns ? now + rest : steady_time::min();
    votes_from_.store(std::max(votes_from_.load(), from));
    return;
  }
  if (whole > 0ns) votes_from_.store(now + whole);
  reactor_.post([this, open = open_] {
    if (!*open) return;
    for (auto* channel : {&connections_->of({}), &connections_->stream()})
      channel->drop({errc::unavailable, "another server answers at its address"});
  });
}

nanoseconds redlock_node::without_vote(steady_time now) const noexcept {
  const auto from = votes_from_.load();
  return from > now ? from - now : 0ns;
}

void redlock_node::note(const result<answer>& got) noexcept {
  const bool answered = got || (got.error().code() != errc::outcome_unknown &&
                                got.error().code() != errc::unavailable);
  if (is_silent() == answered) silent_.store(!answered, std::memory_order_relaxed);
}

// ---- what is still to be taken away

void redlock_node::owe(std::string_view name, const command& what, steady_time until) {
  bool begins = false;
  {
    const std::lock_guard lock{guard_};
    if (!debts_.empty() && debts_.back().what.bytes() == what.bytes()) {
      debts_.back().until = std::max(debts_.back().until, until);
    } else {
      if (debts_.size() >= most_debts) debts_.pop_front();
      debts_.push_back({std::string{name}, what, until});
    }
    begins = !std::exchange(pays_later_, true);
  }
  if (begins) pay_later();
}

void redlock_node::pay_later() {
  reactor_.at(std::chrono::steady_clock::now() + between_payments, [this, open = open_] {
    if (!*open) return;
    {
      const std::lock_guard lock{guard_};
      pays_later_ = false;
    }
    // While it cannot be reached nothing is tried: on_up() pays.
    if (connections_->stream().generation() != 0) pay_all();
  });
}

void redlock_node::on_up(std::uint64_t) noexcept {
  silent_.store(false, std::memory_order_relaxed);
  if (*open_) pay_all();
}

void redlock_node::pay_all() {
  std::deque<debt> due;
  {
    const std::lock_guard lock{guard_};
    due.swap(debts_);
  }
  for (auto& one : due) pay(std::move(one));
}

void redlock_node::pay(debt what) {
  const auto now = std::chrono::steady_clock::now();
  if (now >= what.until) return;
  call soon;
  soon.deadline = now + to_pay;
  auto& over = connections_->of(what.name);
  auto sent = what.what;
  connections_->post(over, std::move(sent), soon, {},
                     [this, what = std::move(what)](const result<answer>& got) {
                       if (!got && *open_) owe(what.name, what.what, what.until);
                     });
}

void redlock_node::on_down(const error&) noexcept {
  silent_.store(true, std::memory_order_relaxed);
  messages_->on_down();
}

// ---- all of them

result<std::unique_ptr<redlock_nodes>> redlock_nodes::open(const std::vector<settings>& hows,
                                                           nanoseconds quarantine) {
  auto started = net::reactor::start();
  if (!started) return std::move(started).error();
  std::unique_ptr<redlock_nodes> self{new redlock_nodes};
  self->reactor_ = std::move(*started);
  for (const auto& how : hows) {
    auto node = redlock_node::open(how, quarantine, *self->reactor_);
    if (!node) return std::move(node).error();
    self->all_.push_back(std::move(*node));
  }
  return self;
}

void redlock_nodes::close() noexcept {
  if (all_.empty() || closes_) return;
  // What a silent one may not have got core has cleared up, or tried to for a while.
  std::vector<connections*> servers;
  for (auto& node : all_)
    if (!node->is_silent()) servers.push_back(&node->server());
  connections::drain_all(servers);
  closes_ = true;
  for (auto& node : all_) node->stop_paying();
  // What the reactor's thread has begun to send before it saw that.
  support::parker seen;
  reactor_->post([&seen] { seen.set(1); });
  seen.wait(steady_time::max());
  for (auto& node : all_) node->close();
}

bool redlock_nodes::has_vote(std::size_t i, steady_time now) const noexcept {
  const auto id = all_[i]->identity();
  for (std::size_t earlier = 0; id != 0 && earlier < i; ++earlier)
    if (all_[earlier]->identity() == id) return false;
  return all_[i]->without_vote(now) == 0ns;
}

void redlock_nodes::send(question about, const call& until) {
  std::make_shared<round>(*this, std::move(about), false)->begin(until, [] {});
}

// ---- a round of questions

redlock_nodes::round::round(redlock_nodes& in, question about, bool is_awaited, bool judges_silence)
    : judges_silence_(judges_silence),
      in_(in),
      about_(std::move(about)),
      got_(about_.what.size()),
      owed_(about_.what.size(), false),
      over_(!is_awaited) {
  for (std::size_t i = 0; i < about_.what.size(); ++i) owed_[i] = about_.what[i].has_value();
}

bool redlock_nodes::round::begin(const call& until, std::function<void()> go_on) {
  go_on_ = std::move(go_on);
  stop_ = until.stop;
  if (in_.closes_) {
    for (std::size_t i = 0; i < owed_.size(); ++i)
      if (owed_[i]) got_[i].emplace(not_done{errc::unavailable, "The client is being closed."});
    over_ = true;
    return true;
  }
  // Here, because answered() may come while we still ask.
  const auto asked = owed_;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    if (!asked[i]) continue;
    auto& server = in_[i].server();
    auto& over = about_.over_stream ? server.stream() : server.of(about_.name);
    // The name is not passed on: this may live longer than the request.
    server.post(
        over, std::move(*about_.what[i]), until, {},
        [self = shared_from_this(), i](result<answer> got) { self->answered(i, std::move(got)); });
  }
  const std::lock_guard lock{guard_};
  starting_ = false;
  over_ = over_ || is_over();
  return over_;
}

// REQUIRES: guard_ is held.
bool redlock_nodes::round::is_over() const {
  std::size_t owed = 0, silent = 0, answered = 0;
  for (std::size_t i = 0; i < owed_.size(); ++i) {
    if (owed_[i]) ++owed;
    if (owed_[i] && in_[i].is_silent()) ++silent;
    if (got_[i] && *got_[i]) ++answered;
  }
  if (owed == 0 || (owed == silent && answered >= in_.quorum())) return true;
  return about_.is_decided && about_.is_decided(got_);
}

// Addresses move: one may lead to the server of another node by now. REQUIRES: guard_ is held.
bool redlock_nodes::round::has_answered_elsewhere(std::size_t node) const {
  const auto id = in_[node].identity();
  for (std::size_t i = 0; id != 0 && i < got_.size(); ++i)
    if (i != node && got_[i] && *got_[i] && in_[i].identity() == id) return true;
  return false;
}

void redlock_nodes::round::answered(std::size_t node, result<answer> got) {
  // A caller that has stopped, or had no more time, says nothing about the node.
  if (got || (judges_silence_ && !stop_.stop_requested())) in_[node].note(got);
  {
    std::unique_lock lock{guard_};
    owed_[node] = false;
    if (over_) {
      lock.unlock();
      if (about_.on_late) about_.on_late(node, got);
      return;
    }
    if (got && has_answered_elsewhere(node))
      got = error{errc::unavailable,
                  fmt::format("{} leads to the server of another node.", in_[node].how().url)};
    got_[node].emplace(std::move(got));
    if (starting_) return;  // begin() looks
    over_ = is_over();
    if (!over_) return;
  }
  go_on_();
}

}  // namespace holdfast::engines::redis
