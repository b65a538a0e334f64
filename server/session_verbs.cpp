// The verbs of a session: what is asked is judged and copied, passed on, and answered.
#include "body.hpp"
#include "session.hpp"
#include "session_calls.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace holdfast::server {

namespace {

using namespace std::chrono_literals;

constexpr nanoseconds longest_request = 5s;  // as the engine (src/engines/http/link.cpp)
// A thread of the store's own that stands still must not stand in the way of everybody else.
constexpr nanoseconds longest_immediate = 100ms;
constexpr std::size_t longest_name = 255, longest_label = 64;
constexpr std::size_t most_leases = 1000, most_names = 1000, most_watches = 10'000;
constexpr std::size_t most_listed = 10'000;
constexpr std::int64_t most_ns = std::numeric_limits<std::int64_t>::max() / 4;

[[noreturn]] void refuse_field(std::string_view field) {
  throw refused(bad_request(fmt::format("\"{}\" is missing, or is none", field)));
}

template <class T>
T needed(std::optional<T> value, std::string_view field) {
  if (!value) refuse_field(field);
  return std::move(*value);
}

std::uint64_t natural(fields& in, std::string_view field) {
  return needed(in.natural(field), field);
}

nanoseconds length(fields& in, std::string_view field) {
  return nanoseconds{needed(in.whole(field, 0, most_ns), field)};
}

lock_mode mode_in(fields& in, std::string_view field) {
  const auto word = in.text(field, 16);
  for (const auto mode :
       {lock_mode::exclusive, lock_mode::shared, lock_mode::upgradeable, lock_mode::permits})
    if (word && *word == to_string(mode)) return mode;
  refuse_field(field);
}

counter_op op_in(fields& in) {
  constexpr std::array words{std::pair{"read", counter_op::read},
                             std::pair{"create", counter_op::create},
                             std::pair{"store", counter_op::store},
                             std::pair{"add", counter_op::add},
                             std::pair{"compare_exchange", counter_op::compare_exchange},
                             std::pair{"erase", counter_op::erase}};
  const auto given = in.text("op", 32);
  for (const auto& [word, op] : words)
    if (given && *given == word) return op;
  refuse_field("op");
}

refused unsupported(std::string_view what) {
  return refused({.status = 501,
                  .code = word_of(errc::unsupported),
                  .detail = fmt::format("the store of this service has no {}", what)});
}

// Engines are asked what core would ask, and nothing else.
void check_weight(const lock_request& ask, const capabilities& caps) {
  const bool is_permits = ask.mode == lock_mode::permits;
  const bool fits =
      is_permits ? ask.weight >= 1 && ask.weight <= ask.capacity && ask.capacity <= rw_capacity
                 : ask.capacity == rw_capacity &&
                       ask.weight == (ask.mode == lock_mode::exclusive ? rw_capacity
                                      : ask.mode == lock_mode::shared  ? 1
                                                                       : upgradeable_weight);
  if (!fits) refuse_field("weight");
  if (is_permits && !caps.permits) throw unsupported("semaphores");
  if (ask.mode == lock_mode::shared && !caps.shared) throw unsupported("readers");
  if (ask.mode == lock_mode::upgradeable && !caps.upgrade) throw unsupported("upgradeable reads");
  if (ask.priority != 0 && !caps.priorities) throw unsupported("priorities");
  if (ask.ttl < caps.min_ttl || ask.ttl > caps.max_ttl) refuse_field("ttl_ns");
}

// What has that mode already may be asked for again: the answer may have been lost.
bool shrinks(lock_mode is, lock_mode to) noexcept {
  if (is == to || is == lock_mode::exclusive) return true;
  return is == lock_mode::upgradeable && to == lock_mode::shared;
}

refused late() {
  return refused({.status = 409,
                  .code = "late",
                  .detail =
                      "this request came when its client did not wait for it any more, or had "
                      "given up what it is about"});
}

}  // namespace

