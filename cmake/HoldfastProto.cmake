# The C++ of a .proto file, for one of our targets:
#
#   holdfast_proto(holdfast_engine_etcd etcd/rpc.proto)      then in the target's sources:  #include <etcd/rpc.pb.h>
#
# What protoc writes is compiled on its own and without our warnings; its headers count as a system's.

function(holdfast_proto target file)
  get_filename_component(folder ${file} DIRECTORY)
  get_filename_component(name ${file} NAME_WE)
  set(root ${CMAKE_CURRENT_BINARY_DIR}/proto)
  set(made ${root}/${folder}/${name}.pb)
  file(MAKE_DIRECTORY ${root}/${folder})
  add_custom_command(
    OUTPUT ${made}.cc ${made}.h
    COMMAND protobuf::protoc --proto_path=${CMAKE_CURRENT_SOURCE_DIR} --cpp_out=lite:${root} ${file}
    DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${file} protobuf::protoc
    COMMENT "protoc ${file}"
    VERBATIM
  )
  add_library(${target}_proto OBJECT ${made}.cc ${made}.h)
  target_compile_options(${target}_proto PRIVATE -w)
  target_include_directories(${target}_proto SYSTEM PUBLIC ${root})
  target_link_libraries(${target}_proto PUBLIC protobuf::libprotobuf-lite)
  set_property(GLOBAL APPEND PROPERTY HOLDFAST_OBJECTS ${target}_proto)

  # Not linked: that would put the object into whatever links the target.
  target_include_directories(${target} SYSTEM PRIVATE ${root})
  add_dependencies(${target} ${target}_proto)
endfunction()
