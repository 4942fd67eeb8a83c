# A room is a folder of trireme/ and the static library trireme_<room> made of all its .cc files.
set(TRIREME_ROOMS "" CACHE INTERNAL "")

add_library(trireme_flags INTERFACE)
set_target_properties(trireme_flags PROPERTIES EXPORT_NAME flags)
target_include_directories(trireme_flags INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                   $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(trireme_flags INTERFACE cxx_std_20)
set(warnings -Wall -Wextra -Wshadow -Wno-missing-field-initializers)
if(TRIREME_WERROR)
  list(APPEND warnings -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    list(APPEND warnings -Wno-restrict)  # GCC bug 105651: a false alarm on std::string's operator+.
  else()
    # What the optimizer believes differs between versions of GCC: warn, but do not stop the build of a newer one.
    list(APPEND warnings -Wno-error=restrict -Wno-error=maybe-uninitialized -Wno-error=stringop-overflow
                         -Wno-error=array-bounds -Wno-error=dangling-reference)
  endif()
endif()
target_compile_options(trireme_flags INTERFACE "$<BUILD_INTERFACE:${warnings}>")
if(TRIREME_SANITIZE)
  target_compile_options(trireme_flags INTERFACE -fsanitize=${TRIREME_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(trireme_flags INTERFACE -fsanitize=${TRIREME_SANITIZE})
  if(TRIREME_SANITIZE MATCHES "thread")
    target_compile_options(trireme_flags INTERFACE -Wno-tsan) # LibTorch's headers have fences that it cannot see.
  endif()
endif()
target_link_libraries(trireme_flags INTERFACE fmt::fmt nlohmann_json::nlohmann_json Threads::Threads)

# Reading headers takes most of the time of a build. So those that many files include are precompiled, once without and
# once with tensors (no more of torch than that: a compiler that reads all of it takes 2 GB).
set(plain_headers <algorithm> <atomic> <chrono> <condition_variable> <cstring> <filesystem> <functional> <map> <memory>
                  <mutex> <optional> <set> <string> <thread> <vector> <fmt/format.h> <fmt/ranges.h> <nlohmann/json.hpp>)
set(tensor_headers <ATen/core/Tensor.h> <ATen/core/grad_mode.h> <ATen/ops/empty.h>)
function(trireme_precompiled name)
  cmake_parse_arguments(arg "" "" "LINK;HEADERS" ${ARGN})
  add_library(${name} OBJECT ${PROJECT_SOURCE_DIR}/cmake/pch.cc)
  target_link_libraries(${name} PUBLIC trireme_flags ${arg_LINK})
  target_precompile_headers(${name} PRIVATE ${arg_HEADERS})
endfunction()
trireme_precompiled(trireme_pch HEADERS ${plain_headers})
trireme_precompiled(trireme_pch_torch LINK Trireme::torch HEADERS ${plain_headers} ${tensor_headers})

# Sources with tensors are compiled with -O3, and so are those that handle many bytes in a step or
# in a checkpoint. The others take less time with -O1, and no step waits for them. (A precompiled
# header serves one level only.)
set(CMAKE_CXX_FLAGS_RELEASE "-O1 -DNDEBUG")
set(hot $<$<CONFIG:Release>:-O3>)
target_compile_options(trireme_pch_torch PRIVATE ${hot})
set_source_files_properties(
  ${PROJECT_SOURCE_DIR}/trireme/base/hash.cc ${PROJECT_SOURCE_DIR}/trireme/net/shared_barrier.cc
  ${PROJECT_SOURCE_DIR}/trireme/checkpoint/digest.cc
  ${PROJECT_SOURCE_DIR}/trireme/checkpoint/snapshot.cc
  ${PROJECT_SOURCE_DIR}/trireme/data/image_table.cc ${PROJECT_SOURCE_DIR}/trireme/data/pixels.cc
  PROPERTIES COMPILE_OPTIONS "${hot}" SKIP_PRECOMPILE_HEADERS ON)

# trireme_quick_to_build(TARGET PCH) makes TARGET use the precompiled header PCH, but for sources that include more of
# torch than tensors: those read nearly all of it, and gain little. With TRIREME_UNITY, sources are compiled in batches,
# so that a header is read once for a batch, small enough that a change of one file costs no more than it would alone.
# A source with options of its own stays alone.
set(wide_torch "^#include <torch/(csrc|library|nn|optim|serialize|torch)")
set(plain_batch_bytes 45000)
set(wide_batch_bytes 90000)
function(trireme_quick_to_build target pch)
  target_precompile_headers(${target} REUSE_FROM ${pch})
  get_target_property(sources ${target} SOURCES)
  get_target_property(folder ${target} SOURCE_DIR)
  set(plain_sources "")
  set(wide_sources "")
  foreach(source ${sources})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${folder} NORMALIZE)
    set(kind plain)
    file(STRINGS ${source} wide REGEX ${wide_torch})
    if(wide)
      set(kind wide)
      set_source_files_properties(${source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    endif()
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    get_source_file_property(definitions ${source} COMPILE_DEFINITIONS)
    get_source_file_property(unused ${source} HEADER_FILE_ONLY)
    if(TRIREME_UNITY AND NOT options AND NOT definitions AND NOT unused)
      list(APPEND ${kind}_sources ${source})
      set_source_files_properties(${source} PROPERTIES HEADER_FILE_ONLY ON)
    endif()
  endforeach()
  foreach(kind plain wide)
    trireme_batches(${target} ${kind} ${${kind}_sources})
  endforeach()
endfunction()

# In a batch no source is the main file, so GCC would warn of every anonymous namespace. And what it
# believes of std::string's memory there are false alarms (GCC bugs 105329 and 105651). All builds
# without batches keep these warnings.
set(batch_warnings "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(batch_warnings -Wno-subobject-linkage -Wno-array-bounds -Wno-stringop-overflow
                     -Wno-stringop-overread)
endif()

# Adds files to `target` that include the sources, each about as many bytes of them.
function(trireme_batches target kind)
  set(total 0)
  foreach(source ${ARGN})
    file(SIZE ${source} size)
    math(EXPR total "${total} + ${size}")
  endforeach()
  math(EXPR batches "${total} / ${${kind}_batch_bytes} + 1")
  math(EXPR total "${total} + 1")
  set(done 0)
  foreach(source ${ARGN})
    math(EXPR number "${done} * ${batches} / ${total}")
    string(APPEND batch_${number} "#include \"${source}\"\n")
    file(SIZE ${source} size)
    math(EXPR done "${done} + ${size}")
  endforeach()
  foreach(number RANGE ${batches})
    if(batch_${number})
      set(file ${PROJECT_BINARY_DIR}/batches/${target}_${kind}_${number}.cc)
      file(CONFIGURE OUTPUT ${file} CONTENT "${batch_${number}}" @ONLY)
      target_sources(${target} PRIVATE ${file})
      set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "${batch_warnings}")
      if(kind STREQUAL "wide")
        set_source_files_properties(${file} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
      endif()
    endif()
  endforeach()
endfunction()

# trireme_room(NAME [TORCH] [PLAIN FILE...] [DEPENDS ROOM...])
# PLAIN files of a torch room include no torch; they become trireme_<room>_plain, which the light programs
# (launcher, `trireme plan`) can link without loading LibTorch.
function(trireme_room name)
  cmake_parse_arguments(arg "TORCH" "" "PLAIN;DEPENDS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/trireme/${name}/*.cc)
  set(target trireme_${name})
  if(arg_PLAIN)
    list(TRANSFORM arg_PLAIN PREPEND ${PROJECT_SOURCE_DIR}/trireme/${name}/ OUTPUT_VARIABLE plain_sources)
    list(REMOVE_ITEM sources ${plain_sources})
    add_library(${target}_plain STATIC ${plain_sources})
    trireme_quick_to_build(${target}_plain trireme_pch)
    set_target_properties(${target}_plain PROPERTIES EXPORT_NAME ${name}_plain)
    target_link_libraries(${target}_plain PUBLIC trireme_base trireme_plan)
    set(TRIREME_ROOMS ${TRIREME_ROOMS} ${target}_plain CACHE INTERNAL "")
  endif()
  if(NOT sources)
    file(TOUCH ${PROJECT_BINARY_DIR}/empty_${name}.cc)
    set(sources ${PROJECT_BINARY_DIR}/empty_${name}.cc)
  endif()
  add_library(${target} STATIC ${sources})
  add_library(Trireme::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_link_libraries(${target} PUBLIC trireme_flags)
  foreach(dep ${arg_DEPENDS})
    target_link_libraries(${target} PUBLIC trireme_${dep})
  endforeach()
  if(arg_PLAIN)
    target_link_libraries(${target} PUBLIC ${target}_plain)
  endif()
  if(arg_TORCH)
    target_link_libraries(${target} PUBLIC Trireme::torch)
  endif()
  if(EXISTS ${PROJECT_SOURCE_DIR}/trireme/${name}/room.cmake)
    include(${PROJECT_SOURCE_DIR}/trireme/${name}/room.cmake)  # What this room alone links to.
  endif()
  if(arg_TORCH)
    target_compile_options(${target} PRIVATE ${hot})
    trireme_quick_to_build(${target} trireme_pch_torch)
  else()
    trireme_quick_to_build(${target} trireme_pch)
  endif()
  set(TRIREME_ROOMS ${TRIREME_ROOMS} ${target} CACHE INTERNAL "")
endfunction()
