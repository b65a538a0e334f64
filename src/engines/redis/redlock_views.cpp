// Opening a Redlock; what operators see of it, and watching.
#include "engines/redis/redlock.hpp"

#include "engines/common/doctor_checks.hpp"
#include "engines/common/sentences.hpp"
#include "engines/common/server_clock.hpp"
#include "engines/common/store_address.hpp"
#include "engines/common/watch_loop.hpp"
#include "engines/redis/compat_layout.hpp"
#include "engines/redis/diagnose.hpp"
#include "engines/redis/native.hpp"
#include "engines/redis/redlock_scripts.hpp"
#include "support/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

namespace holdfast::engines::redis {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t fewest_nodes = 3, most_nodes = 15;
// A release is heard; that another one has the lock is not.
constexpr nanoseconds between_views = 250ms;
constexpr int most_looks = 5;

capabilities describe_redlock(const redlock_settings& how) {
  capabilities caps;
  const auto nodes = how.nodes.size(), quorum = nodes / 2 + 1;
  caps.engine = fmt::format("redlock over {} nodes", nodes);
  caps.cross_process = true;
  caps.listing = !how.prefix.empty();
  caps.wakeup = wakeup_kind::push;
  caps.clock = expiry_clock::server;
  caps.token = token_origin::counter;
  caps.fencing = fencing_strength::best_effort;
  caps.min_ttl = 20ms;
  caps.max_ttl = how.longest_ttl;
  caps.drift_ppm = server_drift_ppm;
  caps.margin = server_margin;
  caps.expiry_slack = 300ms;
  caps.exclusion = fmt::format(
      "While {} of {} nodes keep what they have acknowledged until it ends, no node's clock jumps, "
      "and none runs more than 1 % apart from ours. A node whose clock jumps forward, or that "
      "forgets its data {}, may let a second holder in; the tokens tell the two apart.",
      quorum, nodes,
      how.quarantine > 0ns ? "without being restarted" : "(this address says that none does)");
  caps.token_scope = fmt::format(
      "Of each name: above every token that was given before, because {0} nodes have the last one "
      "before its holder is told, and any {0} nodes share one with them. This holds also when a "
      "clock that jumped forward let a second holder in. A name that was not used for ten minutes, "
      "and a node that has lost its data, go on with the node's clock in microseconds: tokens may "
      "then fall where that clock is behind the last token, because it was set back or the clocks "
      "of the nodes differ. Other programs that take the lock get no token.",
      quorum);
  caps.limits = fmt::format(
      "Exclusive locks only: the counts of several holders cannot be added up over majorities. No "
      "order among waiters. Dead holders are noticed after their ttl, which is at most {} "
      "(?longest_ttl=). With fewer than {} nodes in reach nothing can be taken or renewed. Other "
      "programs release without a message: then a waiter notices within a quarter of a second. "
      "There is no place for labels.",
      format_duration(how.longest_ttl), quorum);
  if (how.quarantine > 0ns)
    caps.limits += fmt::format(
        " A node has no vote for {} after its start (?quarantine=), so neither have servers that "
        "were all just started.",
        format_duration(how.quarantine));
  return caps;
}

// Of what is left, for the next of so many nodes: one that does not answer must not use up the time of the others.
call share_of(const call& all, std::size_t nodes) {
  constexpr nanoseconds longest = 2s;
  const auto now = std::chrono::steady_clock::now();
  call out = all;
  const auto left = all.deadline == steady_time::max() ? longest : all.deadline - now;
  out.deadline = now + std::min<nanoseconds>(left, left / static_cast<std::int64_t>(nodes));
  return out;
}

}  // namespace

// ---- the address