// ---- what is asked, and how it is answered

call session::limits_in(fields& in, const moment& came) const {
  const nanoseconds by{
      needed(in.whole("by_ns", 0, std::numeric_limits<std::int64_t>::max()), "by_ns")};
  const auto left = by - came.shown.time_since_epoch();
  if (left < 0ns) throw late();
  call out;
  out.deadline = std::chrono::steady_clock::now() +
                 std::min(left, caps().immediate ? longest_immediate : longest_request);
  return out;
}

std::string session::name_in(const visit& to, fields& in, scope wanted) const {
  auto name = needed(in.text("name", longest_name), "name");
  check_name_or_refuse(name);
  to.check(wanted, name);
  return name;
}

std::uint64_t session::owner_in(fields& in) const {
  const auto sequence = natural(in, "owner");
  if (ended_.has(sequence)) throw late();
  return sequence;
}

// Without the texts: they need a place that stays.
lock_request session::request_in(fields& in) const {
  lock_request out;
  out.mode = mode_in(in, "mode");
  out.weight = natural(in, "weight");
  out.capacity = natural(in, "capacity");
  out.ttl = length(in, "ttl_ns");
  out.wait = in.truth("wait").value_or(true);
  const auto order = in.text("order", 16);
  if (order && *order != "fifo" && *order != "barging") refuse_field("order");
  if (order && *order == "barging") out.order = queue_order::barging;
  out.priority = static_cast<int>(in.whole("priority", INT32_MIN, INT32_MAX).value_or(0));
  out.label_is_value = in.truth("label_is_value").value_or(false);
  out.has_readers = in.truth("has_readers").value_or(false);
  // What survives this service survives its client, too, for as long as the service is away.
  out.outlives_client = caps().outlives_client;
  check_weight(out, caps());
  return out;
}

void session::answer(const visit& to, const moment& came, json_object words) {
  words.add("now_ns", nanoseconds{came.shown.time_since_epoch()}.count());
  to.answer(words.text());
}

void session::answer(const visit& to, const moment& came, const attempt& of) const {
  json_object words;
  if (of.is == attempt::state::holding) {
    words.add("what", "granted").add_json("grant", json_of(of.held, came));
  } else {
    words.add("what", of.is == attempt::state::waiting ? "waiting" : "busy");
  }
  answer(to, came, std::move(words));
}

void session::refuse(const visit& to, const error& why) {
  auto out = problem_of(why);
  out.done = why.is_not_done() ? std::optional{false} : std::nullopt;
  out.over = why.is_owner_over();
  to.refuse(out);
}

// Nothing of this owner shall appear any more.
void session::gone(const attempt_ref& which) {
  ended_.add(which->owner.sequence, system_clock().now());
  drop(which);
}

// An owner that was to be replaced, and that turned out to have nothing, was only asked about.
void session::let_go_of_base(const question& what) {
  const auto& base = what.replaced;
  if (base && base->is == attempt::state::nothing && !base->is_busy) drop(base);
}

template <class T>
void session::block(const visit& to, std::function<result<T>()> blocking,
                    std::function<void(T&)> then) {
  const auto got = std::make_shared<std::optional<result<T>>>();
  const bool begun = block([got, blocking = std::move(blocking)] { got->emplace(blocking()); },
                           [got, to, then = std::move(then)] {
                             if (!**got) return refuse(to, (*got)->error());
                             then(***got);
                           });
  if (!begun) to.refuse(too_many("too many questions wait for the store; try later"));
}

// ---- acquire

// A session before this one may have asked for the same owner, and the store may have it.
void session::settled_first(const attempt_ref& of, const call& limits,
                            std::function<void(result<void>)> then) {
  if (of->is != attempt::state::nothing) return then({});
  const auto what = std::make_shared<question>();
  what->about = of;
  what->ask.name = of->name;
  what->ask.owner = of->owner;
  what->limits = limits;
  const auto self = shared_from_this();
  ask<entered>(
      [self, what](auto& done) { self->engine_->start_settle(what->ask, what->limits, done); },
      [self, what, then = std::move(then)](const result<entered>& said) {
        if (!said) return then(said.error());
        self->take(what->about, *said);
        then({});
      });
}

