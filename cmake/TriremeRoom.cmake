# A room is a folder of trireme/. All its .cc files make the static library trireme_<room>.
set(TRIREME_ROOMS "" CACHE INTERNAL "")

add_library(trireme_flags INTERFACE)
set_target_properties(trireme_flags PROPERTIES EXPORT_NAME flags)
target_include_directories(trireme_flags
  INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
            $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(trireme_flags INTERFACE cxx_std_20)
set(warnings -Wall -Wextra -Wshadow -Wno-missing-field-initializers)
if(TRIREME_WERROR)
  list(APPEND warnings -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC bug 105651: a false alarm on std::string's operator+.
    list(APPEND warnings -Wno-restrict)
  else()
    # The analysis of the optimizer differs between versions of GCC, so a newer one warns without
    # stopping the build.
    list(APPEND warnings -Wno-error=restrict -Wno-error=maybe-uninitialized
                         -Wno-error=stringop-overflow -Wno-error=array-bounds
                         -Wno-error=dangling-reference)
  endif()
endif()
# A project that has Trireme as a part of itself chooses its own warnings.
if(PROJECT_IS_TOP_LEVEL OR TRIREME_WERROR)
  target_compile_options(trireme_flags INTERFACE "$<BUILD_INTERFACE:${warnings}>")
endif()
if(TRIREME_SANITIZE)
  target_compile_options(trireme_flags
    INTERFACE -fsanitize=${TRIREME_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(trireme_flags INTERFACE -fsanitize=${TRIREME_SANITIZE})
  if(TRIREME_SANITIZE MATCHES "thread")
    # ThreadSanitizer cannot see the fences in LibTorch's headers.
    target_compile_options(trireme_flags INTERFACE -Wno-tsan)
  endif()
endif()
target_link_libraries(trireme_flags
  INTERFACE Trireme::fmt Trireme::json Threads::Threads)

# Most of the time of a build goes into reading headers. Headers that many files include are
# therefore precompiled, once without and once with tensors. More of torch is not precompiled,
# because a compiler that reads all of it takes 2 GB.
set(plain_headers <algorithm> <atomic> <chrono> <condition_variable> <cstring> <filesystem>
                  <functional> <map> <memory> <mutex> <optional> <set> <string> <thread> <vector>
                  <fmt/format.h> <fmt/ranges.h> <nlohmann/json.hpp>)
set(tensor_headers <ATen/core/Tensor.h> <ATen/core/grad_mode.h> <ATen/ops/empty.h>)
function(trireme_precompiled name)
  cmake_parse_arguments(arg "" "" "LINK;HEADERS" ${ARGN})
  add_library(${name} OBJECT ${PROJECT_SOURCE_DIR}/cmake/pch.cc)
  target_link_libraries(${name} PUBLIC trireme_flags ${arg_LINK})
  target_precompile_headers(${name} PRIVATE ${arg_HEADERS})
endfunction()
trireme_precompiled(trireme_pch HEADERS ${plain_headers})
trireme_precompiled(trireme_pch_torch
  LINK Trireme::torch HEADERS ${plain_headers} ${tensor_headers})

# Sources with tensors are compiled with -O3, and so are those that handle many bytes or samples in
# a step or a checkpoint. The others take less time with -O1, and no step waits for them. (A
# precompiled header serves one level only.)
set(CMAKE_CXX_FLAGS_RELEASE "-O1 -DNDEBUG")
set(hot $<$<CONFIG:Release>:-O3>)
target_compile_options(trireme_pch_torch PRIVATE ${hot})
set_source_files_properties(
  ${PROJECT_SOURCE_DIR}/trireme/base/hash.cc ${PROJECT_SOURCE_DIR}/trireme/net/shared_barrier.cc
  ${PROJECT_SOURCE_DIR}/trireme/checkpoint/digest.cc
  ${PROJECT_SOURCE_DIR}/trireme/checkpoint/snapshot.cc
  ${PROJECT_SOURCE_DIR}/trireme/data/image_table.cc ${PROJECT_SOURCE_DIR}/trireme/data/pixels.cc
  ${PROJECT_SOURCE_DIR}/trireme/plan/keyed_order.cc
  ${PROJECT_SOURCE_DIR}/trireme/plan/mixture.cc
  ${PROJECT_SOURCE_DIR}/trireme/plan/sample_order.cc
  PROPERTIES COMPILE_OPTIONS "${hot}" SKIP_PRECOMPILE_HEADERS ON)
# These touch every pixel. Without contraction the clones for all generations of processors compute
# the same bits, and no code looks at errno or traps.
foreach(name colour jpeg jpeg_layout png rows webp)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/trireme/images/${name}.cc
    PROPERTIES SKIP_PRECOMPILE_HEADERS ON
    COMPILE_OPTIONS "${hot};-fno-math-errno;-fno-trapping-math;-ffp-contract=off")
endforeach()

# Sources that include more of torch than tensors read nearly all of it.
set(wide_torch "^#include <torch/(csrc|library|nn|optim|serialize|torch)")
# Sets `result` to whether a file, or a header beside it that it includes, includes such a part.
function(trireme_reads_wide_torch file result)
  file(STRINGS ${file} wide REGEX ${wide_torch})
  file(STRINGS ${file} includes REGEX "^#include \"")
  cmake_path(GET file PARENT_PATH folder)
  foreach(include ${includes})
    string(REGEX REPLACE "^#include \"(.*)\".*" "${folder}/\\1" header "${include}")
    if(NOT wide AND EXISTS ${header})
      trireme_reads_wide_torch(${header} wide)
    endif()
  endforeach()
  if(wide)
    set(${result} ON PARENT_SCOPE)
  else()
    set(${result} OFF PARENT_SCOPE)
  endif()
endfunction()

# trireme_quick_to_build(TARGET PCH) makes TARGET use the precompiled header PCH. With
# TRIREME_UNITY, sources are compiled in batches, so that a batch reads a header only once. A batch
# is small enough that a change of one file costs no more than it would alone. A source with
# options of its own stays alone.
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
    trireme_reads_wide_torch(${source} wide)
    if(wide)
      set(kind wide)
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

# In a batch no source is the main file, so GCC would warn of every anonymous namespace. The
# warnings about std::string's memory are false alarms there (GCC bugs 105329 and 105651). All
# builds without batches keep these warnings.
set(batch_warnings "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(batch_warnings -Wno-subobject-linkage -Wno-array-bounds -Wno-stringop-overflow
                     -Wno-stringop-overread)
endif()

# Adds files to `target` that include the sources. Each has about the same number of bytes.
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
    endif()
  endforeach()
endfunction()

# trireme_room(NAME [TORCH] [PLAIN FILE...] [DEPENDS ROOM...])
# PLAIN files of a torch room include no torch. A FILE may be a pattern, such as *_family.cc. They
# become trireme_<room>_plain, which the light programmes (launcher, `trireme plan`) can link
# without loading LibTorch.
function(trireme_room name)
  cmake_parse_arguments(arg "TORCH" "" "PLAIN;DEPENDS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/trireme/${name}/*.cc)
  # A folder with a CMakeLists.txt of its own is another library.
  file(GLOB others ${PROJECT_SOURCE_DIR}/trireme/${name}/*/CMakeLists.txt)
  foreach(other ${others})
    cmake_path(GET other PARENT_PATH other)
    list(FILTER sources EXCLUDE REGEX "^${other}/")
  endforeach()
  set(target trireme_${name})
  if(arg_PLAIN)
    list(TRANSFORM arg_PLAIN PREPEND ${PROJECT_SOURCE_DIR}/trireme/${name}/
         OUTPUT_VARIABLE plain_sources)
    set(patterns ${plain_sources})
    list(FILTER patterns INCLUDE REGEX "[*]")
    if(patterns)
      list(FILTER plain_sources EXCLUDE REGEX "[*]")
      file(GLOB matches CONFIGURE_DEPENDS ${patterns})
      list(APPEND plain_sources ${matches})
    endif()
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
    # The libraries that only this room links.
    include(${PROJECT_SOURCE_DIR}/trireme/${name}/room.cmake)
  endif()
  if(arg_TORCH)
    target_compile_options(${target} PRIVATE ${hot})
    trireme_quick_to_build(${target} trireme_pch_torch)
  else()
    trireme_quick_to_build(${target} trireme_pch)
  endif()
  set(TRIREME_ROOMS ${TRIREME_ROOMS} ${target} CACHE INTERNAL "")
endfunction()
