# Finds Apache Arrow with Parquet. Sets TRIREME_ARROW_VERSION, which is empty without it,
# TRIREME_ARROW_INCLUDE, TRIREME_ARROW_FILES (the paths of libarrow and libparquet) and
# TRIREME_ARROW_LIBRARIES (the names that the loader looks for).
#
# If ARROW_DIR is set (in CMake or the environment: a folder with include/, as a prefix or the
# folder of the Python package pyarrow), no other place counts. Otherwise the search goes through
# CMAKE_PREFIX_PATH, the system's folders, the virtual environment .venv of the source tree, where
# `scripts/setup arrow` puts pyarrow, and the one that is active.
set(_default OFF)
if(PROJECT_IS_TOP_LEVEL)
  set(_default AUTO)
endif()
set(TRIREME_ARROW ${_default} CACHE STRING
    "Read Parquet and Arrow files with Apache Arrow: AUTO (if it is found), ON or OFF")
set_property(CACHE TRIREME_ARROW PROPERTY STRINGS AUTO ON OFF)
set(TRIREME_ARROW_VERSION "")
# Older ones do not limit the depth of a schema, and have other functions.
set(TRIREME_ARROW_OLDEST 26)

function(trireme_lacks_arrow)
  if(TRIREME_ARROW STREQUAL "ON" OR NOT "${ARROW_DIR}" STREQUAL "")
    message(FATAL_ERROR ${ARGN} " Set ARROW_DIR to the folder that holds Arrow's include/ "
                        "(pip install pyarrow has it), or TRIREME_ARROW to OFF.")
  endif()
  message(STATUS "Parquet and Arrow files: OFF. " ${ARGN})
endfunction()

if(NOT TRIREME_ARROW)
  message(STATUS "Parquet and Arrow files: OFF")
  return()
endif()
if("${ARROW_DIR}" STREQUAL "" AND NOT "$ENV{ARROW_DIR}" STREQUAL "")
  # A later run of CMake in this build folder may have another environment.
  set(ARROW_DIR $ENV{ARROW_DIR} CACHE PATH "The folder that holds Arrow's include/" FORCE)
endif()
unset(_root)
if(NOT "${ARROW_DIR}" STREQUAL "")
  find_path(_root include/parquet/arrow/reader.h PATHS ${ARROW_DIR} NO_DEFAULT_PATH NO_CACHE)
else()
  set(_in_python lib/python3*/site-packages/pyarrow)
  file(GLOB _of_tree ${PROJECT_SOURCE_DIR}/.venv/${_in_python})
  set(_of_active "")
  if(NOT "$ENV{VIRTUAL_ENV}" STREQUAL "")
    file(GLOB _of_active $ENV{VIRTUAL_ENV}/${_in_python})
  endif()
  find_path(_root include/parquet/arrow/reader.h PATHS ${_of_tree} ${_of_active} NO_CACHE)
  if(_root AND _of_active AND NOT _of_tree AND "${_root}" MATCHES "^${_of_active}/?$")
    set(ARROW_DIR ${_root} CACHE PATH "The folder that holds Arrow's include/" FORCE)
  endif()
endif()
if(NOT _root)
  trireme_lacks_arrow("Apache Arrow was not found.")
  return()
endif()
file(STRINGS ${_root}/include/arrow/util/config.h _version
     REGEX "define ARROW_VERSION_STRING ")
string(REGEX MATCH "[0-9]+[.][0-9]+[.][0-9]+" _version "${_version}")
if(_version VERSION_LESS TRIREME_ARROW_OLDEST)
  trireme_lacks_arrow("Apache Arrow ${_version} in ${_root} is too old: ${TRIREME_ARROW_OLDEST} "
                      "or newer is needed.")
  return()
endif()
string(REGEX REPLACE "/$" "" _root "${_root}")
set(TRIREME_ARROW_FILES "")
set(TRIREME_ARROW_LIBRARIES "")
foreach(_name arrow parquet)
  file(STRINGS ${_root}/include/arrow/util/config.h _so REGEX "define ARROW_SO_VERSION ")
  string(REGEX MATCH "[0-9]+" _so "${_so}")
  unset(_file)
  # The libraries of pyarrow have names with a version alone.
  find_library(_file NAMES lib${_name}.so.${_so} PATHS ${_root} ${_root}/lib ${_root}/lib64
               PATH_SUFFIXES ${CMAKE_LIBRARY_ARCHITECTURE} NO_DEFAULT_PATH NO_CACHE)
  if(NOT _file)
    trireme_lacks_arrow("There is no lib${_name}.so.${_so} in ${_root}.")
    return()
  endif()
  list(APPEND TRIREME_ARROW_FILES ${_file})
  list(APPEND TRIREME_ARROW_LIBRARIES lib${_name}.so.${_so})
endforeach()
# Another version in the same folder must not be used under the name of the one before.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
             ${_root}/include/arrow/util/config.h)
set(TRIREME_ARROW_INCLUDE ${_root}/include)
set(TRIREME_ARROW_VERSION ${_version})
message(STATUS "Parquet and Arrow files: Apache Arrow ${_version} in ${_root}")