void session::enter(const visit& to, const moment& came, fields& in) {
  const auto what = std::make_shared<question>();
  const auto name = name_in(to, in, scope::acquire);
  const auto sequence = owner_in(in);
  what->ask = request_in(in);
  auto label = in.text("label", longest_label).value_or("");
  if (has_control(label)) refuse_field("label");
  const auto base = in.natural("replaces");
  what->limits = limits_in(in, came);
  in.nothing_else();
  if (around_.is_stopping) throw refused(stopping());
  if (base) find(*base, name);  // throws before anything is made

  auto known = find(sequence, name);
  if (!known) {
    auto lease = around_.bounds.lease(around_.who);
    auto waiter = what->ask.wait ? around_.bounds.waiter(around_.who) : limits::place{};
    known = find_or_make(sequence, name);
    known->lease = std::move(lease);
    known->waiter = std::move(waiter);
    known->label = std::move(label);
  }
  what->about = known;
  what->ask.name = known->name;
  what->ask.label = known->label;
  what->ask.owner = known->owner;
  if (base) {
    what->replaced = find_or_make(*base, name);
    known->replaces = *base;
  }
  in_turn(known, [self = shared_from_this(), to, came, what, sequence] {
    if (!self->ended_.has(sequence)) return self->enter_new(to, came, what);
    to.refuse(late().why());  // while this waited for its turn
    self->let_go_of_base(*what);
    self->done(what->about);
  });
}

void session::enter_new(const visit& to, const moment& came,
                        const std::shared_ptr<question>& what) {
  const auto self = shared_from_this();
  const bool may_be_known =
      what->about->is == attempt::state::nothing && what->about->owner.sequence <= how_.newest;
  const auto next = [self, to, came, what](const result<void>& there) {
    if (there && what->about->is != attempt::state::holding) {
      if (!what->replaced) return self->enter_now(to, came, what);
      return self->settled_first(what->replaced, what->limits, [=](const result<void>& base) {
        const bool is_held = what->replaced->is == attempt::state::holding;
        if (base && is_held) {
          what->base = what->replaced->held;
          what->ask.replaces = &what->base;
          return self->enter_now(to, came, what);
        }
        if (base) self->gone(what->replaced);
        self->let_go_of_base(*what);
        refuse(to,
               base ? error{errc::not_held, fmt::format("lock '{}' on {} is not held any more by "
                                                        "the owner that was to be upgraded",
                                                        what->about->name, self->around_.store)}
                    : base.error());
        self->done(what->about);
      });
    }
    if (there) {
      self->answer(to, came, *what->about);
    } else {
      refuse(to, there.error());
    }
    self->let_go_of_base(*what);
    self->done(what->about);
  };
  if (may_be_known) return settled_first(what->about, what->limits, next);
  next({});
}

void session::enter_now(const visit& to, const moment& came,
                        const std::shared_ptr<question>& what) {
  const auto self = shared_from_this();
  ask<entered>(
      [self, what](auto& done) { self->engine_->start_enter(what->ask, what->limits, done); },
      [self, to, came, what](const result<entered>& said) {
        if (said) {
          self->take(what->about, *said);
          self->answer(to, came, *what->about);
        } else {
          // Its client comes with another owner, and nobody leaves this one.
          if (said.error().is_owner_over()) self->gone(what->about);
          refuse(to, said.error());
        }
        self->done(what->about);
      });
}

