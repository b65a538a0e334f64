#include "engines/etcd/lookout.hpp"

#include <algorithm>

namespace holdfast::engines::etcd {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t long_line = 16;  // from here on a waiter looks at the one before it only
constexpr auto mirror_kept = 2s;

}  // namespace

// A waiter in a long line: the key before its own. When that has gone, it asks where it stands.
class lookout::one_before final : private watcher, public std::enable_shared_from_this<one_before> {
 public:
  one_before(lookout& in, std::string before, std::uint64_t number)
      : in_(in), before_(std::move(before)), number_(number) {
    id_ = in.watches_.add(before_, *this);
  }
  ~one_before() { in_.watches_.remove(id_); }
  const std::string& before() const noexcept { return before_; }
  // The waiter sleeps from now on. Had anything happened while it was asking, it may have asked too early.
  void sleeps() {
    asleep_ = true;
    if (std::exchange(happened_, false)) wake();
  }

 private:
  class looking;
  void on_watching(std::int64_t) noexcept override;
  void on_events(const rpc::WatchResponse&) noexcept override { wake(); }
  void wake() {
    if (std::exchange(asleep_, false)) {
      in_.room_.look_again(number_);
    } else {
      happened_ = true;
    }
  }

  lookout& in_;
  const std::string before_;
  const std::uint64_t number_;
  watches::id id_ = 0;
  bool asleep_ = false;
  bool happened_ = false;
};

// It may have gone before the watch stood.
class lookout::one_before::looking final : public cluster::handler {
 public:
  explicit looking(std::weak_ptr<one_before> to, const std::string& key) : to_(std::move(to)) {
    auto ask = range_of(key);
    ask.set_keys_only(true);
    what_ = {method::range, bytes_of(ask)};
    limits_.deadline = std::chrono::steady_clock::now() + 3s;
  }
  void go(cluster& over) noexcept { over.post(what_, limits_, *this); }

 private:
  void on_answer(answer said) noexcept override {
    rpc::RangeResponse in;
    const bool there =
        said.got && said.got->ok() && in.ParseFromString(said.got->body) && in.kvs_size() > 0;
    if (const auto to = to_.lock(); to && !there && !to->in_.ending_) to->wake();
    delete this;
  }
  const std::weak_ptr<one_before> to_;
  question what_;
  call limits_;
};

void lookout::one_before::on_watching(std::int64_t) noexcept {
  (new looking{weak_from_this(), before_})->go(in_.cluster_);
}

// ---- waiting

void lookout::look_for(const book::ref& waiter) {
  if (ending_) return;
  attend();
  std::size_t ahead = 0;
  std::string before, key;
  {
    const auto lock = book_.lock();
    if (waiter->is != entry::state::waiting || waiter->key.empty()) {
      ahead = 0;
    } else {
      key = waiter->key;
      before = waiter->before;
      if (waiter->mode == lock_mode::exclusive && !waiter->over) ahead = waiter->ahead;
    }
  }
  const auto number = waiter->owner.sequence;
  if (key.empty()) return room_.look_again(number);
  const auto topic = topic_of(watch_kind::lock, waiter->name);
  if (ahead >= long_line && !before.empty() && !mirrors_.contains(topic)) {
    auto& slot = before_[number];
    if (!slot || slot->before() != before)
      slot = std::make_shared<one_before>(*this, before, number);
    return slot->sleeps();
  }
  before_.erase(number);
  const auto [first, last] = waiters_.equal_range(waiter->name);
  if (std::none_of(first, last, [&](const auto& one) { return one.second == waiter; }))
    waiters_.emplace(waiter->name, waiter);
  const auto seen = mirror_of(watch_kind::lock, waiter->name);
  if (seen->is_true()) serve(*waiter, seen->as_line(), seen->revision());
}

std::string lookout::topic_of(watch_kind kind, std::string_view name) {
  return std::string{kind == watch_kind::lock ? "l" : "c"}.append(name);
}

std::shared_ptr<mirror> lookout::mirror_of(watch_kind kind, const std::string& name) {
  auto& slot = mirrors_[topic_of(kind, name)];
  if (!slot) {
    auto range =
        kind == watch_kind::lock ? keys_of(root_, name) : key_range{counter_key(root_, name), {}};
    slot = std::make_shared<mirror>(cluster_, watches_, std::move(range),
                                    [this, kind, name](mirror& now) { changed(kind, name, now); });
    slot->begin();
  }
  slot->used_at = clock_.now();
  return slot;
}

