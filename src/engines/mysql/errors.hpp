// The server's and the driver's numbers, as our codes and sentences.
#pragma once

#include "engines/mysql/settings.hpp"

#include <holdfast/error.hpp>

#include <string>
#include <string_view>

namespace holdfast::engines::mysql {

struct failure {
  unsigned code = 0;
  std::string text{};             // the server's own words
  bool may_have_changed = false;  // when the answer is missing
  bool out_of_time = false;       // we gave up, rather than the server or the network
  bool is_commit = false;
  bool is_connecting = false;  // nothing was asked for yet
};

// No answer, and none to come. Every number of the driver's own is such a one: it is no word of the server.
bool is_lost_connection(unsigned code) noexcept;
bool is_interrupted(unsigned code) noexcept;     // KILL QUERY
bool is_no_such_thread(unsigned code) noexcept;  // of KILL
bool is_duplicate(unsigned code) noexcept;
bool is_missing_table(unsigned code) noexcept;
bool is_deadlock(unsigned code) noexcept;           // of rows; nothing was changed
bool is_out_of_statements(unsigned code) noexcept;  // none may be prepared any more

// `name` of a lock or counter, or empty.
error explain(const failure& what, std::string_view name, const settings& how);

}  // namespace holdfast::engines::mysql