result<redlock_settings> read_redlock_settings(const store_url& url) {
  if (auto known = url.allow_only({"prefix", "db", "longest_ttl", "quarantine", "node_timeout",
                                   "password_file", "password_env", "ca_file", "cert_file",
                                   "key_file", "server_name"});
      !known)
    return std::move(known).error();
  redlock_settings out;
  out.url = url.str();
  out.prefix = text_option(url, "prefix");
  if (out.prefix.size() > 64 || support::has_control(out.prefix))
    return bad_address(url, "must have a prefix of at most 64 bytes without control characters.");
  if (!url.path().empty() && url.path() != "/")
    return bad_address(url, "has a path, which Redlock has no use for; a database is ?db=1.");
  const bool use_tls = url.scheme() == "redlocks";
  auto members =
      read_members(url, use_tls, 6379, "redlock://a:6379,b:6379,c:6379", "TLS is redlocks://");
  if (!members) return std::move(members).error();
  std::set<std::string> names;
  for (const auto& member : *members) names.insert(member.name);
  if (names.size() != members->size())
    return bad_hosts(url, "names a node twice: it would have two votes.");
  if (members->size() < fewest_nodes || members->size() > most_nodes)
    return bad_hosts(url, fmt::format("must name {} to {} nodes, better an odd number of them.",
                                      fewest_nodes, most_nodes));
  auto login = read_login(url);
  if (!login) return std::move(login).error();
  auto db = url.integer("db", 0, 0, 1'000'000);
  if (!db) return std::move(db).error();
  auto longest = url.duration("longest_ttl", 1min, 1s, 24h);
  if (!longest) return std::move(longest).error();
  out.longest_ttl = *longest;
  auto quarantine = url.duration("quarantine", *longest, 0s, 24h);
  if (!quarantine) return std::move(quarantine).error();
  if (*quarantine > 0s && *quarantine < *longest)
    return bad_address(url,
                       "has a quarantine that is shorter than longest_ttl: locks that a node has "
                       "forgotten would outlast it.");
  out.quarantine = *quarantine;
  if (url.find("node_timeout") != nullptr) {
    auto timeout = url.duration("node_timeout", 0s, 1ms, 1min);
    if (!timeout) return std::move(timeout).error();
    out.node_timeout = *timeout;
  }
  for (const auto& member : *members) {
    settings node;
    node.where.host = member.host;
    node.where.port = member.port;
    node.where.use_tls = use_tls;
    node.where.tls = {member.tls.ca_file, member.tls.cert_file, member.tls.key_file,
                      member.tls.server_name};
    node.url = fmt::format("{}://{}", use_tls ? "rediss" : "redis", member.name);
    node.user = login->user;
    node.password = login->password;
    node.db = static_cast<int>(*db);
    node.layout = "redlock";
    node.prefix = out.prefix;
    node.connections = 1;
    out.nodes.push_back(std::move(node));
  }
  return out;
}

redlock::redlock(redlock_settings how, const engine_config& config)
    : how_(std::move(how)), clock_(config.clock), caps_(describe_redlock(how_)) {}

result<std::unique_ptr<engine>> redlock::open(redlock_settings how, const engine_config& config) {
  std::unique_ptr<redlock> self{new redlock{std::move(how), config}};
  auto nodes = redlock_nodes::open(self->how_.nodes, self->how_.quarantine);
  if (!nodes) return std::move(nodes).error();
  self->nodes_ = std::move(*nodes);
  self->waits_ = std::make_unique<waits>(self->nodes_->driver());
  call soon;
  soon.deadline = std::chrono::steady_clock::now() + 5s;
  const invocation how_to_ask{soon, true};
  auto question = self->to_all({}, command({"PING"}));
  const auto there = [](const ballots& got) {
    return static_cast<std::size_t>(
        std::ranges::count_if(got, [](const auto& said) { return said && *said; }));
  };
  question.is_decided = [&there, &self](const ballots& got) {
    return there(got) >= self->nodes_->quorum();
  };
  auto asking = self->nodes_->ask(std::move(question), soon, how_to_ask);
  asking.await_ready();
  const auto got = asking.await_resume();
  std::set<std::uint64_t> servers;
  for (std::size_t i = 0; i < self->nodes_->size(); ++i)
    if (const auto id = (*self->nodes_)[i].identity(); id != 0 && !servers.insert(id).second)
      return error{errc::misconfigured,
                   fmt::format("{} leads to one server under two addresses ({} is one of them): "
                               "it would have two votes.",
                               self->how_.url, (*self->nodes_)[i].how().url)};
  if (there(got) >= self->nodes_->quorum()) return std::unique_ptr<engine>{std::move(self)};
  std::optional<error> why;
  for (const auto& said : got)
    if (said && !*said && (!why || why->code() == errc::unavailable)) why = said->error();
  const auto code = why && why->code() != errc::outcome_unknown ? why->code() : errc::unavailable;
  return error{code, fmt::format("{}: {} of {} nodes answer, and {} are needed{}{}", self->how_.url,
                                 there(got), got.size(), self->nodes_->quorum(),
                                 why ? ". One of the others: " : ".",
                                 why ? std::string_view{why->message()} : std::string_view{})};
}

redlock::~redlock() {
  ending_ = true;
  if (!nodes_) return;
  if (waits_) waits_->look_again_all();
  nodes_->close();
  waits_.reset();
}

// ---- operators

