#include "engines/mysql/errors.hpp"

#include "support/text.hpp"

#include <errmsg.h>
#include <fmt/format.h>
#include <mysqld_error.h>

#include <algorithm>
#include <array>

namespace holdfast::engines::mysql {

namespace {

struct meaning {
  unsigned number;
  errc code;
  std::string_view advice;
};

// Numbers that Connector/C's list of names lacks: MySQL's own.
constexpr unsigned super_read_only = 1836, gtid_only = 1835, server_is_off = 3169,
                   offline_mode = 3032, user_lock_deadlock = 3058, account_locked = 3118,
                   no_tls = 2026, no_auth_plugin = 2059, killed_connection = 1927,
                   statement_timeout = 1969, statement_timeout_of_mysql = 3024, disk_full = 1021,
                   no_such_database = 1049, wsrep_not_ready = 1047, unknown_host = 2005,
                   other_protocol = 2007, auth_plugin_failed = 2061, secure_transport = 3159,
                   no_statement_left = 1461, idle_for_too_long = 4031;

constexpr std::array meanings{
    meaning{ER_ACCESS_DENIED_ERROR, errc::denied, "check user and password"},
    meaning{ER_DBACCESS_DENIED_ERROR, errc::denied, "the user may not use this database"},
    meaning{ER_TABLEACCESS_DENIED_ERROR, errc::denied,
            "the user needs SELECT, INSERT, UPDATE and DELETE on the tables holdfast_*"},
    meaning{ER_COLUMNACCESS_DENIED_ERROR, errc::denied,
            "the user needs SELECT, INSERT, UPDATE and DELETE on the tables holdfast_*"},
    meaning{ER_SPECIFIC_ACCESS_DENIED_ERROR, errc::denied, "a grant is missing"},
    meaning{ER_HOST_NOT_PRIVILEGED, errc::denied, "the server takes no connections from this host"},
    meaning{account_locked, errc::denied, "the account is locked"},
    meaning{secure_transport, errc::denied, "the server insists on TLS: add tls=on"},
    meaning{no_auth_plugin, errc::misconfigured,
            "the account's way of logging in is not known to this client"},
    meaning{auth_plugin_failed, errc::misconfigured,
            "logging in failed on this side, before the server had its say"},
    meaning{other_protocol, errc::protocol, "what listens there speaks another protocol"},
    meaning{no_tls, errc::misconfigured,
            "TLS failed: check ca_file, and that the certificate is for this host"},
    meaning{no_such_database, errc::misconfigured, "there is no such database: create it"},
    meaning{ER_NO_SUCH_TABLE, errc::misconfigured,
            "its tables are missing: run what `holdfast schema mysql` prints, or add create=1 to "
            "the address"},
    meaning{ER_BAD_FIELD_ERROR, errc::misconfigured,
            "its tables are of another version: compare them with `holdfast schema mysql`"},
    meaning{ER_WRONG_VALUE_COUNT_ON_ROW, errc::misconfigured,
            "its tables are of another version: compare them with `holdfast schema mysql`"},
    meaning{ER_BINLOG_STMT_MODE_AND_ROW_ENGINE, errc::misconfigured,
            "set binlog_format to ROW or MIXED"},
    meaning{ER_LOCK_WAIT_TIMEOUT, errc::unavailable,
            "another program keeps a row of holdfast's tables locked in a transaction of its own"},
    meaning{ER_LOCK_DEADLOCK, errc::unavailable, "nothing was changed"},
    meaning{ER_OPTION_PREVENTS_STATEMENT, errc::unavailable,
            "the server is read-only; is this a replica?"},
    meaning{super_read_only, errc::unavailable, "the server is read-only; is this a replica?"},
    meaning{gtid_only, errc::unavailable, "the server cannot write now"},
    meaning{ER_READ_ONLY_TRANSACTION, errc::unavailable,
            "the server is read-only; is this a replica?"},
    meaning{ER_RECORD_FILE_FULL, errc::unavailable, "the server's disk is full"},
    meaning{disk_full, errc::unavailable, "the server's disk is full"},
    meaning{ER_CON_COUNT_ERROR, errc::unavailable,
            "the server has no connection left (max_connections)"},
    meaning{ER_TOO_MANY_USER_CONNECTIONS, errc::unavailable,
            "the user has no connection left (max_user_connections)"},
    meaning{no_statement_left, errc::unavailable,
            "the server has no prepared statement left (max_prepared_stmt_count)"},
    meaning{ER_USER_LIMIT_REACHED, errc::unavailable, "the user has used up what it may"},
    meaning{ER_SERVER_SHUTDOWN, errc::unavailable, "the server is shutting down"},
    meaning{server_is_off, errc::unavailable, "the session was killed"},
    meaning{offline_mode, errc::unavailable, "the server is in offline mode"},
    meaning{wsrep_not_ready, errc::unavailable, "the node is not part of its cluster now"},
    meaning{ER_QUERY_INTERRUPTED, errc::unavailable, "the statement was killed"},
    meaning{statement_timeout, errc::unavailable,
            "the statement took longer than the server allows"},
    meaning{statement_timeout_of_mysql, errc::unavailable,
            "the statement took longer than the server allows"},
    meaning{user_lock_deadlock, errc::unavailable, "nothing was changed"},
    meaning{ER_OUT_OF_RESOURCES, errc::unavailable, "the server is out of memory"},
    meaning{ER_OUTOFMEMORY, errc::unavailable, "the server is out of memory"},
    meaning{ER_DISK_FULL, errc::unavailable, "the server's disk is full"},
    meaning{ER_ERROR_ON_WRITE, errc::unavailable, "the server could not write to its disk"},
    meaning{CR_CONNECTION_ERROR, errc::unavailable, "no server listens at this socket"},
    meaning{CR_CONN_HOST_ERROR, errc::unavailable,
            "no server listens there, or the way is blocked"},
    meaning{unknown_host, errc::unavailable, "there is no host of this name"},
};

std::string subject(std::string_view name, const settings& how) {
  if (name.empty()) return how.url;
  return fmt::format("{} on {}", support::quoted(name), how.url);
}

bool is_of_driver(unsigned code) {
  return (code >= CR_MIN_ERROR && code <= CR_MAX_ERROR) ||
         (code >= CER_MIN_ERROR && code <= CER_MAX_ERROR);
}

}  // namespace

bool is_lost_connection(unsigned code) noexcept {
  return is_of_driver(code) || code == killed_connection || code == ER_SERVER_SHUTDOWN ||
         code == server_is_off || code == idle_for_too_long;
}

bool is_interrupted(unsigned code) noexcept { return code == ER_QUERY_INTERRUPTED; }
bool is_no_such_thread(unsigned code) noexcept { return code == ER_NO_SUCH_THREAD; }
bool is_duplicate(unsigned code) noexcept { return code == ER_DUP_ENTRY; }
bool is_deadlock(unsigned code) noexcept { return code == ER_LOCK_DEADLOCK; }
bool is_out_of_statements(unsigned code) noexcept { return code == no_statement_left; }
bool is_missing_table(unsigned code) noexcept { return code == ER_NO_SUCH_TABLE; }

error explain(const failure& what, std::string_view name, const settings& how) {
  const auto known = std::ranges::find(meanings, what.code, &meaning::number);
  const bool is_explained = what.is_connecting && known != meanings.end();
  if (is_lost_connection(what.code) && !is_explained) {
    const auto* reason =
        what.out_of_time ? "no answer came in time" : "the connection was lost before the answer";
    if (what.may_have_changed)
      return {errc::outcome_unknown,
              fmt::format("{}: {}; it may or may not have happened ({}: {}).", subject(name, how),
                          reason, what.code, what.text)};
    return {errc::unavailable, fmt::format("{}: {}; nothing was changed ({}: {}).",
                                           subject(name, how), reason, what.code, what.text)};
  }
  // The server's own word about this very statement: it did nothing. Only a commit that failed half-way is unknown.
  if ((what.is_commit || what.code == ER_ERROR_DURING_COMMIT) && !is_deadlock(what.code))
    return {errc::outcome_unknown,
            fmt::format("{}: a commit failed ({}: {}).", subject(name, how), what.code, what.text)};
  if (known == meanings.end())
    return not_done{errc::protocol, fmt::format("{}: the server refuses a statement ({}: {}).",
                                                subject(name, how), what.code, what.text)};
  return not_done{known->code, fmt::format("{}: {} ({}: {}).", subject(name, how), known->advice,
                                           what.code, what.text)};
}

}  // namespace holdfast::engines::mysql