void session::enter_all(const visit& to, const moment& came, fields& in) {
  struct several {
    std::vector<attempt_ref> about;
    std::vector<std::string> labels;
    std::vector<lock_request> asks;
    call limits;
  };
  const auto what = std::make_shared<several>();
  auto each = in.objects("asks", most_names);
  what->limits = limits_in(in, came);
  in.nothing_else();
  if (each.empty()) refuse_field("asks");
  if (!caps().atomic_multi) throw unsupported("way to take several locks at once");
  if (around_.is_stopping) throw refused(stopping());
  std::vector<std::pair<std::string, std::uint64_t>> owners;
  std::vector<limits::place> places;
  for (auto& one : each) {
    const auto& [lock, owner] =
        owners.emplace_back(name_in(to, one, scope::acquire), owner_in(one));
    const bool is_twice =
        std::ranges::count(owners, owner, [](auto& known) { return known.second; }) > 1;
    if (is_twice || find(owner, lock) != nullptr) refuse_field("owner");
    what->asks.push_back(request_in(one));
    what->labels.push_back(one.text("label", longest_label).value_or(""));
    if (has_control(what->labels.back())) refuse_field("label");
    one.nothing_else();
    places.push_back(around_.bounds.lease(around_.who));
  }
  for (std::size_t i = 0; i < each.size(); ++i) {
    const auto& [name, sequence] = owners[i];
    const auto made = find_or_make(sequence, name);
    made->lease = std::move(places[i]);
    made->is_busy = true;
    made->label = what->labels[i];
    what->asks[i].name = made->name;
    what->asks[i].owner = made->owner;
    what->asks[i].label = made->label;
    what->about.push_back(made);
  }
  const auto self = shared_from_this();
  ask<std::vector<grant>>(
      [self, what](auto& done) { self->engine_->start_enter_all(what->asks, what->limits, done); },
      [self, to, came, what](const result<std::vector<grant>>& got) {
        json_array grants;
        if (got)
          for (std::size_t i = 0; i < got->size(); ++i) {
            self->take(what->about[i], (*got)[i]);
            grants.add_json(json_of(what->about[i]->held, came));
          }
        if (got) {
          answer(to, came, std::move(json_object{}.add_json("grants", grants.text())));
        } else {
          refuse(to, got.error());
        }
        for (const auto& one : what->about) self->done(one);
      });
}

void session::settle(const visit& to, const moment& came, fields& in) {
  const auto what = std::make_shared<question>();
  const auto name = name_in(to, in, scope::acquire);
  const auto sequence = natural(in, "owner");
  const auto base = in.natural("replaces");
  what->limits = limits_in(in, came);
  in.nothing_else();
  what->about = find_or_make(sequence, name);
  what->ask.name = what->about->name;
  what->ask.owner = what->about->owner;
  const auto self = shared_from_this();
  in_turn(what->about, [self, to, came, what, base] {
    if (base) {
      const auto known = self->attempts_.find(*base);
      if (known != self->attempts_.end()) what->base = known->second->held;
      what->base.name = what->about->name;
      what->base.owner = {self->client_, *base};
      what->ask.replaces = &what->base;
      // What holds already is no upgrade any more, whatever its client says.
      if (what->about->is != attempt::state::holding) what->about->replaces = *base;
    }
    self->ask<entered>(
        [self, what](auto& done) { self->engine_->start_settle(what->ask, what->limits, done); },
        [self, to, came, what](const result<entered>& said) {
          if (said) {
            self->take(what->about, *said);
            if (said->what == entered::kind::busy) self->gone(what->about);
            self->answer(to, came, *what->about);
          } else {
            refuse(to, said.error());
          }
          self->done(what->about);
        });
  });
}

// ---- giving back

