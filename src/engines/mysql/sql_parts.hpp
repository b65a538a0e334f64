// What sql.cpp (locks and their entries) and sql_upkeep.cpp (all that is beside them) share.
#pragma once

#include "engines/mysql/sql.hpp"

#include <string_view>

namespace holdfast::engines::mysql::sql_parts {

inline constexpr std::string_view now_us =
    "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))";

// No client (of an outer join) has a lock that is never taken: to ask MySQL for a lock called NULL is an error.
inline constexpr std::string_view lock_of_session =
    "CONCAT('holdfast:s:',COALESCE(HEX({}client),''))";
inline constexpr std::string_view lock_of_listener =
    "CONCAT('holdfast:l:',COALESCE(HEX({}client),''))";

void sessions(statements& out);
void being_told(statements& out);
void counters(statements& out);
void sweeping(statements& out);

}  // namespace holdfast::engines::mysql::sql_parts
