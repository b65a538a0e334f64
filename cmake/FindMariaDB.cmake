# MariaDB Connector/C, which also speaks to MySQL: the target MariaDB::MariaDB.
#
# Debian: libmariadb-dev. Neither CMake nor the library itself brings a package file, so this looks by name; it is
# installed beside holdfast-config.cmake for those who link the static library.

find_path(MariaDB_INCLUDE_DIR mysql.h PATH_SUFFIXES mariadb)
find_library(MariaDB_LIBRARY NAMES mariadb)
mark_as_advanced(MariaDB_INCLUDE_DIR MariaDB_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(MariaDB REQUIRED_VARS MariaDB_LIBRARY MariaDB_INCLUDE_DIR)

if(MariaDB_FOUND AND NOT TARGET MariaDB::MariaDB)
  add_library(MariaDB::MariaDB UNKNOWN IMPORTED)
  set_target_properties(
    MariaDB::MariaDB PROPERTIES IMPORTED_LOCATION "${MariaDB_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES
                                                                       "${MariaDB_INCLUDE_DIR}"
  )
endif()
