// What takes its time: the progress of tickets, watches, losses. All of it comes as events.
#include "engines/http/http_engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

namespace holdfast::engines::http {

namespace {

constexpr std::chrono::seconds asking_takes{5};

progress read_progress(const std::optional<pushed_grant>& news, const grant& granted) {
  progress out;
  out.is_granted = news.has_value();
  if (news) out.granted = granted;
  return out;
}

}  // namespace

// The event may have been told to a stream that is gone: so whoever was queued before the present one began asks again.
void http_engine::start_await(const ticket& place, const call& limits,
                              completion<progress>& done) noexcept {
  auto& at = *link_;
  const auto number = place.owner.sequence, stream = place.handle;
  at.waits().for_grant(number, limits,
                       [this, &place, &done](const std::optional<pushed_grant>& news) {
                         grant granted;
                         if (news)
                           granted = make_grant(place.name, news->what, news->from, news->proof);
                         done.complete(read_progress(news, granted));
                       });
  if (at.stream() != stream) at.waits().look_again(number);  // `place` may be gone
}

// ---- watches

// Listens, asks the service to watch, and is over when both have come to an end.
class http_engine::watching final : public completion<answer> {
 public:
  watching(http_engine& in, std::uint64_t id, std::string_view name, completion<void>& done)
      : in_(in), id_(id), name_(name), done_(done) {}

  void begin(watch_kind kind, std::uint64_t seen, const call& limits) {
    what_.verb = "watch";
    what_.name = name_;
    what_.words.add("kind", kind == watch_kind::lock ? "lock" : "counter").add("name", name_);
    what_.words.add("seen", seen).add("watch", id_);
    limits_.stop = limits.stop;
    limits_.deadline = std::min(limits.deadline, std::chrono::steady_clock::now() + asking_takes);
    auto& link = *in_.link_;
    link.waits().for_change(topic(id_), limits, [this](const auto&) { step(); });
    link.ask(what_, {limits_, false}).start(*this);
  }
  static std::string topic(std::uint64_t id) { return fmt::format("w{}", id); }

 private:
  // The service watches, or said no. In doubt there is nothing to hear of, and the caller looks again.
  void complete(result<answer> outcome) noexcept override {
    if (!outcome) {
      const bool is_over =
          limits_.stop.stop_requested() || std::chrono::steady_clock::now() >= limits_.deadline;
      if (outcome.error().code() != errc::outcome_unknown && !is_over) failure_ = outcome.error();
      in_.link_->waits().changed(topic(id_));
    }
    step();
  }
  void step() {
    if (steps_.fetch_add(1) == 0) return;  // the other one is still to come
    question no_more;
    no_more.verb = "unwatch";
    no_more.name = name_;
    no_more.words.add("watch", id_);
    in_.link_->tell(no_more);
    auto outcome = failure_ ? result<void>{*failure_} : result<void>{};
    auto& done = done_;
    delete this;
    done.complete(std::move(outcome));
  }

  http_engine& in_;
  const std::uint64_t id_;
  const std::string name_;
  completion<void>& done_;
  question what_;
  call limits_;
  std::optional<error> failure_;
  std::atomic<int> steps_{0};
};

void http_engine::start_watch(watch_kind kind, std::string_view name, std::uint64_t seen,
                              const call& limits, completion<void>& done) noexcept {
  auto* const made = new watching{*this, ++watches_, name, done};
  made->begin(kind, seen, limits);
}

// ---- events, on the reactor's thread

void http_engine::on_event(std::string_view name, const reply& words,
                           std::uint64_t session) noexcept {
  if (name == "progress") return on_progress(words, session);
  if (name == "changed") {
    if (const auto id = words.natural("watch")) link_->waits().changed(watching::topic(*id));
  } else if (name == "lost") {
    on_losses(words);
  } else if (name == "over") {
    const auto number = words.natural("store_session");
    if (number && *number <= 0xffff'ffffU)
      listener_.on_session_lost((session << 32U) | *number, words.text("why"));
  }
}

void http_engine::on_progress(const reply& words, std::uint64_t session) {
  const auto owner = words.natural("owner");
  if (!owner) return;
  const auto now = words.length("now_ns");
  const auto inner = words.object("grant");
  const auto told = inner ? read_grant(*inner) : std::nullopt;
  if (!told || !now || told->owner != *owner) return link_->waits().look_again(*owner);
  const auto here = clock_.now();
  const auto from = link_->ours(session, *now - told->age);
  if (from == steady_time{}) return link_->waits().look_again(*owner);  // of a session before
  pushed_grant news;
  news.what = *told;
  news.from = std::min(here, from);
  news.proof = link_->proof(session, told->proof,
                            std::min(here, link_->ours(session, *now - told->proof.age)));
  link_->waits().granted(*owner, news);
}

void http_engine::on_losses(const reply& words) {
  std::vector<owner_id> owners;
  for (const auto sequence : words.naturals("owners")) owners.push_back({client_, sequence});
  if (!owners.empty()) listener_.on_lost(owners, words.text("why"));
}

}  // namespace holdfast::engines::http
