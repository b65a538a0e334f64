# What `make package` packs (CPack, for Debian): two packages, and the debug symbols of the command in one of their own.
#
#   holdfast          the command, its manual page and completions
#   libholdfast-dev   the static library, the headers, the CMake package, holdfast.pc
#
# tools/package runs it on a build and adds the sources.

if(BUILD_SHARED_LIBS)
  return()  # a shared library would be a package of its own, with a promise about its interface that 0.x does not give
endif()

set(HOLDFAST_PACKAGE_MAINTAINER "Holdfast maintainers <holdfast@localhost>" CACHE STRING
    "The field Maintainer of the Debian packages: name and address of whoever makes them"
)

get_property(debian GLOBAL PROPERTY HOLDFAST_DEBIAN)
list(PREPEND debian libfmt-dev)
list(REMOVE_DUPLICATES debian)
list(JOIN debian ", " debian)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME holdfast)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "${HOLDFAST_PACKAGE_MAINTAINER}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # or it is put in front of the descriptions below
set(CPACK_VERBATIM_VARIABLES ON)
# Whatever the umask of whoever packs.
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE
)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/HoldfastDebianFiles.cmake)
set(CPACK_HOLDFAST_STRIP ${CMAKE_STRIP})  # for that script, which sees only names that begin so

set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_COMPONENTS_ALL development)

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libholdfast-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${debian}")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
    "distributed locks with fencing tokens - C++20 library
A lock between processes and machines, in a store that you have: a file, Redis,
MariaDB or MySQL, etcd. Locks are renewed in the background, tell their holder
when they are lost, and carry a fencing token.
.
This package has the static library, its headers, and the files with which
CMake and pkg-config find it."
)

if(TARGET holdfast_cli)
  list(APPEND CPACK_COMPONENTS_ALL command)
  set(CPACK_DEBIAN_COMMAND_PACKAGE_NAME holdfast)
  set(CPACK_DEBIAN_COMMAND_PACKAGE_SECTION utils)
  set(CPACK_DEBIAN_COMMAND_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_COMMAND_DEBUGINFO_PACKAGE ON)
  set(CPACK_COMPONENT_COMMAND_DESCRIPTION
      "distributed locks with fencing tokens - command line
The command holdfast runs programs under a lock between processes and
machines, shows the holders and waiters of locks, and checks stores: a file,
Redis, MariaDB or MySQL, etcd."
  )
endif()

include(CPack)
