// Opening, closing, and what the engine promises.
#include "engines/mysql/engine.hpp"

#include "engines/common/server_clock.hpp"
#include "engines/mysql/errors.hpp"
#include "engines/mysql/mysql_engine.hpp"

#include <fmt/format.h>

#include <cstring>

namespace holdfast::engines::mysql {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t threads_for_verbs = 4;
constexpr auto patience = 5s, short_patience = 2s;
// To look costs no more than one poll() of a socket.
constexpr nanoseconds between_looks_at_session = 100ms, between_revivals = 500ms;

std::string bytes_of(const std::array<std::uint64_t, 2>& client) {
  std::string out;
  for (const auto half : client)
    for (int shift = 56; shift >= 0; shift -= 8) out += static_cast<char>(half >> shift & 0xffU);
  return out;
}

}  // namespace

result<std::unique_ptr<engine>> make_engine(const engine_config& config) {
  auto how = read_settings(config.url);
  if (!how) return std::move(how).error();
  return mysql_engine::open(*how, config);
}

mysql_engine::mysql_engine(const settings& how, const engine_config& config)
    : blocking_engine(threads_for_verbs),
      how_(how),
      clock_(config.clock),
      core_(config.listener),
      client_(config.client),
      plain_(how_, watchdog_, late_requests_, connection::kind::plain),
      transactions_(how_, watchdog_, late_requests_, connection::kind::transactions),
      session_(how_, watchdog_, late_requests_, config.clock,
               {bytes_of(config.client), config.host.substr(0, 255), config.pid}),
      waits_(timers_,
             [this] {
               if (!listener_) return;
               listener_->poke();
               if (!looks_after_session_.exchange(true))
                 plan_look_after_session(between_looks_at_session);
             }),
      place_(fmt::format("{}:{}{}/{}/", how_.host, how_.port, how_.socket, how_.database)) {}

result<std::unique_ptr<engine>> mysql_engine::open(const settings& how,
                                                   const engine_config& config) {
  std::unique_ptr<mysql_engine> self{new mysql_engine{how, config}};
  const auto limits = within(patience);
  if (auto ok = self->begin(limits); !ok) {
    auto why = std::move(ok).error();
    if (why.code() != errc::outcome_unknown) return why;
    return error{errc::unavailable, why.message()};  // nothing was asked for yet
  }
  return std::unique_ptr<engine>{std::move(self)};
}

result<void> mysql_engine::begin(const call& limits) {
  if (auto ok = make_tables(limits); !ok) return ok;
  if (auto ok = session_.open(limits); !ok) return ok;
  has_begun_ = true;
  caps_ = describe(session_);
  if (!session_.has_user_locks()) return {};
  // Without a grace no heartbeat asks often enough to hear of revocations in time.
  const bool always = session_.grace() == 0ns;
  listener_ = std::make_unique<listener>(how_, watchdog_, session_, waits_, core_, client_, always);
  if (always) static_cast<void>(listener_->ensure(limits));
  return {};
}

result<void> mysql_engine::make_tables(const call& limits) {
  auto on = plain_.take(limits, {});
  if (!on) return std::move(on).error();
  auto found = (*on)->ask(sql().check_tables, {});
  if (found) return {};
  if (!how_.create || !is_missing_table((*on)->last_error())) return std::move(found).error();
  for (const auto& table : schema_statements())
    if (auto ok = (*on)->define(table); !ok) return ok;
  return {};
}

mysql_engine::~mysql_engine() {
  ending_ = true;
  waits_.look_again_all();
  renewal_thread_.finish();
  finish_work();
  release_threads_.finish();
  waits_.look_again_all();  // waits that had begun meanwhile
  if (listener_) listener_->finish();
  timers_.finish();
  if (has_begun_) depart();
}

void mysql_engine::plan_look_after_session(nanoseconds after) noexcept {
  timers_.at(std::chrono::steady_clock::now() + after, [this] { look_after_session(); });
}