void session::leave(const visit& to, const moment& came, fields& in) {
  const auto what = std::make_shared<question>();
  const auto name = name_in(to, in, scope::acquire);
  const auto sequence = natural(in, "owner");
  what->place.replacing = in.truth("replacing").value_or(false);
  what->limits = limits_in(in, came);
  in.nothing_else();
  what->about = find_or_make(sequence, name);
  const auto self = shared_from_this();
  in_turn(what->about, [self, to, came, what] {
    self->settled_first(what->about, what->limits,
                        [self, to, came, what](const result<void>& there) {
                          if (there && what->about->is != attempt::state::nothing)
                            return self->leave_now(to, came, what);
                          if (there) {
                            self->gone(what->about);
                            answer(to, came, json_object{});
                          } else {
                            refuse(to, there.error());
                          }
                          self->done(what->about);
                        });
  });
}

void session::leave_now(const visit& to, const moment& came,
                        const std::shared_ptr<question>& what) {
  const auto self = shared_from_this();
  const bool replacing = what->place.replacing;
  what->place = what->about->place;
  what->place.name = what->about->name;
  what->place.owner = what->about->owner;
  what->place.replacing = replacing;
  ask<void>(
      [self, what](auto& done) { self->engine_->start_leave(what->place, what->limits, done); },
      [self, to, came, what](const result<void>& left) {
        if (!left) {
          refuse(to, left.error());
        } else {
          // What became of an upgrade is found out by settle.
          const bool stays = what->place.replacing && what->about->is == attempt::state::holding;
          if (!stays) self->gone(what->about);
          answer(to, came, json_object{});
        }
        self->done(what->about);
      });
}

void session::release(const visit& to, const moment& came, fields& in) {
  const auto what = std::make_shared<question>();
  const auto name = name_in(to, in, scope::acquire);
  const auto sequence = natural(in, "owner");
  what->limits = limits_in(in, came);
  in.nothing_else();
  what->about = find_or_make(sequence, name);
  const auto self = shared_from_this();
  in_turn(what->about, [self, to, came, what] {
    self->settled_first(
        what->about, what->limits, [self, to, came, what](const result<void>& there) {
          if (there && what->about->is == attempt::state::holding)
            return self->release_now(to, came, what);
          if (there) {
            if (what->about->is == attempt::state::nothing) self->gone(what->about);
            refuse(to, {errc::not_held,
                        fmt::format("lock '{}' on {} is not held by this owner (any more)",
                                    what->about->name, self->around_.store)});
          } else {
            refuse(to, there.error());
          }
          self->done(what->about);
        });
  });
}

void session::release_now(const visit& to, const moment& came,
                          const std::shared_ptr<question>& what) {
  const auto self = shared_from_this();
  what->held = what->about->held;
  ask<void>(
      [self, what](auto& done) { self->engine_->start_release(what->held, what->limits, done); },
      [self, to, came, what](const result<void>& released) {
        if (released || released.error().code() == errc::not_held) self->gone(what->about);
        if (released) {
          answer(to, came, json_object{});
        } else {
          refuse(to, released.error());
        }
        self->done(what->about);
      });
}

void session::downgrade(const visit& to, const moment& came, fields& in) {
  const auto what = std::make_shared<question>();
  const auto name = name_in(to, in, scope::acquire);
  const auto sequence = natural(in, "owner");
  const auto mode = mode_in(in, "to");
  what->limits = limits_in(in, came);
  in.nothing_else();
  if (mode != lock_mode::shared && mode != lock_mode::upgradeable) refuse_field("to");
  what->about = find_or_make(sequence, name);
  const auto self = shared_from_this();
  in_turn(what->about, [self, to, came, what, mode] {
    self->settled_first(what->about, what->limits, [=](const result<void>& there) {
      if (there && what->about->is == attempt::state::holding)
        return self->downgrade_now(to, came, what, mode);
      refuse(to, there ? error{errc::not_held,
                               fmt::format("lock '{}' on {} is not held by this owner (any more)",
                                           what->about->name, self->around_.store)}
                       : there.error());
      self->done(what->about);
    });
  });
}

