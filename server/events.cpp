#include "events.hpp"

#include "json_text.hpp"

#include <algorithm>
#include <utility>

namespace holdfast::server {

namespace {

using namespace std::chrono_literals;

constexpr auto look_interval = 500ms;
constexpr std::size_t most_names = 4096;
constexpr std::size_t most_of_a_name = 64;
constexpr auto kept_for = 10min;
constexpr std::size_t most_looked_at = 10'000;
constexpr std::size_t most_told_at_once = 64;
constexpr std::size_t most_in_one_piece = 12'000;

std::int64_t wall_clock_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

std::string json_of(const event& one) {
  json_object out;
  out.add("event", to_string(one.what)).add("at_ms", one.at_ms).add("name", one.name);
  if (one.token != 0)
    out.add("token", one.token);
  else
    out.add_json("token", "null");
  return out.add("label", one.label)
      .add("host", one.host)
      .add("pid", one.pid)
      .add("why", one.why)
      .text();
}

event event_of(event_kind what, const std::string& name, const holder_info& about) {
  return {.what = what,
          .name = name,
          .token = about.token.value,
          .label = about.label,
          .host = about.host,
          .pid = about.pid};
}

const holder_info* find_owner(const std::vector<holder_info>& in, const holder_info& wanted) {
  const auto it = std::ranges::find_if(in, [&](const holder_info& each) {
    return each.owner == wanted.owner && each.owner_text == wanted.owner_text &&
           each.token == wanted.token;
  });
  return it == in.end() ? nullptr : &*it;
}

}  // namespace

std::string_view to_string(event_kind kind) noexcept {
  switch (kind) {
    case event_kind::granted:
      return "granted";
    case event_kind::queued:
      return "queued";
    case event_kind::released:
      return "released";
    case event_kind::lost:
      return "lost";
    case event_kind::broken:
      return "broken";
  }
  return "";
}

event_hub::event_hub(loop& on, client store, std::string host)
    : loop_(on), store_(std::move(store)), host_(std::move(host)) {}

event_hub::~event_hub() = default;

void event_hub::publish(event one) {
  one.at_ms = wall_clock_ms();
  if (one.host.empty()) one.host = host_;
  remember(one);
  if (readers_.empty()) return;
  if (readers_.size() > most_told_at_once || !untold_.empty()) return tell_soon(std::move(one));
  const auto data = json_of(one);
  for (auto it = readers_.begin(); it != readers_.end();) {
    const auto& [number, who] = *it;
    const bool concerns_it =
        one.name.starts_with(who.key_prefix) && one.name.starts_with(who.prefix);
    if (concerns_it) greet(it->second);
    if (!concerns_it || who.to->send(to_string(one.what), data)) {
      ++it;
      continue;
    }
    who.to->finish("dropped", R"({"why":"this client reads too slowly"})");
    it = readers_.erase(it);
  }
}

void event_hub::watch(const std::shared_ptr<exchange>& to, std::string key_prefix,
                      std::string prefix, limits::place place) {
  const auto gone = to->gone();
  auto stream = to->stream();
  if (stream == nullptr) return;
  const auto number = ++next_reader_;
  auto& who = readers_[number];
  who.to = std::move(stream);
  who.key_prefix = std::move(key_prefix);
  who.prefix = std::move(prefix);
  who.place = std::move(place);
  if (seen_ || !store_.capabilities().listing)
    greet(who);
  else
    look();
  // Not in place: the callback would destroy itself.
  who.on_gone.emplace(gone, [this, number, alive = std::weak_ptr{alive_}] {
    loop_.post([this, number, alive] {
      if (!alive.expired()) readers_.erase(number);
    });
  });
}

// From here on nothing is missed: what others do is seen by comparing, and there is something to compare with.
void event_hub::greet(reader& who) {
  if (std::exchange(who.is_greeted, true)) return;
  who.to->send("hello", json_object{}
                            .add("at_ms", wall_clock_ms())
                            .add("others", store_.capabilities().listing)
                            .text());
}

// To thousands of readers: all that has happened since, in one piece. To tell them takes a tenth of the loop's time at
// most, because those who renew their leases wait for it.
void event_hub::tell_soon(event one) {
  // What is told in one piece must fit into what a reader may leave unread.
  untold_bytes_ += one.name.size() + one.label.size() + one.why.size() + 150;
  untold_.push_back(std::move(one));
  if (untold_bytes_ > most_in_one_piece) return tell_all();
  if (untold_.size() == 1) next_telling_ = loop_.after(10 * telling_took_, [this] { tell_all(); });
}

void event_hub::tell_all() {
  const auto began = std::chrono::steady_clock::now();
  const auto all = std::exchange(untold_, {});
  untold_bytes_ = 0;
  next_telling_.reset();
  std::map<std::pair<std::string_view, std::string_view>, event_batch> by_prefixes;
  const auto batch_for = [&](const reader& who) -> const event_batch& {
    const auto [it, is_new] = by_prefixes.try_emplace({who.key_prefix, who.prefix});
    for (std::size_t i = 0; is_new && i < all.size(); ++i)
      if (all[i].name.starts_with(who.key_prefix) && all[i].name.starts_with(who.prefix))
        it->second.add(to_string(all[i].what), json_of(all[i]));
    return it->second;
  };
  std::vector<std::uint64_t> too_slow;
  for (auto& [number, who] : readers_) {
    const auto& batch = batch_for(who);
    if (batch.empty()) continue;
    greet(who);
    if (who.to->send(batch)) continue;
    who.to->finish("dropped", R"({"why":"this client reads too slowly"})");
    too_slow.push_back(number);
  }
  by_prefixes.clear();  // its keys are those of readers
  for (const auto number : too_slow) readers_.erase(number);
  telling_took_ = std::chrono::steady_clock::now() - began;
}

void event_hub::stop() {
  if (!untold_.empty()) tell_all();
  for (auto& [number, each] : readers_) each.to->finish();
  next_look_.reset();
}

void event_hub::remember(const event& one) {
  auto it = history_.find(one.name);
  if (it == history_.end()) {
    if (oldest_.size() >= most_names) {
      history_.erase(oldest_.front());
      oldest_.pop_front();
    }
    it = history_.emplace(one.name, std::deque<event>{}).first;
    oldest_.push_back(one.name);
  }
  it->second.push_back(one);
  if (it->second.size() > most_of_a_name) it->second.pop_front();
}

std::string event_hub::history(std::string_view name) const {
  json_array out;
  const auto since = wall_clock_ms() - std::chrono::milliseconds{kept_for}.count();
  if (const auto it = history_.find(name); it != history_.end())
    for (const auto& each : it->second)
      if (each.at_ms >= since) out.add_json(json_of(each));
  return out.text();
}

void event_hub::look_soon() {
  if (!store_.capabilities().listing) return;
  next_look_ = loop_.after(look_interval, [this] { look(); });
}

void event_hub::look() {
  if (is_looking_) return;
  if (readers_.empty()) {
    seen_.reset();
    return;
  }
  const auto found = std::make_shared<std::vector<lock_info>>();
  const auto fine = std::make_shared<bool>(false);
  is_looking_ = true;
  const bool begun = loop_.work(
      [store = store_, found, fine] {
        if (auto listed = store.list({}, most_looked_at)) {
          *found = std::move(*listed);
          *fine = true;
        }
      },
      [this, found, fine, alive = std::weak_ptr{alive_}] {
        if (!alive.expired()) looked(*fine ? std::move(*found) : locks_or_nothing{});
      });
  if (!begun) looked({});
}

// A store that does not answer keeps no reader waiting for the first word.
void event_hub::looked(locks_or_nothing found) {
  is_looking_ = false;
  if (found) compare(std::move(*found));
  for (auto& [number, each] : readers_) greet(each);
  look_soon();
}

void event_hub::compare(std::vector<lock_info> now) {
  std::map<std::string, lock_info, std::less<>> current;
  const auto own = own_client ? own_client() : std::array<std::uint64_t, 2>{};
  const auto is_own = [&](const holder_info& each) { return each.owner.client == own; };
  for (auto& lock : now) {
    std::erase_if(lock.holders, is_own);
    std::erase_if(lock.waiters, is_own);
    if (lock.holders.empty() && lock.waiters.empty()) continue;
    auto name = lock.name;
    current.emplace(std::move(name), std::move(lock));
  }
  if (seen_) {
    static const lock_info nothing;
    for (const auto& [name, before] : *seen_) {
      const auto it = current.find(name);
      const auto& after = it == current.end() ? nothing : it->second;
      for (const auto& holder : before.holders)
        if (find_owner(after.holders, holder) == nullptr)
          publish(event_of(event_kind::released, name, holder));
    }
    for (const auto& [name, after] : current) {
      const auto it = seen_->find(name);
      const auto& before = it == seen_->end() ? nothing : it->second;
      for (const auto& holder : after.holders)
        if (find_owner(before.holders, holder) == nullptr)
          publish(event_of(event_kind::granted, name, holder));
      for (const auto& waiter : after.waiters)
        if (find_owner(before.waiters, waiter) == nullptr)
          publish(event_of(event_kind::queued, name, waiter));
    }
  }
  seen_ = std::move(current);
}

}  // namespace holdfast::server