result<lock_info> redlock::read_views(std::string_view name, const ballots& got,
                                      bool& is_agreed) const {
  is_agreed = true;
  struct seen {
    std::size_t votes = 0;
    std::vector<nanoseconds> left;
    std::vector<std::uint64_t> tokens;
  };
  std::map<std::string, seen, std::less<>> by_value;
  std::size_t unknown = 0;
  for (const auto& said : got) {
    if (!said || !*said) {
      ++unknown;
      continue;
    }
    const auto& items = (*said)->values.front().items;
    if (items.size() < 3) continue;
    auto& holder = by_value[std::string{items[0].text}];
    ++holder.votes;
    holder.left.push_back(time_left(number_in(items[1])));
    holder.tokens.push_back(static_cast<std::uint64_t>(number_in(items[2])));
  }
  lock_info out;
  out.name = name;
  out.capacity = rw_capacity;
  std::size_t most = 0;
  for (auto& [value, holder] : by_value) {
    most = std::max(most, holder.votes);
    if (holder.votes < nodes_->quorum()) continue;
    std::ranges::sort(holder.left, std::greater{});
    holder_info shown;
    shown.weight = rw_capacity;
    shown.expires_in = holder.left[nodes_->quorum() - 1];
    const auto point = value.find('.');
    if (const auto owner = parse_owner(std::string_view{value}.substr(0, point));
        owner && point != std::string::npos) {
      shown.owner = *owner;
      // A majority has at least the holder's token, and only nodes whose votes it did not await can have more.
      std::ranges::sort(holder.tokens, std::greater{});
      shown.token = {holder.tokens[nodes_->quorum() - 1]};
      const auto alike =
          static_cast<std::size_t>(std::ranges::count(holder.tokens, shown.token.value));
      is_agreed = is_agreed && alike >= nodes_->quorum();
    } else {
      shown.owner_text = shown_owner(value);
    }
    out.version = std::hash<std::string>{}(value) | 1U;
    out.holders.push_back(std::move(shown));
  }
  // Those that did not answer could make a majority.
  if (out.holders.empty() && most + unknown >= nodes_->quorum()) return too_few(name, got);
  return out;
}

operation<lock_info> redlock::do_inspect(std::string_view name, invocation how) {
  command what{redlock_scripts::inspect(), 2, 0};
  what << key(name) << beside(name, "token");
  const auto limits = node_call(how.limits, how_.longest_ttl);
  // A holder that has the votes may be about to write its token to a majority: it is looked at again, a few times,
  // because it can also stay so when nodes that voted late have counted further.
  for (int looks = 1;; ++looks) {
    auto question = to_all(name, what);
    const auto got = co_await nodes_->ask(std::move(question), limits, how);
    bool is_agreed = false;
    auto seen = read_views(name, got, is_agreed);
    if (is_agreed || looks == most_looks) co_return std::move(seen);
  }
}

operation<std::vector<lock_info>> redlock::do_list(std::string_view prefix, std::size_t limit,
                                                   invocation how) {
  if (!caps_.listing)
    co_return error{errc::unsupported,
                    fmt::format("{} cannot list its locks: without a prefix they look like any "
                                "other key. Give a prefix with ?prefix=, or name one lock.",
                                how_.url)};
  std::set<std::string> names;
  std::size_t answered = 0;
  std::optional<error> why;
  for (std::size_t i = 0; i < nodes_->size(); ++i) {
    const auto share = share_of(how.limits, nodes_->size() - i);
    auto some = co_await (*nodes_)[i].server().scan(how_.prefix, prefix, {share, how.blocks});
    if (!some) {
      why = some.error();
      continue;
    }
    ++answered;
    for (auto& name : *some)
      if (name.find(":holdfast-") == std::string::npos) names.insert(std::move(name));
  }
  // A holder has a majority, so a minority that is missing hides none.
  if (answered < nodes_->quorum()) co_return too_few(prefix, why, 0);
  std::vector<lock_info> out;
  for (const auto& name : names) {
    if (out.size() >= limit) break;
    auto info = co_await do_inspect(name, how);
    if (!info && info.error().code() == errc::misconfigured) continue;
    if (!info) co_return std::move(info).error();
    if (!info->holders.empty()) out.push_back(std::move(*info));
  }
  co_return out;
}

