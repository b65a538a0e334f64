# One row per engine, in src/engines/CMakeLists.txt:
#
#   holdfast_engine(
#     NAME redis SCHEMES redis rediss unix SYSTEMS Linux USES net resp
#     PACKAGES OpenSSL
#     LIBRARIES OpenSSL::SSL OpenSSL::Crypto
#     PKGCONFIG openssl
#     DEBIAN libssl-dev
#   )
#
#   SCHEMES    the URI schemes it answers to; shown in the summary
#   DEFAULT    AUTO unless given; OFF for an engine that is not finished
#   SYSTEMS    the values of CMAKE_SYSTEM_NAME it works on; all when left out
#   USES       the folders of src/ that engines share and that it includes; nothing else builds them
#   PACKAGES   what find_package must find, here and again in a consumer of the static library
#   LIBRARIES  the targets of those packages to link
#   PKGCONFIG  the names of the same libraries for `pkg-config --static`
#   LINKED     what `pkg-config --static` links instead, where a library's own file names libraries that need not be there
#   DEBIAN     the packages of Debian that bring them: what libholdfast-dev depends on
#
# The sources are src/engines/<name>/*.cpp. The cache entry HOLDFAST_ENGINE_<NAME> decides: AUTO builds the engine
# when it can be built and otherwise says why not, ON makes that an error, OFF leaves it out.
# src/engines/registry.cpp sees HOLDFAST_ENGINE_<NAME>=1 for each engine that is built.

function(holdfast_engine)
  cmake_parse_arguments(
    PARSE_ARGV 0 arg "" "NAME;DEFAULT" "SCHEMES;SYSTEMS;USES;PACKAGES;LIBRARIES;PKGCONFIG;LINKED;DEBIAN"
  )
  string(TOUPPER ${arg_NAME} upper)
  set(switch HOLDFAST_ENGINE_${upper})
  if(NOT DEFINED arg_DEFAULT)
    set(arg_DEFAULT AUTO)
  endif()
  set(${switch} ${arg_DEFAULT} CACHE STRING "Build the ${arg_NAME} engine: AUTO, ON or OFF")
  set_property(CACHE ${switch} PROPERTY STRINGS AUTO ON OFF)

  if(NOT ${switch} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "${switch} is ${${switch}}, but must be AUTO, ON or OFF.")
  endif()

  set(obstacle "")
  if(${switch} STREQUAL "OFF")
    set(obstacle "switched off")
  elseif(arg_SYSTEMS AND NOT CMAKE_SYSTEM_NAME IN_LIST arg_SYSTEMS)
    list(JOIN arg_SYSTEMS " or " systems)
    set(obstacle "works on ${systems} only")
  else()
    foreach(package IN LISTS arg_PACKAGES)
      # Global, because the library that links them is made one folder up.
      find_package(${package} QUIET GLOBAL)
      if(NOT ${package}_FOUND)
        set(obstacle "${package} was not found")
        break()
      endif()
    endforeach()
  endif()
  if(obstacle AND ${switch} STREQUAL "ON")
    message(FATAL_ERROR "${switch} is ON, but the ${arg_NAME} engine cannot be built: ${obstacle}.")
  endif()

  list(TRANSFORM arg_SCHEMES APPEND ":")
  list(JOIN arg_SCHEMES " " schemes)
  holdfast_summary_row(${arg_NAME} "${schemes}" "${obstacle}")
  if(obstacle)
    set_property(GLOBAL APPEND PROPERTY HOLDFAST_LEFT_OUT ${arg_NAME})
    return()
  endif()

  holdfast_objects(engine_${arg_NAME} ${arg_NAME})
  target_link_libraries(holdfast_engine_${arg_NAME} PRIVATE ${arg_LIBRARIES})
  set_property(GLOBAL APPEND PROPERTY HOLDFAST_ENGINE_DEFINITIONS ${switch}=1)
  set_property(GLOBAL APPEND PROPERTY HOLDFAST_LIBRARIES ${arg_LIBRARIES})
  set_property(GLOBAL APPEND PROPERTY HOLDFAST_PACKAGES ${arg_PACKAGES})
  set_property(GLOBAL APPEND PROPERTY HOLDFAST_PKGCONFIG ${arg_PKGCONFIG})
  set_property(GLOBAL APPEND PROPERTY HOLDFAST_LINKED ${arg_LINKED})
  set_property(GLOBAL APPEND PROPERTY HOLDFAST_DEBIAN ${arg_DEBIAN})
  set_property(GLOBAL APPEND PROPERTY HOLDFAST_FOLDERS_USED ${arg_USES})
endfunction()

function(holdfast_summary_row engine schemes obstacle)
  if(obstacle)
    set(state "no: ${obstacle}")
  else()
    set(state "yes")
  endif()
  set(blank "                            ")
  string(SUBSTRING "${engine}${blank}" 0 12 engine)
  string(SUBSTRING "${schemes}${blank}" 0 28 schemes)
  message(STATUS "  ${engine}${schemes}${state}")
endfunction()
