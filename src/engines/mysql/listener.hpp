// One connection per client on which it hears that something has happened to one of its waiters. Begun with the first
// wait, so a client that never waits does not have it.
//
// It sleeps in a statement on the server, a GET_LOCK that is not meant to succeed. A client that has news for us writes
// them into holdfast_entry and then interrupts that statement (KILL QUERY; the same user may); then one SELECT reads
// all the news there are. The user lock that the connection holds tells other clients its current number, and that it
// is there at all: a waiter without a listener is skipped.
//
// While it sleeps it also watches: the statement is a GET_LOCK on the user lock of the client ahead of our waiter
// (session.hpp), which is free at once when that client dies. Only the client right ahead is watched, so a hand-over
// changes nothing for the waiters further back. With several waiters it sleeps for half a grace at a time, and then
// asks for all of them at once.
#pragma once

#include "engines/mysql/session.hpp"
#include "engines/mysql/waits.hpp"

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace holdfast::engines::mysql {

class listener {
 public:
  // A grant that was delivered, with the place in the queue that its waiter had.
  struct arrival {
    std::uint64_t token = 0;
    std::int64_t turn = 0;
    std::uint64_t place = 0;
  };

  // `always`: also while this client has no waiter, to hear of revocations.
  listener(const settings& how, watchdog& by, session& own, waits& waiters, engine_listener& to,
           std::array<std::uint64_t, 2> client, bool always)
      : how_(how),
        by_(by),
        session_(own),
        waits_(waiters),
        to_(to),
        client_(client),
        always_(always) {}
  ~listener() { finish(); }

  // Begins to listen, if it has not, and waits until it does. False when it does not work now.
  bool ensure(const call& limits);
  bool is_there() const;
  // A waiter of this client began to wait.
  void poke() noexcept;
  // This waiter would like to know when that client goes. Returns the connection to be interrupted for it, or 0.
  std::uint64_t watch(std::uint64_t number, const std::string& client);
  void unwatch(std::uint64_t number);
  // An observer with a row of its own; told when the row has gone.
  void observe(std::uint64_t number);
  void unobserve(std::uint64_t number);
  std::optional<arrival> told(std::uint64_t number) const;
  // A grant that was delivered is ours no more: its end is no news.
  void released(std::uint64_t number);
  void finish() noexcept;

 private:
  void run();
  void listen(connection& on);
  void listen_on(connection& on);
  void let_go(connection& on);
  result<void> connect();
  result<void> sleep(connection& on);
  // What one look at the rows of our client has shown.
  struct news {
    std::uint64_t digest = 0;
    std::map<std::uint64_t, arrival> arrived;  // all there are
    std::vector<std::pair<std::uint64_t, told_grant>> fresh;
    std::vector<owner_id> lost;
    std::set<std::uint64_t> not_seen;  // observers whose rows are gone
  };
  result<void> read_news(connection& on);
  static void read_entry(const row& from, const sending& asked, news& to);
  void deliver(news what);
  result<void> ask_for_all(connection& on);

  const settings& how_;
  watchdog& by_;
  session& session_;
  waits& waits_;
  engine_listener& to_;
  const std::array<std::uint64_t, 2> client_;
  const bool always_;

  mutable std::mutex guard_;
  std::condition_variable changed_;
  std::shared_ptr<connection> connection_;  // set while it listens
  bool ending_ = false, poked_ = false, failed_ = false;
  std::stop_source stop_;     // what it asks while it connects ends at once when we finish
  std::string watched_;       // by the statement under way
  bool asleep_ = false;       // on the server
  bool interrupted_ = false;  // by us, already
  std::map<std::uint64_t, std::string> watching_;  // number -> client
  std::set<std::uint64_t> observing_;
  std::uint64_t digest_ = 0;                  // of the news that were read
  std::map<std::uint64_t, arrival> arrived_;  // by number: told already
  // Only for the listener's thread: the client whose user lock the connection may have by mistake.
  std::string watched_last_ = session_.client();
  bool may_have_it_ = false;
  std::thread thread_;
};

}  // namespace holdfast::engines::mysql