void session::downgrade_now(const visit& to, const moment& came,
                            const std::shared_ptr<question>& what, lock_mode mode) {
  const auto self = shared_from_this();
  what->held = what->about->held;
  if (!shrinks(what->held.mode, mode)) {
    refuse(to,
           not_done{errc::misconfigured,
                    fmt::format("lock '{}' on {} is held as {}, which cannot be downgraded to {}",
                                what->about->name, around_.store, to_string(what->held.mode),
                                to_string(mode))});
    return done(what->about);
  }
  const auto got = std::make_shared<std::optional<result<grant>>>();
  const bool begun = block(
      [self, what, got, mode] {
        got->emplace(self->engine_->downgrade(what->held, mode, what->limits));
      },
      [self, to, came, what, got] {
        const auto& shrunk = **got;
        if (shrunk) {
          self->take(what->about, *shrunk);
          answer(to, came,
                 std::move(json_object{}.add_json("grant", json_of(what->about->held, came))));
        } else {
          if (shrunk.error().code() == errc::not_held) self->gone(what->about);
          refuse(to, shrunk.error());
        }
        self->done(what->about);
      });
  if (begun) return;
  to.refuse(too_many("too many questions wait for the store; try later"));
  done(what->about);
}

// ---- renewal

struct session::round {
  std::vector<attempt_ref> about;
  std::vector<bool> must_ask;
  std::vector<grant> held;  // in the order of `asked`
  std::vector<renewal> asked;
  std::vector<std::size_t> which;  // of `about` each of them is
  std::vector<bool> is_unsure;
  std::size_t left = 0;
  call limits;
};

void session::renew(const visit& to, const moment& came, fields& in) {
  const auto what = std::make_shared<round>();
  auto leases = in.objects("leases", most_leases);
  what->limits = limits_in(in, came);
  in.nothing_else();
  std::vector<std::pair<std::string, std::uint64_t>> owners;
  for (auto& one : leases) {
    owners.emplace_back(name_in(to, one, scope::acquire), natural(one, "owner"));
    what->must_ask.push_back(one.truth("must_ask").value_or(false));
    one.nothing_else();
    find(owners.back().second, owners.back().first);  // throws for another name
  }
  // Shows the client that its events come through.
  say("beat", "{}");
  what->is_unsure.resize(leases.size());
  what->left = 1;
  const auto self = shared_from_this();
  const auto next = [self, to, came, what] {
    if (--what->left == 0) self->renew_known(to, came, what);
  };
  for (std::size_t i = 0; i < owners.size(); ++i) {
    const auto& [name, sequence] = owners[i];
    const auto known = find_or_make(sequence, name);
    what->about.push_back(known);
    // What is being asked about now is not known to be lost.
    what->is_unsure[i] = known->is_busy && known->is == attempt::state::nothing;
    if (known->is != attempt::state::nothing || known->is_busy) continue;
    ++what->left;
    in_turn(known, [self, what, known, i, next] {
      self->settled_first(known, what->limits,
                          [self, what, known, i, next](const result<void>& there) {
                            what->is_unsure[i] = !there;
                            if (there && known->is == attempt::state::nothing) self->gone(known);
                            self->done(known);
                            next();
                          });
    });
  }
  next();
}

void session::renew_known(const visit& to, const moment& came, const std::shared_ptr<round>& what) {
  for (std::size_t i = 0; i < what->about.size(); ++i)
    if (what->about[i]->is == attempt::state::holding) what->which.push_back(i);
  for (const auto i : what->which) what->held.push_back(what->about[i]->held);
  for (std::size_t k = 0; k < what->which.size(); ++k) {
    renewal one;
    one.held = &what->held[k];
    one.must_ask = what->must_ask[what->which[k]];
    what->asked.push_back(one);
  }
  if (what->asked.empty() && caps().longest_validity == 0ns)
    return answer_renewed(to, came, *what, session_proof{});
  const auto self = shared_from_this();
  ask<session_proof>(
      [self, what](auto& done) { self->engine_->start_renew(what->asked, what->limits, done); },
      [self, to, came, what](const result<session_proof>& proof) {
        self->answer_renewed(to, came, *what, proof);
      });
}