void lookout::changed(watch_kind kind, const std::string& name, mirror& now) {
  if (ending_) return;
  if (kind == watch_kind::counter)
    return tell_observers(kind, name, static_cast<std::uint64_t>(now.modified()));
  const auto seen = now.as_line();
  serve(name, seen, now.revision());
  note_contention(name, seen.anybody_waits());
  if (observers_.contains(topic_of(kind, name))) tell_observers(kind, name, seen.version());
}

void lookout::serve(const std::string& name, const line& now, std::int64_t revision) {
  auto [at, end] = waiters_.equal_range(name);
  while (at != end) {
    const auto waiter = at->second;
    {
      const auto lock = book_.lock();
      if (waiter->is != entry::state::waiting) {
        at = waiters_.erase(at);
        continue;
      }
    }
    ++at;
    serve(*waiter, now, revision);
  }
}

// The line shows the waiter's own key at a revision, and whose turn it was then. A holder stays one as long as its key
// is there, so this is as good as having asked.
void lookout::serve(entry& waiter, const line& now, std::int64_t revision) {
  const auto number = waiter.owner.sequence;
  bool granted = false;
  {
    const auto lock = book_.lock();
    if (waiter.is != entry::state::waiting || revision < waiter.created) return;
    const auto* own = waiter.key.empty() ? nullptr : now.find(waiter.key);
    if (own != nullptr && own->stands == place::standing::holder && !own->overtaken()) {
      waiter.is = entry::state::holding;
      waiter.since = clock_.now();
      waiter.until = waiter.since + waiter.ttl;  // until it is told, and renews
      waiter.token = own->token;
      granted = true;
    } else if (own != nullptr) {
      const bool turn = own->stands == place::standing::holder || now.lets_upgrade(*own) ||
                        own->stands == place::standing::idle;
      if (!turn) return;
    }
  }
  if (granted) {
    room_.granted(number, {});
  } else {
    room_.look_again(number);  // its key is gone, or there is something left to do
  }
}

// ---- does anybody wait?

bool lookout::is_contended(std::string_view name) {
  {
    const std::lock_guard lock{guard_};
    const auto [at, fresh] = contended_.try_emplace(std::string{name}, true);
    if (!fresh && !at->second) return false;
  }
  cluster_.driver().post([this, of = std::string{name}] {
    if (ending_) return;
    attend();
    mirror_of(watch_kind::lock, of);
  });
  return true;
}

void lookout::note_contention(const std::string& name, bool contended) {
  const std::lock_guard lock{guard_};
  const auto at = contended_.find(name);
  if (at != contended_.end()) at->second = contended;
}

// ---- watch verbs

void lookout::observe(watch_kind kind, const std::string& name, std::uint64_t seen,
                      sign_of_life alive) {
  if (ending_) return;
  attend();
  const auto topic = topic_of(kind, name);
  observers_.emplace(topic, observer{seen, std::move(alive)});
  const auto now = mirror_of(kind, name);
  if (!now->is_true()) return;
  tell_observers(kind, name,
                 kind == watch_kind::lock ? now->as_line().version()
                                          : static_cast<std::uint64_t>(now->modified()));
}

void lookout::tell_observers(watch_kind kind, const std::string& name, std::uint64_t version) {
  const auto topic = topic_of(kind, name);
  const auto [first, last] = observers_.equal_range(topic);
  bool any = false;
  for (auto at = first; at != last;) {
    const bool over = !*at->second.alive || at->second.seen != version;
    any = any || at->second.seen != version;
    at = over ? observers_.erase(at) : std::next(at);
  }
  if (any) room_.changed(topic);  // the others look again, too
}

// ---- from time to time

void lookout::tend_mirrors() {
  const auto now = clock_.now();
  std::erase_if(observers_, [](const auto& one) { return !*one.second.alive; });
  {
    const auto lock = book_.lock();
    const auto waits = [](const auto& one) { return one->is == entry::state::waiting; };
    std::erase_if(waiters_, [&](const auto& one) { return !waits(one.second); });
    std::erase_if(before_, [&](const auto& one) {
      const auto at = book_.all().find(one.first);
      return at == book_.all().end() || !waits(at->second);
    });
  }
  for (auto at = mirrors_.begin(); at != mirrors_.end();) {
    const auto& topic = at->first;
    const bool lock = topic.front() == 'l';
    if (observers_.contains(topic) || (lock && waiters_.contains(topic.substr(1))))
      at->second->used_at = now;
    if (now - at->second->used_at < mirror_kept) {
      ++at;
      continue;
    }
    at->second->end();
    if (lock) {
      const std::lock_guard held{guard_};
      contended_.erase(topic.substr(1));
    }
    at = mirrors_.erase(at);
  }
}

}  // namespace holdfast::engines::etcd
