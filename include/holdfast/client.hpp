// A client is one connection of this process to one store: its session, its renewals, its waiters.
//
//   auto client = holdfast::client::open("file:");          // the embedded store of this user
//   holdfast::mutex stock{client, "stock/sku-42"};
//
// Copies share it; locks and leases keep it alive; the last one gone ends the session, which releases
// whatever was still held. Whoever drops that last handle waits until its threads have ended and its hooks have run
// (but not inside such a hook, nor in a coroutine that it resumed). Thread-safe. Not usable in a forked child: there
// every call is refused as misconfigured, and the child owns none of the parent's locks (fork and exec is fine).
#pragma once

#include <holdfast/capabilities.hpp>
#include <holdfast/engine.hpp>
#include <holdfast/observer.hpp>
#include <holdfast/result.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast {

namespace core {
class client_core;
}

struct client_options {
  // ---- behaviour
  nanoseconds ttl = std::chrono::seconds{10};          // default liveness bound of its leases
  nanoseconds call_timeout = std::chrono::seconds{5};  // bound on one round trip to the store
  // Threads of this process hand a lock to each other without asking the store, at most this often and this
  // long while others wait for it. 0 turns it off.
  unsigned handoff_limit = 64;
  nanoseconds handoff_time = std::chrono::milliseconds{20};
  // ---- for humans and tools
  std::shared_ptr<holdfast::observer> observer{};
  // Where coroutines go on; must run what it is given exactly once. Unset: on the client's own thread.
  std::function<void(std::function<void()>)> resume{};
  const holdfast::clock* clock = nullptr;  // tests only
};

class client {
 public:
  // Throws lock_error: misconfigured (bad URL or option), unsupported (no such engine in this build), denied,
  // unavailable, protocol (the store's data is damaged or of another version).
  static client open(std::string_view url, client_options options = {});
  static result<client> try_open(std::string_view url, client_options options = {});
  // For tests and for engines of your own: the factory is called with what every engine is opened with.
  using engine_factory = std::function<result<std::unique_ptr<engine>>(const engine_config&)>;
  static result<client> try_open_with(const engine_factory& make, std::string_view url,
                                      client_options options = {});

  const holdfast::capabilities& capabilities() const noexcept;
  std::string url() const;  // redacted
  holdfast::metrics metrics() const;

  // Operators' view; unsupported where the store cannot list.
  result<std::vector<lock_info>> list(std::string_view prefix = {},
                                      std::size_t limit = 10'000) const;
  result<lock_info> inspect(std::string_view name) const;
  // Force-release: ends every grant of the name and raises the fence. The holders learn of it as
  // loss. Returns how many there were.
  result<std::size_t> revoke(std::string_view name) const;

  // Looks at the real server's configuration: does it keep what capabilities() promises?
  result<std::vector<finding>> diagnose() const;

  // For our own handles.
  const std::shared_ptr<core::client_core>& core() const noexcept { return core_; }

 private:
  explicit client(std::shared_ptr<core::client_core> core) : core_(std::move(core)) {}
  std::shared_ptr<core::client_core> core_;
};

// The URL schemes this build can open, sorted.
std::vector<std::string> known_schemes();

// What must be set up in stores of this scheme before their first use, as text for the store's own command line
// ("mysql": tables). Empty where nothing must; unsupported when this build has no such scheme.
result<std::string> schema_of(std::string_view scheme);

// The embedded default, "file:" with its path spelt out.
std::string default_store();

}  // namespace holdfast