operation<std::size_t> redlock::do_revoke(std::string_view name, invocation how) {
  if (name.find(":holdfast-") != std::string_view::npos)
    co_return error{errc::misconfigured,
                    fmt::format("{} on {} is no lock but what Redlock itself keeps.",
                                support::quoted(name), how_.url)};
  command what{redlock_scripts::revoke(), 2, 3};
  what << key(name) << beside(name, "token") << token_kept(how_.longest_ttl)
       << waiters_channel(name) << watchers_channel(name);
  const auto limits = node_call(how.limits, how_.longest_ttl);
  auto question = to_all(name, what);
  const auto got = co_await nodes_->ask(std::move(question), limits, how);
  std::size_t answered = 0, deleted = 0;
  for (const auto& said : got) {
    if (!said || !*said) continue;
    ++answered;
    if (number_in((*said)->values.front()) > 0) ++deleted;
  }
  if (answered < nodes_->quorum()) {
    const auto why = too_few(name, got);
    co_return error{why.code() == errc::unavailable ? errc::outcome_unknown : why.code(),
                    why.message()};
  }
  // With those that did not answer it may have been a majority.
  co_return deleted > 0 && deleted + nodes_->size() - answered >= nodes_->quorum() ? 1U : 0U;
}

result<std::vector<finding>> redlock::diagnose(const call& limits) {
  std::vector<finding> out;
  using level = finding::level;
  if (nodes_->size() % 2 == 0)
    out.push_back(
        {level::note, "number of nodes",
         fmt::format("{} nodes survive the loss of {}, as {} would: an even number costs "
                     "one more and wins nothing.",
                     nodes_->size(), nodes_->size() - nodes_->quorum(), nodes_->size() - 1)});
  std::size_t reached = 0;
  for (std::size_t i = 0; i < nodes_->size(); ++i) {
    auto& node = (*nodes_)[i];
    auto found = redis::diagnose(node.server(), node.how(), share_of(limits, nodes_->size() - i));
    if (!found) {
      out.push_back({level::warning, node.how().url, found.error().message()});
      continue;
    }
    ++reached;
    for (auto& one : *found) {
      one.about = fmt::format("{}: {}", node.how().url, one.about);
      out.push_back(std::move(one));
    }
    const auto left = node.without_vote(std::chrono::steady_clock::now());
    if (left > 0ns)
      out.push_back({level::warning, node.how().url + ": vote",
                     fmt::format("It was started a short time ago and has no vote for another {}.",
                                 format_duration(std::chrono::ceil<std::chrono::seconds>(left)))});
  }
  out.insert(out.begin(),
             finding{reached >= nodes_->quorum() ? level::good : level::bad, "majority",
                     fmt::format("{} of {} nodes answer; {} are needed.", reached, nodes_->size(),
                                 nodes_->quorum())});
  return out;
}

operation<counter> redlock::do_count(const counter_request& ask, invocation) {
  co_return unsupported(ask.name, "counters, because what is counted must be in one place");
}

operation<std::vector<counter_info>> redlock::do_list_counters(std::string_view, std::size_t,
                                                               invocation) {
  co_return error{errc::unsupported,
                  fmt::format("{} has no latches: Redlock has no counters.", how_.url)};
}

// ---- watching

class redlock::watching final : public watch_loop, private completion<lock_info> {
 public:
  watching(redlock& in, std::string_view name, std::uint64_t seen, const call& limits,
           completion<void>& done)
      : watch_loop(in.clock_, limits, done),
        in_(in),
        name_(name),
        seen_(seen),
        id_(in.last_watch_.fetch_add(1)) {}

 private:
  void listen(const call& until) override {
    auto soon = until;
    soon.deadline = std::min(until.deadline, clock_.now() + between_views);
    const auto on = in_.watchers_channel(name_);
    in_.listen(on, id_, in_.heard_so_far(on), soon, [this] { heard(); });
  }
  void look(const call& until) override {
    until_ = until;
    in_.start_inspect(name_, until_, *this);
  }
  void complete(result<lock_info> seen) noexcept override {
    if (!seen) return saw(as_reading(std::move(seen).error()));
    saw(sight{seen->version != seen_});
  }
  void wake() override { in_.waits_->look_again(id_); }
  void wake_at(steady_time) override {}
  bool is_ending() const override { return in_.ending_; }

  redlock& in_;
  const std::string_view name_;
  const std::uint64_t seen_;
  const std::uint64_t id_;
  call until_;
};

void redlock::start_watch(watch_kind kind, std::string_view name, std::uint64_t seen,
                          const call& limits, completion<void>& done) noexcept {
  if (kind == watch_kind::counter) return done.complete(unsupported(name, "counters"));
  (new watching{*this, name, seen, limits, done})->begin();
}

}  // namespace holdfast::engines::redis
