# libnghttp2, HTTP/2 as a state machine without I/O: the target NGHTTP2::NGHTTP2.
#
# Debian: libnghttp2-dev. Its packages bring no CMake file before version 1.58, so this looks by name; it is installed
# beside holdfast-config.cmake for those who link the static library.

find_path(NGHTTP2_INCLUDE_DIR nghttp2/nghttp2.h)
find_library(NGHTTP2_LIBRARY NAMES nghttp2)
mark_as_advanced(NGHTTP2_INCLUDE_DIR NGHTTP2_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NGHTTP2 REQUIRED_VARS NGHTTP2_LIBRARY NGHTTP2_INCLUDE_DIR)

if(NGHTTP2_FOUND AND NOT TARGET NGHTTP2::NGHTTP2)
  add_library(NGHTTP2::NGHTTP2 UNKNOWN IMPORTED)
  set_target_properties(
    NGHTTP2::NGHTTP2 PROPERTIES IMPORTED_LOCATION "${NGHTTP2_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES
                                                                       "${NGHTTP2_INCLUDE_DIR}"
  )
endif()
