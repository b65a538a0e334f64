// The tables. Names are bytes (VARBINARY), so that they differ by case, accents and trailing spaces, too.
#include "engines/mysql/sql.hpp"

namespace holdfast::engines::mysql {

const std::vector<std::string>& schema_statements() {
  static const std::vector<std::string> the{
      R"(CREATE TABLE IF NOT EXISTS holdfast_lock (
  name     VARBINARY(255)   NOT NULL,
  capacity BIGINT UNSIGNED  NOT NULL,
  fence    BIGINT UNSIGNED  NOT NULL COMMENT 'newest token ever given; never goes back',
  places   BIGINT UNSIGNED  NOT NULL COMMENT 'places in the queue given so far',
  more     INT UNSIGNED     NOT NULL COMMENT 'rows in holdfast_entry; 0 allows the one-statement path',
  client   BINARY(16)       NOT NULL COMMENT 'the holder, while expires is in the future',
  seq      BIGINT UNSIGNED  NOT NULL,
  mode     TINYINT UNSIGNED NOT NULL COMMENT '0 exclusive, 1 shared, 2 upgradeable, 3 permits',
  weight   BIGINT UNSIGNED  NOT NULL,
  token    BIGINT UNSIGNED  NOT NULL,
  ttl      BIGINT UNSIGNED  NOT NULL COMMENT 'microseconds',
  grace    BIGINT UNSIGNED  NOT NULL COMMENT 'microseconds; 0: only the ttl ends it',
  since    BIGINT UNSIGNED  NOT NULL COMMENT 'granted or released; microseconds since 1970, UTC',
  expires  BIGINT UNSIGNED  NOT NULL COMMENT 'microseconds since 1970, UTC; 0 when released',
  was      VARBINARY(96)    NOT NULL,
  label    VARBINARY(64)    NOT NULL,
  PRIMARY KEY (name),
  KEY client (client)
) ENGINE=InnoDB)",
      R"(CREATE TABLE IF NOT EXISTS holdfast_entry (
  space    TINYINT UNSIGNED NOT NULL COMMENT '0 locks, 1 counters, 2 revocation notices',
  name     VARBINARY(255)   NOT NULL,
  client   BINARY(16)       NOT NULL,
  seq      BIGINT UNSIGNED  NOT NULL,
  state    TINYINT UNSIGNED NOT NULL COMMENT '0 holds, 1 waits, 2 observes, 3 holds (handed over), 4 lost it',
  mode     TINYINT UNSIGNED NOT NULL,
  weight   BIGINT UNSIGNED  NOT NULL,
  token    BIGINT UNSIGNED  NOT NULL,
  ttl      BIGINT UNSIGNED  NOT NULL,
  grace    BIGINT UNSIGNED  NOT NULL,
  since    BIGINT UNSIGNED  NOT NULL,
  expires  BIGINT UNSIGNED  NOT NULL,
  turn     BIGINT           NOT NULL COMMENT 'the queue is in order of turn and place',
  priority INT              NOT NULL,
  place    BIGINT UNSIGNED  NOT NULL,
  push     TINYINT UNSIGNED NOT NULL COMMENT '1: has a listener to be woken',
  was      VARBINARY(96)    NOT NULL COMMENT 'of an upgrade that waits: what it replaces',
  label    VARBINARY(64)    NOT NULL,
  PRIMARY KEY (space, name, client, seq),
  KEY queue (space, name, state, turn, place),
  KEY client (client, state)
) ENGINE=InnoDB)",
      R"(CREATE TABLE IF NOT EXISTS holdfast_session (
  client   BINARY(16)       NOT NULL,
  host     VARBINARY(255)   NOT NULL,
  pid      BIGINT UNSIGNED  NOT NULL,
  gone     BIGINT UNSIGNED  NOT NULL COMMENT 'since when its connection has been found gone; 0: it is there',
  since    BIGINT UNSIGNED  NOT NULL,
  PRIMARY KEY (client)
) ENGINE=InnoDB)",
      R"(CREATE TABLE IF NOT EXISTS holdfast_counter (
  name     VARBINARY(255)   NOT NULL,
  value    BIGINT           NOT NULL,
  version  BIGINT UNSIGNED  NOT NULL,
  changed  BIGINT UNSIGNED  NOT NULL,
  keep_us  BIGINT UNSIGNED  NOT NULL COMMENT 'forgotten when unchanged for so many microseconds; 0: kept',
  PRIMARY KEY (name)
) ENGINE=InnoDB)",
  };
  return the;
}

std::string schema() {
  std::string out =
      "-- The tables of holdfast's mysql engine, for MariaDB 10.3 and MySQL 8.0 or newer.\n"
      "-- Run this in the database that the store address names, as a user that may create "
      "tables.\n"
      "-- All that the user in the address needs, besides CREATE with ?create=1:\n";
  for (const char* table :
       {"holdfast_lock", "holdfast_entry", "holdfast_session", "holdfast_counter"})
    out += std::string{"--   GRANT SELECT, INSERT, UPDATE, DELETE ON thedatabase."} + table +
           " TO theuser;\n";
  for (const auto& table : schema_statements()) out += "\n" + table + ";\n";
  return out;
}

}  // namespace holdfast::engines::mysql
