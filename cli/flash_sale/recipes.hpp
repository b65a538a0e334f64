// How each scheme is opened. The recipes themselves are in the file of their family.
#pragma once

#include "flash_sale/scheme.hpp"

#include <memory>

namespace holdfast::cli::flash {

// unlocked.cpp
std::unique_ptr<shop> open_unlocked(const sale_setting& about);
std::unique_ptr<shop> open_process_mutex(const sale_setting& about);
// sql_statement.cpp, sql_for_update.cpp, optimistic.cpp, mysql_row.cpp
std::unique_ptr<shop> open_sql_statement(const sale_setting& about);
std::unique_ptr<shop> open_sql_for_update(const sale_setting& about);
std::unique_ptr<shop> open_optimistic_version(const sale_setting& about);
std::unique_ptr<shop> open_optimistic_time(const sale_setting& about);
std::unique_ptr<shop> open_optimistic_seconds(const sale_setting& about);
std::unique_ptr<shop> open_mysql_row(const sale_setting& about);
// redis_watch.cpp, setnx_expire.cpp, set_nx_px.cpp, getset.cpp
std::unique_ptr<shop> open_redis_watch(const sale_setting& about);
std::unique_ptr<shop> open_setnx_then_expire(const sale_setting& about);
std::unique_ptr<shop> open_setnx_expire_lua(const sale_setting& about);
std::unique_ptr<shop> open_set_nx_px(const sale_setting& about);
std::unique_ptr<shop> open_set_nx_px_del(const sale_setting& about);
std::unique_ptr<shop> open_set_nx_px_fenced(const sale_setting& about);
std::unique_ptr<shop> open_getset(const sale_setting& about);
// held_locks.cpp, on whatever store the scheme needs
std::unique_ptr<shop> open_held_mutex(const sale_setting& about);
std::unique_ptr<shop> open_held_mutex_fenced(const sale_setting& about);
std::unique_ptr<shop> open_held_reentrant(const sale_setting& about);
std::unique_ptr<shop> open_held_read_write(const sale_setting& about);
std::unique_ptr<shop> open_held_striped(const sale_setting& about);
std::unique_ptr<shop> open_held_zk_exclusive(const sale_setting& about);

}  // namespace holdfast::cli::flash
