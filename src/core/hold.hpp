// A hold is the state behind leases: one grant of the store's and what this process knows about it.
//
// A lease is a hold and a generation. The word below carries both the state and the generation, so every
// transition is one compare-and-swap that fails by itself for a lease that is no longer the current one:
// a stale lease can neither release nor prolong another one's.
//
//            begin            publish           CAS               settled
//   idle ----------> acquiring ------> held ----------> releasing -------> idle
//   lost --^                            |  ^ local hand-off: next generation, same grant
//                                       +-----> lost (deadline passed, store said so, max_hold)
//
// Which thread may touch what: the fields marked (owner) belong to the one that brought the word to acquiring, held or
// releasing. The driver looks at them only while it has the word pinned: a pinned word makes the owner's
// quick compare-and-swap fail, and the slow road waits for `guard`.
#pragma once

#include <holdfast/engine.hpp>
#include <holdfast/options.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

namespace holdfast::core {

class client_core;
class gate;

namespace hold_word {

enum state : std::uint64_t { idle = 0, acquiring = 1, held = 2, releasing = 3, lost = 4 };
inline constexpr std::uint64_t state_mask = 7;
inline constexpr std::uint64_t waiters =
    8;  // threads or coroutines of this process are queued at the gate
inline constexpr std::uint64_t pinned = 16;  // the driver is looking
inline constexpr unsigned generation_shift = 8;

constexpr std::uint64_t make(std::uint64_t generation, state s) {
  return generation << generation_shift | s;
}
constexpr std::uint64_t generation(std::uint64_t word) { return word >> generation_shift; }
constexpr std::uint64_t state_of(std::uint64_t word) { return word & state_mask; }
constexpr bool is_free(std::uint64_t word) {
  return state_of(word) == idle || state_of(word) == lost;
}
// The same word in another state, flags kept.
constexpr std::uint64_t with_state(std::uint64_t word, state s) { return (word & ~state_mask) | s; }

}  // namespace hold_word

// Which lease of a hold: its generation, and the token of the grant behind it, read while the hold was its own. (After
// the word is published another thread may lose the hold and the next lease may bring another token.)
struct tenure {
  std::uint64_t generation = 0;
  fencing_token token{};
};

// Only the current owner counts, so no atomic read-modify-write is needed: readers see a recent value.
class owner_counter {
 public:
  void add() noexcept {
    value_.store(value_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

struct hold : std::enable_shared_from_this<hold> {
  hold(std::shared_ptr<client_core> client, std::string lock_name);
  virtual ~hold();
  hold(const hold&) = delete;
  hold& operator=(const hold&) = delete;

  const std::shared_ptr<client_core> core;
  const std::string name;

  std::atomic<std::uint64_t> word{0};
  std::atomic<std::int64_t> valid_until{0};  // steady nanoseconds, margin taken off
  std::atomic<std::int64_t> renew_at{0};
  std::atomic<std::int64_t> prove_at{INT64_MAX};  // its session wants to be proven again then
  std::atomic<std::int64_t> hold_until{0};        // max_hold

  grant granted;                             // (owner)
  steady_time acquired_at{};                 // (owner) set when this hold is timed
  bool timed = false;                        // (owner)
  nanoseconds asked_ttl{};                   // (owner) the store may grant less
  std::atomic<bool> outlives_client{false};  // written by the (owner)
  std::uint64_t asked_in_session = 0;        // (owner) the last in which its renewal was hurried
  std::uint64_t next_sequence = 0, last_sequence = 0;  // (owner) numbers left for owner ids
  std::atomic<unsigned> entries{
      0};  // re-entries to undo before a release is one; changed under guard
  // A change of mode is on its way or in doubt: the store may have turned the old grant into the new one already, so
  // that it does not know the old owner any more is no loss.
  std::atomic<bool> changing{false};
  owner_counter acquired, released;

  std::mutex guard;
  std::unique_ptr<std::stop_source> loss;  // under guard, except that begin() drops an old one

  // The client half never changes, so only the number is drawn.
  std::uint64_t next_owner() {
    if (next_sequence == last_sequence) take_sequences();
    return ++next_sequence;
  }
  owner_id new_owner();

  // acquiring -> held: from here on the driver renews it. The caller is the owner.
  void publish(const grant& won, nanoseconds max_hold) noexcept;
  // The same for a hold without a gate, with its wait reported.
  void won_alone(const grant& won, const acquire_options& options, steady_time since) noexcept;
  // Is this generation held, as far as the word says?
  bool is_current(std::uint64_t generation) const noexcept {
    const auto now = word.load(std::memory_order_acquire);
    return hold_word::generation(now) == generation && hold_word::state_of(now) == hold_word::held;
  }
  bool valid_at(std::uint64_t generation, steady_time instant) const noexcept;

  // held -> releasing -> the store -> idle. lost when this generation is no longer the current one, or when the store
  // had let it go: that is announced as any loss is. `sent` does not wait for the store's answer where that takes a
  // round trip: what this process asks next about the name is served after it, unless a change of mode is in doubt:
  // then the store is asked in the background what there is to release.
  enum class confirmation : std::uint8_t { awaited, not_awaited };
  // `answered` is called once, on any thread, when the store has answered or nothing is asked of it.
  using on_answered = std::function<void()>;
  result<void> release(std::uint64_t generation, confirmation how = confirmation::awaited,
                       on_answered answered = {});
  // The same in two steps, with the store's answer to come between them; for coroutines. Only after ask_store the
  // caller owns the hold, asks the store to release `granted`, and calls end_release.
  enum class release_begun : std::uint8_t { ask_store, done, lost };
  release_begun begin_release(std::uint64_t generation);
  result<void> end_release(std::uint64_t generation, result<void> answer);
  error lost_error() const;
  error lost_before_release() const;
  error release_unconfirmed() const;
  request settle_request()
      const;  // what became of the grant, while a change of its mode is in doubt
  // held -> idle without asking the store, which has given the grant another form (downgrade).
  // Gives its token of loss away. False: lost meanwhile.
  bool surrender(std::uint64_t generation, std::unique_ptr<std::stop_source>& its_loss) noexcept;
  // What is said of a grant is said by its owner id, whatever generation holds it by now: it may have been handed on
  // inside the process while the store's answer was on its way.
  //
  // held -> lost: fires the token, tells the observer, lets the next in. False when it was not held
  // any more, or not by this owner.
  bool lose(const owner_id& owner, std::string_view why) noexcept;
  // The same of one lease alone (max_hold).
  bool lose_lease(std::uint64_t generation, std::string_view why) noexcept;
  // Writes a renewal's answer down, if it is still about us. An answer that comes too late changes nothing. False:
  // this owner can no longer claim it.
  bool prolong(const owner_id& owner, const renewal& answer) noexcept;
  // A session of the client's was proven: news for a grant that counts on it. A grant of an earlier session must be
  // asked about: its renewal is due now.
  void session_proven(const session_proof& proof, steady_time now) noexcept;
  // A renewal is on its way. It is asked about again only after a quarter of what it lasts, so that a call that hangs
  // costs one try; a lease of an earlier session lasts no longer than that one's last proof.
  void renewal_sent(const owner_id& owner, steady_time now) noexcept;
  // The next renewal is due then, if it is still about us.
  void renew_again(const owner_id& owner, steady_time when) noexcept;
  // After publish(), and after the observer was told of it: was its loss told already?
  bool look_for_early_loss(const grant& won) noexcept;
  // The lease stays, the store's grant behind it is another one now (upgrade). False: lost meanwhile, or its validity
  // has ended: no must stay no.
  bool replace(std::uint64_t generation, const grant& with) noexcept;
  // One more entry by the same owner. Nothing: not held any more.
  std::optional<tenure> reenter(std::uint64_t generation) noexcept;
  // A copy that the driver cannot change under our hands; nothing when this generation is not held any more.
  std::optional<grant> current_grant(std::optional<std::uint64_t> generation);
  std::stop_token loss_token(std::uint64_t generation);

 protected:
  // Both are entered with guard held and may drop it. The gate overrides them to serve its queue.
  // Held, with waiters: pass the grant on inside the process instead of releasing it. False: release it.
  virtual bool hand_off(std::unique_lock<std::mutex>& locked);
  // The word is free: next, please.
  virtual void pass_on(std::unique_lock<std::mutex>& locked) noexcept;

 private:
  void take_sequences();
  std::int64_t plan_upkeep() noexcept;
  bool is_in_time() const noexcept;
  void believe() noexcept;
  release_begun begin_release_slowly(std::uint64_t generation);
  result<void> finish_release(std::uint64_t generation, confirmation how, on_answered answered);
  result<void> tell_store();
  result<void> release_what_is_there();
  std::unique_ptr<std::stop_source> take_loss() noexcept;
  bool lose_pinned(std::optional<std::uint64_t> generation, const owner_id* owner,
                   std::string_view why) noexcept;

 protected:
  void note_release() noexcept;
  // generation:from -> idle, and the next one may begin. False: the word says otherwise by now.
  bool let_go(std::uint64_t generation, hold_word::state from) noexcept;
};

// Pins a held word against its owner while the driver reads or changes the owner's fields.
class pin {
 public:
  // Of this generation, or of any.
  pin(hold& target, std::optional<std::uint64_t> generation);
  ~pin();
  pin(const pin&) = delete;
  pin& operator=(const pin&) = delete;
  explicit operator bool() const noexcept { return pinned_; }
  std::uint64_t generation() const noexcept { return generation_; }

 private:
  hold& target_;
  std::unique_lock<std::mutex> locked_;
  std::uint64_t generation_ = 0;
  bool pinned_ = false;
};

inline constexpr std::string_view let_go_by_the_store = "the store no longer lists it as ours";

inline std::int64_t to_ns(steady_time t) noexcept {
  return nanoseconds(t.time_since_epoch()).count();
}
inline steady_time from_ns(std::int64_t ns) noexcept { return steady_time{nanoseconds{ns}}; }

}  // namespace holdfast::core
