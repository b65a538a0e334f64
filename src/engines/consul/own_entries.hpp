// What this client has put, or may have put, into the store.
#pragma once

#include "engines/common/own_entries.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace holdfast::engines::consul {

// Everything here is under the table's guard.
struct own_entry : engines::own_entry {
  std::string key;           // empty: none yet
  std::string session;       // under which it was put
  std::uint64_t number = 0;  // of that session; 0: an earlier client's
  std::uint64_t capacity = 0;
  std::uint64_t created = 0, modified = 0;  // of its key; 0: not known
  std::uint64_t lock_index = 0;             // of .lock, while it holds that alone
  std::uint64_t idle_queue = 0;  // of .queue, when nobody waited behind it; 0: it is not there
  std::int64_t since_ms = 0;     // by the wall clock
  bool in_doubt = false;         // a request that puts the key may yet be carried out
  bool is_changing = false;      // a change of mode of ours is under way
  bool is_watched = false;
  bool is_lost = false;  // the store has shown it; told, or about to be
  std::vector<std::string> permit_sessions;
  // A waiter: what it waits for.
  std::string watched_key;
  bool watches_folder = false;
  std::uint64_t watched_index = 0;
  std::size_t watched_keys = 1;  // how many were seen there
  // An upgrade: what it came from.
  std::shared_ptr<own_entry> over;
};

using own_entries = engines::own_entries<own_entry>;

}  // namespace holdfast::engines::consul
