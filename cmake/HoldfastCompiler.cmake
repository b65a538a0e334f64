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

# With CMAKE_UNITY_BUILD (the presets that people wait for have it) a folder of a target is compiled as one file, or as
# a few: reading the headers is most of the work. So what two files of a folder keep in their anonymous namespaces must
# have different names. The preset clang compiles file by file, and finds a forgotten #include.
set(HOLDFAST_UNITY_FILES 12 CACHE STRING "With CMAKE_UNITY_BUILD: the most files that are compiled as one")
mark_as_advanced(HOLDFAST_UNITY_FILES)

function(holdfast_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    if(NOT source MATCHES "\\.cpp$")
      continue()
    endif()
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} OUTPUT_VARIABLE path)
    cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    cmake_path(GET path PARENT_PATH folder)
    string(MAKE_C_IDENTIFIER "${folder}" folder)
    list(APPEND files_of_${folder} ${source})
    list(LENGTH files_of_${folder} count)
    math(EXPR part "(${count} - 1) / ${HOLDFAST_UNITY_FILES}")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${part})
  endforeach()
endfunction()
