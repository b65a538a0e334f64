# What a Debian package has otherwise than `make install`. CPack runs this when the files are in place and not packed.

set(usr ${CPACK_TEMPORARY_DIRECTORY}/*/usr)

# Manual pages are compressed.
file(GLOB pages ${usr}/share/man/man1/*.1)
if(pages)
  execute_process(COMMAND gzip --best --no-name ${pages} COMMAND_ERROR_IS_FATAL ANY)
endif()

# Debian's zsh does not look into site-functions of /usr.
file(GLOB folders ${usr}/share/zsh/site-functions)
foreach(folder IN LISTS folders)
  cmake_path(GET folder PARENT_PATH parent)
  file(RENAME ${folder} ${parent}/vendor-completions)
endforeach()

# CPack moves the debug symbols of the command into a package of their own; those of a static library stay in the build.
file(GLOB_RECURSE archives ${usr}/lib/*.a)
if(archives)
  execute_process(COMMAND ${CPACK_HOLDFAST_STRIP} --strip-debug ${archives} COMMAND_ERROR_IS_FATAL ANY)
endif()
