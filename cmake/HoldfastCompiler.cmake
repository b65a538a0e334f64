# How our own targets are compiled. All of it is scoped to this directory tree, so a project that adds
# Holdfast with add_subdirectory keeps its own flags. Warnings become errors only in the presets
# (CMAKE_COMPILE_WARNING_AS_ERROR): a newer compiler must not break somebody's package build.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
# Object files are shared by the static and the shared library, and a static library may end up in a plugin.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

add_compile_options(
  -Wall
  -Wextra
  -Wpedantic
  -Wshadow
  -Wconversion
  -Wsign-conversion
  -Wold-style-cast
  -Wcast-align
  -Wcast-qual
  -Wnon-virtual-dtor
  -Woverloaded-virtual
  -Wextra-semi
  -Wformat=2
  # Options are aggregates with defaults, given by designated initialisers: leaving fields out is the point.
  -Wno-missing-field-initializers
)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-Wduplicated-cond -Wlogical-op)
elseif(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  add_compile_options(-Wthread-safety)
endif()

find_program(HOLDFAST_CCACHE ccache)
mark_as_advanced(HOLDFAST_CCACHE)
if(HOLDFAST_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${HOLDFAST_CCACHE})
endif()