// A client that opens the rows of a name drops waiters whose client has no session, without a word: so all ask where
// they stand when it is there again.
void mysql_engine::look_after_session() noexcept {
  if (ending_) return;
  if (!waits_.any()) {
    looks_after_session_ = false;
    if (!waits_.any() || looks_after_session_.exchange(true)) return;
  }
  if (!session_.is_gone()) return plan_look_after_session(between_looks_at_session);
  post([this] {
    if (session_.revive(within(short_patience))) waits_.look_again_all();
    plan_look_after_session(between_revivals);
  });
}

// Everything this client still holds or waits for goes, and the waiters for it are served. What cannot be done in time
// ends by the grace, or the ttl.
void mysql_engine::depart() noexcept {
  const auto limits = within(short_patience);
  const std::string_view me = session_.client();
  if (!end_late_requests({}, limits)) return;
  rows names;
  {
    auto on = plain_.take(limits, {});
    if (!on) return;
    auto found = (*on)->ask(sql().names_of_client, {me, me});
    if (!found) return;
    names = std::move(*found);
  }
  const auto all_of_mine = [me](lock_rows& at) { return at.remove_all_of(me); };
  for (const auto& named : names)  // as long as it goes on; one that does not is the last
    if (!with_lock_rows(named.bytes(0), owner_id{client_, 0}, 0, within(short_patience),
                        all_of_mine))
      return;
  if (auto on = plain_.take(within(short_patience), {}))
    static_cast<void>((*on)->run(sql().leave_session, {me}));
  session_.close();
  sweep(within(300ms));  // only a little: a user may wait for this program to end
}

namespace {

std::string limits_in_words(const session& with) {
  const auto waiting =
      with.has_user_locks()
          ? std::string{"Waiters sleep in the server and are woken by the releasing client (KILL QUERY); the "
                        "death of a client is seen by GET_LOCK."}
          : fmt::format("Waiters ask ever less often, at most every 250 ms, because {}.", with.why_not());
  if (with.grace() == 0ns)
    return fmt::format("{} Dead holders are noticed after their ttl.", waiting);
  return fmt::format(
      "{} A client whose connection is gone for {} loses its locks, so a lease is never believed "
      "for longer than that after the server last answered: a pause or a network fault of that "
      "length costs the lease. ?grace=0 turns this off.",
      waiting, format_duration(with.grace()));
}

void describe_presence(const session& with, capabilities& caps) {
  caps.longest_validity = with.longest_validity();
  if (with.grace() > 0ns) {
    caps.validity_setting =
        fmt::format("grace={} in the store's address", format_duration(with.grace()));
    // Until a client with several waiters looks, then a grace, and the time to do it.
    caps.dead_holder_bound = with.grace() + with.sleep_between_looks() + 500ms;
  } else if (!with.has_user_locks()) {
    caps.validity_setting = fmt::format("{} without an answer, because {}",
                                        format_duration(with.longest_validity()), with.why_not());
  }
}

}  // namespace

capabilities describe(const session& with) {
  capabilities caps;
  caps.engine = with.version().is_mariadb ? "mysql (MariaDB)" : "mysql";
  caps.fifo = caps.priorities = caps.shared = caps.upgrade = caps.permits = true;
  caps.counters = caps.listing = caps.atomic_multi = caps.cross_process = true;
  caps.survives_restart = true;
  caps.wakeup = with.has_user_locks() ? wakeup_kind::push : wakeup_kind::poll;
  caps.observe = with.has_user_locks();
  caps.clock = expiry_clock::server;
  caps.token = token_origin::server_time;
  caps.fencing = fencing_strength::strict;
  caps.min_ttl = 50ms;
  caps.max_ttl = std::chrono::hours{24 * 365};
  caps.drift_ppm = server_drift_ppm;
  caps.margin = server_margin;
  caps.expiry_slack = 250ms;
  describe_presence(with, caps);
  caps.exclusion =
      "While the server keeps what it has committed, and its clock neither jumps nor runs more "
      "than 1 % apart from ours. A fail-over to a replica that lagged may grant a lock twice; the "
      "tokens tell the two apart as long as clocks go forward.";
  caps.token_scope =
      "Strictly rising per name: the last one and one, or the server's clock in microseconds, "
      "whichever is more. So also when the row of a name that was long free is swept away.";
  caps.limits = limits_in_words(with);
  return caps;
}

}  // namespace holdfast::engines::mysql
