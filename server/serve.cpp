#include "serve.hpp"

#include "listener.hpp"
#include "locks.hpp"
#include "service.hpp"
#include "sessions.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace holdfast::server {

namespace {

// From the threads of the library to the loop. They may live longer than it does: until the last lease has gone.
class way_to_loop {
 public:
  explicit way_to_loop(loop& to) : to_(&to) {}
  void post(std::function<void()> what) {
    const std::lock_guard locked{guard_};
    if (to_ != nullptr) to_->post(std::move(what));
  }
  void end() {
    const std::lock_guard locked{guard_};
    to_ = nullptr;
  }

 private:
  std::mutex guard_;
  loop* to_;
};

// Tells the loop of losses; everything else the service knows by itself.
class loss_teller final : public observer {
 public:
  explicit loss_teller(std::shared_ptr<way_to_loop> to) : loop_(std::move(to)) {}
  void serves(service& one) { service_ = &one; }  // before the first lease
  bool hears_pairs() const noexcept override { return false; }
  void lost(std::string_view name, fencing_token token, std::string_view why) override {
    loop_->post([this, name = std::string{name}, token, why = std::string{why}] {
      if (service_ != nullptr) service_->leases.lost(name, token, why);
    });
  }

 private:
  const std::shared_ptr<way_to_loop> loop_;
  service* service_ = nullptr;
};

// As many files as the system lets us have, and no more of everything than they allow.
void make_room(options& configured, bool is_embedded) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  getrlimit(RLIMIT_NOFILE, &files);
  fit(configured, static_cast<std::size_t>(files.rlim_cur), is_embedded);
}

client open_store(options& configured, const state_folder& state,
                  const std::shared_ptr<way_to_loop>& on, std::shared_ptr<observer> watching) {
  client_options how;
  how.observer = std::move(watching);
  how.resume = [on](std::function<void()> what) { on->post(std::move(what)); };
  how.successor_of = state.client();
  auto opened = client::try_open(configured.store, how);
  if (!opened && opened.error().code() == errc::unsupported) {
    // No grant outlives its client there, so there is nothing to take over.
    how.successor_of = std::nullopt;
    opened = client::try_open(configured.store, how);
  }
  auto store = std::move(opened).value();
  make_room(configured, store.capabilities().immediate);
  return store;
}

void stop(service& s, listener& door) {
  if (std::exchange(s.is_stopping, true)) return;
  s.room.stop_all();
  s.leases.leave_all();
  for (const auto& stop_more : s.when_stopping) stop_more();
  s.events.stop();
  door.end();
}

void add_all_routes(service& s) {
  add_lock_routes(s);
  add_lease_routes(s);
  add_hold_routes(s);
  add_plain_routes(s);
  add_coordination_routes(s);
  add_operator_routes(s);
  add_page_routes(s);
  add_session_routes(s.routes, s);
}

std::string where(const listener& door, const options& configured) {
  const auto& host = configured.listen.host;
  const bool is_v6 = host.find(':') != std::string::npos;
  return fmt::format("{}://{}{}{}:{}", configured.tls_cert.empty() ? "http" : "https",
                     is_v6 ? "[" : "", host, is_v6 ? "]" : "", door.port());
}

// All of a service, in the order in which its parts need each other.
struct household {
  explicit household(options how)
      : configured(std::move(how)),
        keys(configured.keys.empty() ? key_ring{} : key_ring::read(configured.keys).value()),
        state(state_folder::open(configured.state).value()),
        door(listener::open(configured).value()),
        way(std::make_shared<way_to_loop>(door->loop())),
        watching(std::make_shared<loss_teller>(way)),
        at_work(door->loop(), *door, configured, open_store(configured, state, way, watching), keys,
                state) {
    watching->serves(at_work);
  }
  household(const household&) = delete;
  household& operator=(const household&) = delete;
  ~household() { way->end(); }

  options configured;
  const key_ring keys;
  state_folder state;
  const std::unique_ptr<listener> door;
  const std::shared_ptr<way_to_loop> way;
  const std::shared_ptr<loss_teller> watching;
  service at_work;
};

options checked(options configured) {
  check(configured).value();
  return configured;
}

}  // namespace

ending serve(const options& given, const std::function<void(std::string_view)>& say) {
  auto all = std::make_unique<household>(checked(given));
  auto& s = all->at_work;
  s.leases.adopt_all();
  add_all_routes(s);
  const auto adopted = s.leases.adopted();
  say(fmt::format("serving {} on {}{}", s.store.url(), where(*all->door, all->configured),
                  adopted == 0 ? "" : fmt::format(", with {} leases taken over", adopted)));
  all->door->run([&s](const std::shared_ptr<exchange>& one) { s.routes.serve(one); },
                 [&s, &door = *all->door] { stop(s, door); });
  bool may_say_goodbye = s.leases.give_back_all();
  for (const auto& ask : s.is_counted_on) may_say_goodbye = may_say_goodbye && !ask();
  if (may_say_goodbye) return ending::orderly;
  (void)all.release();  // not destroyed: that would be the goodbye
  return ending::at_once;
}

}  // namespace holdfast::server
