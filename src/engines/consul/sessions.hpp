// The sessions of one client: one that carries everything, and further ones for permits beyond the first of the same
// semaphore, because api.Semaphore counts sessions.
//
// Consul ends a session that it did not hear of for its ttl, and takes up to twice as long for it; never earlier,
// unless somebody destroys it, or its node. A renewal counts from before it was sent. A leader that was deposed and
// does not know it yet may answer a renewal; it steps down within its lease time (2.5 s as Consul comes, 5 s as slow as
// it can be set), and the new one gave every session twice its ttl when it began: so what we believe in, one ttl, ends
// before that.
//
// The epoch key of a session is locked by it. Each request that takes or queues compares its index; to end requests
// that may yet be delivered it is written anew.
#pragma once

#include "engines/common/operation.hpp"
#include "engines/consul/agent.hpp"
#include "engines/consul/kv.hpp"
#include "engines/consul/release_order.hpp"

#include <holdfast/engine.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace holdfast::engines::consul {

struct session_view {
  std::string id;
  std::uint64_t number = 0;
  steady_time proven{};
  std::string epoch_key;
  std::uint64_t epoch = 0;  // its index

  session_proof proof() const { return {number, proven}; }
};

class sessions {
 public:
  // `ended` is told once of each main session that is gone, and of owners by further_ended: without locks.
  using on_end = std::function<void(const session_view& gone, std::string_view why)>;
  using on_further_end = std::function<void(const std::string& id)>;
  sessions(agent& with, const class clock& time, std::string label, on_end ended,
           on_further_end further_ended);

  std::optional<session_view> current() const;
  // The current one, or a new one, which one caller makes for all that need it.
  operation<session_view> ensure(invocation how);
  // Proof that the main one lives; the further ones are asked about behind it. One that is found gone is told of.
  operation<session_view> renew(invocation how);
  // Further ones that were not proven for so long that Consul may end them soon count as gone.
  void end_unproven();
  void is_gone(const std::string& id, std::string_view why);
  void note_epoch(const std::string& id, std::uint64_t index);

  // Sessions for so many permits of this semaphore, none of which is in use for it by another owner of ours.
  operation<std::vector<std::string>> reserve(std::string_view name, std::size_t count,
                                              invocation how);
  // Can they be had without a session more?
  bool has_free(std::string_view name, std::size_t count) const;
  bool is_ours(std::string_view id) const;
  void give_back(std::string_view name, const std::vector<std::string>& ids);

  // Certainly gone from the store.
  operation<void> destroy(std::string id, invocation how);
  void destroy_all(const call& limits) noexcept;

 private:
  struct further {
    std::string id;
    steady_time proven{};
    bool is_asked = false;  // its renewal is under way
  };
  operation<session_view> make(invocation how);
  operation<std::string> create(invocation how);
  void renew_further();
  void note_renewal(const std::string& id, steady_time sent, const answer& said);
  std::vector<std::string> take_left_keys();
  std::vector<std::string> take_unused();
  void destroy_in_background(const std::vector<std::string>& ids);
  bool take_free(std::string_view name, std::size_t count, std::vector<std::string>& out);

  agent& agent_;
  const class clock& clock_;
  const std::string label_;
  const on_end ended_;
  const on_further_end further_ended_;

  release_order making_;
  mutable std::mutex guard_;
  std::optional<session_view> current_;
  std::uint64_t last_number_ = 0;
  std::vector<further> further_;
  std::vector<std::string> unused_;     // of them, when they were renewed last
  std::vector<std::string> left_keys_;  // of sessions that are gone
  std::multimap<std::string, std::string, std::less<>> used_;  // by semaphore
};

}  // namespace holdfast::engines::consul