void session::answer_renewed(const visit& to, const moment& came, const round& what,
                             const result<session_proof>& proof) {
  if (!proof) return refuse(to, proof.error());
  std::vector<std::string> verdicts;
  renewal unknown, lost;
  lost.answer = renewal::verdict::lost;
  for (std::size_t i = 0; i < what.about.size(); ++i) {
    const bool is_gone = !what.is_unsure[i] && what.about[i]->is == attempt::state::nothing;
    verdicts.push_back(json_of(is_gone ? lost : unknown, came));
  }
  for (std::size_t k = 0; k < what.asked.size(); ++k) {
    const auto& one = what.asked[k];
    const auto i = what.which[k];
    verdicts[i] = json_of(one, came);
    const auto& known = what.about[i];
    const bool is_over = one.answer == renewal::verdict::lost && !known->is_busy &&
                         known->held.owner == one.held->owner;
    if (is_over) gone(known);
  }
  json_array all;
  for (const auto& one : verdicts) all.add_json(one);
  json_object words;
  words.add_json("leases", all.text());
  add_proof(words, *proof, came);
  answer(to, came, std::move(words));
}

// ---- views, counters

void session::inspect(const visit& to, const moment& came, fields& in) {
  const auto what = std::make_shared<std::pair<std::string, call>>();
  what->first = needed(in.text("name", longest_name), "name");
  check_name_or_refuse(what->first);
  // Who may take a lock may see why it does not get it.
  if (!to.who->may(scope::acquire, what->first)) to.check(scope::inspect, what->first);
  what->second = limits_in(in, came);
  in.nothing_else();
  const auto self = shared_from_this();
  ask<lock_info>(
      [self, what](auto& done) { self->engine_->start_inspect(what->first, what->second, done); },
      [to, came, what](const result<lock_info>& seen) {
        if (!seen) return refuse(to, seen.error());
        answer(to, came, std::move(json_object{}.add_json("lock", json_of(*seen))));
      });
}

namespace {

template <class Info>
json_object all_of(std::string_view field, const std::vector<Info>& all) {
  json_array out;
  for (const auto& one : all) out.add_json(json_of(one));
  return std::move(json_object{}.add_json(field, out.text()));
}

}  // namespace

void session::list(const visit& to, const moment& came, fields& in) {
  auto prefix = in.text("prefix", longest_name).value_or("");
  const auto most = std::min<std::uint64_t>(natural(in, "limit"), most_listed);
  const auto limits = limits_in(in, came);
  in.nothing_else();
  to.check(scope::inspect, prefix);
  block<std::vector<lock_info>>(
      to,
      [self = shared_from_this(), prefix = std::move(prefix), most, limits] {
        return self->engine_->list(prefix, most, limits);
      },
      [to, came](const auto& all) { answer(to, came, all_of("locks", all)); });
}

void session::list_counters(const visit& to, const moment& came, fields& in) {
  auto prefix = in.text("prefix", longest_name).value_or("");
  const auto most = std::min<std::uint64_t>(natural(in, "limit"), most_listed);
  const auto limits = limits_in(in, came);
  in.nothing_else();
  to.check(scope::inspect, prefix);
  block<std::vector<counter_info>>(
      to,
      [self = shared_from_this(), prefix = std::move(prefix), most, limits] {
        return self->engine_->list_counters(prefix, most, limits);
      },
      [to, came](const auto& all) { answer(to, came, all_of("counters", all)); });
}

