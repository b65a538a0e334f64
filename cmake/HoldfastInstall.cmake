# What `make install` puts where. The CMake package and holdfast.pc find their prefix from their own place, so the
# prefix may be chosen at install time and the tree may be moved afterwards.

include(CMakePackageConfigHelpers)

# The command has a component of its own, `command` (cli/CMakeLists.txt). Packages are made of components.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)

get_property(packages GLOBAL PROPERTY HOLDFAST_PACKAGES)
get_property(pkgconfig GLOBAL PROPERTY HOLDFAST_PKGCONFIG)
get_property(linked GLOBAL PROPERTY HOLDFAST_LINKED)
list(JOIN linked " " linked)
list(PREPEND packages Threads fmt)
list(PREPEND pkgconfig fmt)
list(REMOVE_DUPLICATES packages)
list(REMOVE_DUPLICATES pkgconfig)

# A shared library brings what it links along; a static one leaves that to whoever links the program.
set(find_dependencies "")
if(NOT BUILD_SHARED_LIBS)
  foreach(package IN LISTS packages)
    string(APPEND find_dependencies "find_dependency(${package})\n")
  endforeach()
endif()
list(JOIN pkgconfig " " pkgconfig)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/holdfast)
set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}/${pc_dir} OUTPUT_VARIABLE
           prefix_from_pc
)

configure_package_config_file(
  cmake/holdfast-config.cmake.in ${PROJECT_BINARY_DIR}/holdfast-config.cmake INSTALL_DESTINATION ${package_dir}
)
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/holdfast-config-version.cmake COMPATIBILITY SameMinorVersion
)
configure_file(cmake/holdfast.pc.in ${PROJECT_BINARY_DIR}/holdfast.pc @ONLY)

install(TARGETS holdfast EXPORT holdfast-targets FILE_SET HEADERS)
install(EXPORT holdfast-targets NAMESPACE holdfast:: DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/holdfast-config.cmake ${PROJECT_BINARY_DIR}/holdfast-config-version.cmake
        DESTINATION ${package_dir}
)
# For what has no package file of its own.
foreach(package IN LISTS packages)
  if(EXISTS ${PROJECT_SOURCE_DIR}/cmake/Find${package}.cmake)
    install(FILES ${PROJECT_SOURCE_DIR}/cmake/Find${package}.cmake DESTINATION ${package_dir})
  endif()
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/holdfast.pc DESTINATION ${pc_dir})
install(FILES ${PROJECT_SOURCE_DIR}/cmake/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libholdfast-dev)
