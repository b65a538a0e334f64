// Its life, its owners in turn, its events. The verbs are in session_verbs.cpp.
#include "session.hpp"

#include "body.hpp"
#include "session_calls.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace holdfast::server {

namespace {

using namespace std::chrono_literals;

// What was received while the loop was busy is looked at first.
constexpr auto second_look = 50ms;
constexpr auto between_flushes = 5ms;
constexpr std::size_t most_backlog = 20'000;
constexpr std::size_t owners_in_one_event = 500;
constexpr auto release_takes = 2s;
constexpr std::chrono::milliseconds unheard_grace{10'000};

}  // namespace

void ended_owners::turn(steady_time now) {
  if (now - since_ < generation) return;
  old_ = now - since_ < 2 * generation ? std::move(fresh_) : decltype(old_){};
  fresh_ = {};
  since_ = now;
}

session::session(surroundings around, std::array<std::uint64_t, 2> client, terms how,
                 limits::place place)
    : around_(std::move(around)), client_(client), how_(std::move(how)), place_(std::move(place)) {}

result<void> session::open(const store_url& url) {
  auto opened = open_engine({url, client_, system_clock(), *this, how_.host, how_.pid});
  if (!opened) return std::move(opened).error();
  engine_ = std::move(*opened);
  const bool is_local = engine_->caps().clock == expiry_clock::local_steady;
  store_clock_ = is_local ? &system_clock().local() : &system_clock();
  return {};
}

void session::start(std::function<void()> on_over) {
  on_over_ = std::move(on_over);
  phase_ = phase::open;
  heard_at_ = system_clock().now();
  look();
}

void session::begin_anew(std::string id, terms how) {
  id_ = std::move(id);
  how_.newest = std::max(how_.newest, how.newest);
  how_.grace = how.grace;
  heard_at_ = system_clock().now();
  if (stream_) stream_->finish();
  stream_.reset();
  backlog_.clear();
  look();
}

moment session::now() const { return {system_clock().now(), store_clock_->now()}; }

void session::act(visit to, verb what) {
  const auto came = now();
  heard_at_ = came.shown;
  is_suspect_ = false;
  ended_.turn(came.shown);
  fields in{to.asked().body};
  (this->*what)(to, came, in);
}

// ---- the end

void session::look() {
  // A client that wants something reads its events. One that has something was told the whole grace: its events may
  // not get through for a while.
  const bool is_real = is_listened_to_ || !attempts_.empty();
  const auto grace = is_real ? how_.grace : std::min(how_.grace, unheard_grace);
  const auto left = heard_at_ + grace - system_clock().now();
  if (left <= 0ns && std::exchange(is_suspect_, true))
    return end("nothing was heard of the client for its grace");
  next_look_ =
      around_.loop.after(std::max<nanoseconds>(left, second_look), [weak = weak_from_this()] {
        const auto self = weak.lock();
        if (self && self->phase_ == phase::open) self->look();
      });
}

void session::end(std::string_view why, std::function<void()> then) {
  if (phase_ == phase::over) return then ? then() : void();
  if (then) when_over_.push_back(std::move(then));
  if (phase_ == phase::ending) return;
  phase_ = phase::ending;
  if (stream_) stream_->finish("ended", json_object{}.add("why", why).text());
  next_look_.reset();
  end_waits();
  end_calmly();
}

void session::leave_behind() {
  if (phase_ != phase::open) return;
  if (stream_) stream_->finish();
  end_waits();
}

void session::end_waits() {
  stream_.reset();
  backlog_.clear();
  next_flush_.reset();
  const auto watches = std::move(watches_);
  for (const auto& [id, one] : watches) one->stop.request_stop();
  const auto all = attempts_;
  for (const auto& [sequence, one] : all)
    if (one->awaits) one->stop.request_stop();
}

// Where grants outlive the engine, they are given back before it goes.
void session::end_calmly() {
  if (flights_ > 0 || phase_ != phase::ending) return;
  const auto self = shared_from_this();
  if (!std::exchange(is_released_, true) && engine_->caps().outlives_client) {
    ++flights_;
    const auto all = std::exchange(attempts_, {});
    for (const auto& [sequence, one] : all) {
      if (one->is != attempt::state::holding) continue;
      const auto what = std::make_shared<question>();
      what->about = one;
      what->held = one->held;
      what->limits.deadline = std::chrono::steady_clock::now() + release_takes;
      ask<void>([self, what](
                    auto& done) { self->engine_->start_release(what->held, what->limits, done); },
                [what](const result<void>&) {});
    }
    return landed();
  }
  attempts_.clear();
  phase_ = phase::over;
  let_engine_go();
}

void session::let_engine_go() {
  const auto self = shared_from_this();
  const auto gone = std::make_shared<std::unique_ptr<engine>>(std::move(engine_));
  const bool begun = work([gone] { gone->reset(); },
                          [self] {
                            if (self->on_over_) std::exchange(self->on_over_, nullptr)();
                            for (const auto& then : std::exchange(self->when_over_, {})) then();
                          });
  if (begun) return;
  engine_ = std::move(*gone);
  next_look_ = around_.loop.after(until_room, [self] { self->let_engine_go(); });
}

void session::landed() {
  --flights_;
  if (phase_ == phase::ending) end_calmly();
}

bool session::block(std::function<void()> blocking, std::function<void()> then) {
  ++flights_;
  const auto finish = [self = shared_from_this(), then = std::move(then)] {
    then();
    self->landed();
  };
  if (engine_->caps().immediate) {
    blocking();
    finish();
    return true;
  }
  if (work(std::move(blocking), finish)) return true;
  landed();
  return false;
}

bool session::work(std::function<void()> blocking, std::function<void()> then) {
  auto place = around_.bounds.job(around_.who);
  if (!place) return false;
  return around_.loop.work(std::move(blocking),
                           [then = std::move(then),
                            kept = std::make_shared<limits::place>(std::move(*place))] { then(); });
}

// ---- owners in turn

session::attempt_ref session::find(std::uint64_t sequence, std::string_view name) {
  const auto at = attempts_.find(sequence);
  if (at == attempts_.end()) return nullptr;
  if (at->second->name != name)
    throw refused(bad_request("this owner has asked for another lock; owners are used once"));
  return at->second;
}

session::attempt_ref session::find_or_make(std::uint64_t sequence, std::string_view name) {
  if (auto known = find(sequence, name)) return known;
  auto made = std::make_shared<attempt>();
  made->name = name;
  made->owner = {client_, sequence};
  attempts_.emplace(sequence, made);
  return made;
}

void session::in_turn(const attempt_ref& of, std::function<void()> step) {
  of->next.push_back(std::move(step));
  if (of->awaits) of->stop.request_stop();
  go_on(of);
}

void session::go_on(const attempt_ref& of) {
  if (of->is_busy || of->awaits || of->next.empty()) return;
  of->is_busy = true;
  const auto step = std::move(of->next.front());
  of->next.pop_front();
  step();
}

void session::done(const attempt_ref& of) {
  of->is_busy = false;
  if (!of->next.empty()) return go_on(of);
  if (phase_ != phase::open) return;
  if (of->is == attempt::state::waiting && !around_.is_stopping) begin_await(of);
  if (of->is == attempt::state::nothing) drop(of);
}

void session::drop(const attempt_ref& of) {
  of->is = attempt::state::nothing;
  of->lease = {};
  of->waiter = {};
  const auto at = attempts_.find(of->owner.sequence);
  if (at != attempts_.end() && at->second == of && of->next.empty()) attempts_.erase(at);
}

void session::take(const attempt_ref& of, const grant& held) {
  of->is = attempt::state::holding;
  of->held = held;
  of->held.name = of->name;
  of->waiter = {};
  if (of->replaces == 0) return;
  // To the store its owner is unknown from now on.
  const auto base = attempts_.find(std::exchange(of->replaces, 0));
  if (base != attempts_.end()) drop(attempt_ref{base->second});
}

void session::take(const attempt_ref& of, const entered& said) {
  if (said.what == entered::kind::granted) return take(of, said.granted);
  of->is = said.what == entered::kind::waiting ? attempt::state::waiting : attempt::state::nothing;
  of->place = said.waiting;
  of->place.name = of->name;
}

void session::begin_await(const attempt_ref& of) {
  of->awaits = true;
  of->stop = {};
  of->limits = {};
  of->limits.stop = of->stop.get_token();
  of->place.replacing = of->replaces != 0;
  const auto self = shared_from_this();
  ask<progress>([self, of](auto& done) { self->engine_->start_await(of->place, of->limits, done); },
                [self, of](result<progress> came) { self->on_progress(of, std::move(came)); });
}

// The client asks again when there is no grant in it; until then nothing is waited for.
void session::on_progress(const attempt_ref& of, result<progress> came) {
  of->awaits = false;
  const bool is_granted = came && came->is_granted;
  if (is_granted) take(of, came->granted);
  if (!of->next.empty()) return go_on(of);  // whoever asks meanwhile learns it
  const auto at = now();
  json_object words;
  words.add("now_ns", nanoseconds{at.shown.time_since_epoch()}.count());
  words.add("owner", of->owner.sequence);
  if (is_granted) words.add_json("grant", json_of(of->held, at));
  say("progress", words.text());
}

// ---- events

void session::listen(const visit& to) {
  if (around_.is_stopping) throw refused(stopping());
  heard_at_ = system_clock().now();
  if (stream_) stream_->finish();
  stream_gone_ = to.to->gone();
  stream_ = to.to->stream();
  is_listened_to_ = true;
  backlog_.clear();
  json_object words;
  stream_->send("hello",
                words.add("now_ns", nanoseconds{heard_at_.time_since_epoch()}.count()).text());
}

// While nobody listens it is lost: a client that comes again looks for itself.
void session::say(std::string_view event, std::string data) {
  if (stream_ && stream_gone_.stop_requested()) stream_.reset();
  if (!stream_) return;
  if (backlog_.empty() && stream_->send(event, data)) return;
  if (backlog_.size() >= most_backlog) {
    stream_->finish();
    stream_.reset();
    return backlog_.clear();
  }
  backlog_.emplace_back(event, std::move(data));
  if (!next_flush_) flush();
}

void session::flush() {
  next_flush_.reset();
  if (stream_ && stream_gone_.stop_requested()) stream_.reset();
  if (!stream_) return backlog_.clear();
  while (!backlog_.empty() && stream_->send(backlog_.front().first, backlog_.front().second))
    backlog_.pop_front();
  if (backlog_.empty()) return;
  next_flush_ = around_.loop.after(between_flushes, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->flush();
  });
}