void session::revoke(const visit& to, const moment& came, fields& in) {
  const auto name = name_in(to, in, scope::break_locks);
  const auto limits = limits_in(in, came);
  in.nothing_else();
  const auto self = shared_from_this();
  const auto ended = std::make_shared<std::optional<result<std::size_t>>>();
  const bool begun =
      block([self, ended, name, limits] { ended->emplace(self->engine_->revoke(name, limits)); },
            [self, to, came, ended, name] {
              const auto& outcome = **ended;
              self->around_.note_break(to, name, outcome);
              if (!outcome) return refuse(to, outcome.error());
              answer(to, came, std::move(json_object{}.add("holders_ended", *outcome)));
            });
  if (!begun) to.refuse(too_many("too many questions wait for the store; try later"));
}

void session::diagnose(const visit& to, const moment& came, fields& in) {
  const auto limits = limits_in(in, came);
  in.nothing_else();
  to.check(scope::inspect, to.who->prefix);
  block<std::vector<finding>>(
      to, [self = shared_from_this(), limits] { return self->engine_->diagnose(limits); },
      [to, came](const auto& all) { answer(to, came, all_of("findings", all)); });
}

void session::count(const visit& to, const moment& came, fields& in) {
  struct counting {
    std::string name;
    counter_request ask;
    call limits;
  };
  const auto what = std::make_shared<counting>();
  what->name = name_in(to, in, scope::acquire);
  what->ask.name = what->name;
  what->ask.op = op_in(in);
  constexpr auto low = std::numeric_limits<std::int64_t>::min(),
                 high = std::numeric_limits<std::int64_t>::max();
  what->ask.operand = in.whole("operand", low, high).value_or(0);
  what->ask.expected = in.whole("expected", low, high).value_or(0);
  what->ask.keep = std::min(nanoseconds{in.whole("keep_ns", 0, high).value_or(0)},
                            counter_request::longest_keep);
  what->limits = limits_in(in, came);
  in.nothing_else();
  if (!caps().counters) throw unsupported("counters");
  const auto self = shared_from_this();
  ask<counter>(
      [self, what](auto& done) { self->engine_->start_count(what->ask, what->limits, done); },
      [to, came](const result<counter>& now) {
        if (!now) return refuse(to, now.error());
        json_object words;
        add_counter(words, *now);
        answer(to, came, std::move(words));
      });
}

void session::watch(const visit& to, const moment& came, fields& in) {
  const auto what = std::make_shared<watched>();
  what->name = name_in(to, in, scope::acquire);
  const auto kind = needed(in.text("kind", 16), "kind");
  const auto seen = natural(in, "seen");
  const auto id = natural(in, "watch");
  static_cast<void>(limits_in(in, came));
  in.nothing_else();
  if (kind != "lock" && kind != "counter") refuse_field("kind");
  if (around_.is_stopping) throw refused(stopping());
  if (watches_.size() >= most_watches) throw refused(too_many("this client watches too much"));
  what->place = around_.bounds.waiter(around_.who);
  if (!watches_.emplace(id, what).second) refuse_field("watch");
  what->limits.stop = what->stop.get_token();
  const auto self = shared_from_this();
  answer(to, came, json_object{});
  ask<void>(
      [self, what, seen, of = kind == "lock" ? watch_kind::lock : watch_kind::counter](auto& done) {
        self->engine_->start_watch(of, what->name, seen, what->limits, done);
      },
      [self, what, id](const result<void>&) {
        const auto at = self->watches_.find(id);
        if (at == self->watches_.end() || at->second != what) return;
        self->watches_.erase(at);
        self->say("changed", json_object{}.add("watch", id).text());
      });
}

void session::unwatch(const visit& to, const moment& came, fields& in) {
  const auto id = natural(in, "watch");
  static_cast<void>(in.whole("by_ns", 0, std::numeric_limits<std::int64_t>::max()));
  in.nothing_else();
  const auto at = watches_.find(id);
  if (at != watches_.end()) {
    const auto what = at->second;
    watches_.erase(at);
    what->stop.request_stop();
  }
  answer(to, came, json_object{});
}

}  // namespace holdfast::server