void session::on_lost(std::span<const owner_id> owners, std::string_view why) noexcept {
  std::vector<std::uint64_t> gone;
  for (const auto& one : owners) gone.push_back(one.sequence);
  around_.loop.post([weak = weak_from_this(), gone = std::move(gone), why = std::string{why}] {
    if (const auto self = weak.lock()) self->lost(gone, why);
  });
}

void session::lost(const std::vector<std::uint64_t>& owners, std::string_view why) {
  if (phase_ != phase::open) return;
  const auto at = system_clock().now();
  for (std::size_t i = 0; i < owners.size(); i += owners_in_one_event) {
    json_array some;
    for (std::size_t k = i; k < std::min(owners.size(), i + owners_in_one_event); ++k) {
      some.add_json(std::to_string(owners[k]));
      const auto known = attempts_.find(owners[k]);
      if (known == attempts_.end() || known->second->is_busy ||
          known->second->is != attempt::state::holding)
        continue;
      ended_.add(owners[k], at);
      drop(attempt_ref{known->second});
    }
    say("lost", json_object{}.add_json("owners", some.text()).add("why", why).text());
  }
}

void session::on_session_lost(std::uint64_t number, std::string_view why) noexcept {
  around_.loop.post([weak = weak_from_this(), number, why = std::string{why}] {
    if (const auto self = weak.lock())
      self->say("over", json_object{}.add("store_session", number).add("why", why).text());
  });
}

}  // namespace holdfast::server
