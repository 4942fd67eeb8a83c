# Finds LibTorch and makes the imported target Trireme::torch.
#
# If TORCH_DIR is set (in CMake or the environment: the folder that holds include/ and lib/), no
# other place counts. Otherwise the search goes through CMAKE_PREFIX_PATH, for an installed Trireme
# the LibTorch it was built with, the virtual environment .venv of the source tree, the virtual
# environment that is active, and the system's folders.
#
# LibTorch's include folder carries old copies of other libraries' headers (protobuf, fmt). It is
# therefore searched after every other folder, by -idirafter, which CMake's own find_package(Torch)
# does not offer. That one also refuses a LibTorch with CUDA on machines without CUDA's compiler,
# and Trireme needs none.
if(TARGET Trireme::torch)
  return()
endif()
set(_trireme_torch_header include/torch/headeronly/version.h)
set(_trireme_torch_in_python lib/python3*/site-packages/torch)

# Sets `result` to the folder of the LibTorch that a value of TORCH_DIR names.
function(_trireme_given_torch dir result)
  unset(found)
  cmake_path(ABSOLUTE_PATH dir BASE_DIRECTORY ${CMAKE_SOURCE_DIR} NORMALIZE)
  find_path(found ${_trireme_torch_header} PATHS ${dir}
            PATH_SUFFIXES . ../.. ../../..  # Also share/cmake and share/cmake/Torch of it.
            NO_DEFAULT_PATH NO_CACHE)
  if(NOT found)
    file(GLOB below ${dir}/torch/include ${dir}/${_trireme_torch_in_python}/include)
    list(TRANSFORM below REPLACE "(.*)/include$" "; try: TORCH_DIR=\\1")
    message(FATAL_ERROR "TORCH_DIR is ${dir}, and there is no LibTorch (no "
                        "${_trireme_torch_header})${below}")
  endif()
  cmake_path(NORMAL_PATH found)
  string(REGEX REPLACE "/$" "" found "${found}")
  set(${result} ${found} PARENT_SCOPE)
endfunction()

unset(TRIREME_TORCH_ROOT)
if(NOT "${TORCH_DIR}" STREQUAL "")
  _trireme_given_torch("${TORCH_DIR}" TRIREME_TORCH_ROOT)
  if(NOT "$ENV{TORCH_DIR}" STREQUAL "" AND NOT "$ENV{TORCH_DIR}" STREQUAL "${TORCH_DIR}")
    message(STATUS "TORCH_DIR of the environment ($ENV{TORCH_DIR}) is not used, because CMake's is "
                   "${TORCH_DIR}")
  endif()
elseif(NOT "$ENV{TORCH_DIR}" STREQUAL "")
  _trireme_given_torch("$ENV{TORCH_DIR}" TRIREME_TORCH_ROOT)
else()
  file(GLOB _trireme_torch_of_tree ${CMAKE_CURRENT_LIST_DIR}/../.venv/${_trireme_torch_in_python})
  set(_trireme_torch_of_active "")
  if(NOT "$ENV{VIRTUAL_ENV}" STREQUAL "")
    file(GLOB _trireme_torch_of_active $ENV{VIRTUAL_ENV}/${_trireme_torch_in_python})
  endif()
  find_path(TRIREME_TORCH_ROOT ${_trireme_torch_header}
            HINTS ${CMAKE_PREFIX_PATH} ${TRIREME_BUILT_WITH_TORCH} ${_trireme_torch_of_tree}
                  ${_trireme_torch_of_active}
            PATH_SUFFIXES . ../..  # torch.utils.cmake_prefix_path is share/cmake of that folder.
            NO_CACHE)
  if(NOT TRIREME_TORCH_ROOT)
    message(FATAL_ERROR "LibTorch was not found. Run scripts/setup, or set TORCH_DIR to the folder "
                        "that holds LibTorch's include/ and lib/ (2.11 or newer).")
  endif()
endif()
cmake_path(NORMAL_PATH TRIREME_TORCH_ROOT)
string(REGEX REPLACE "/$" "" TRIREME_TORCH_ROOT "${TRIREME_TORCH_ROOT}")
file(STRINGS ${TRIREME_TORCH_ROOT}/${_trireme_torch_header} _version_lines
     REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
string(REGEX MATCHALL "[0-9]+" _version_numbers "${_version_lines}")
list(JOIN _version_numbers "." TRIREME_TORCH_VERSION)
if(TRIREME_TORCH_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "LibTorch ${TRIREME_TORCH_VERSION} in ${TRIREME_TORCH_ROOT} is too old: "
                      "2.11 or newer is needed.")
endif()
if("${TORCH_DIR}" STREQUAL "" AND (NOT "$ENV{TORCH_DIR}" STREQUAL "" OR
                                   TRIREME_TORCH_ROOT IN_LIST _trireme_torch_of_active))
  # A later run of CMake in this build folder may have another environment.
  set(TORCH_DIR ${TRIREME_TORCH_ROOT} CACHE PATH
      "The folder that holds LibTorch's include/ and lib/" FORCE)
endif()
# Another version in the same folder must not be compiled under the name of the one before.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
             ${TRIREME_TORCH_ROOT}/${_trireme_torch_header})

foreach(_lib torch torch_cpu c10)
  find_library(_trireme_lib_${_lib} ${_lib} PATHS ${TRIREME_TORCH_ROOT}/lib
               NO_DEFAULT_PATH NO_CACHE)
  if(NOT _trireme_lib_${_lib})
    message(FATAL_ERROR "LibTorch ${TRIREME_TORCH_VERSION} in ${TRIREME_TORCH_ROOT} has no library "
                        "${_lib} in lib/. Trireme needs LibTorch's shared libraries.")
  endif()
endforeach()

# Builds for accelerators: their libraries register themselves when libtorch.so is loaded.
set(TRIREME_TORCH_DEVICE "CPU")
foreach(_device CUDA:torch_cuda HIP:torch_hip XPU:torch_xpu)
  string(REPLACE ":" ";" _device ${_device})
  list(GET _device 1 _lib)
  find_library(_trireme_lib_device ${_lib} PATHS ${TRIREME_TORCH_ROOT}/lib
               NO_DEFAULT_PATH NO_CACHE)
  if(_trireme_lib_device)
    list(GET _device 0 TRIREME_TORCH_DEVICE)
    break()
  endif()
endforeach()
message(STATUS "LibTorch ${TRIREME_TORCH_VERSION} (${TRIREME_TORCH_DEVICE}) in "
               "${TRIREME_TORCH_ROOT}")
if(_trireme_lib_device AND NOT CMAKE_CROSSCOMPILING)
  # A linker would name hundreds of functions instead.
  find_program(_trireme_ldd ldd NO_CACHE)
  if(_trireme_ldd)
    execute_process(COMMAND ${_trireme_ldd} ${_trireme_lib_torch}
                    OUTPUT_VARIABLE _needed ERROR_QUIET)
    string(REGEX MATCHALL "[^ \t\n]+ => not found" _missing "${_needed}")
    list(TRANSFORM _missing REPLACE " => not found" "")
    list(REMOVE_DUPLICATES _missing)
    list(JOIN _missing ", " _missing)
    if(_missing)
      message(FATAL_ERROR
        "LibTorch ${TRIREME_TORCH_VERSION} in ${TRIREME_TORCH_ROOT} is a build for "
        "${TRIREME_TORCH_DEVICE}, and libraries that it needs were not found: ${_missing}. "
        "No ${TRIREME_TORCH_DEVICE} device is needed to build, but these libraries are. Install "
        "the packages that belong to it (pip install torch==${TRIREME_TORCH_VERSION} does), add "
        "their folder to LD_LIBRARY_PATH, or set TORCH_DIR to a build for CPUs.")
    endif()
  endif()
endif()

add_library(Trireme::torch INTERFACE IMPORTED)
foreach(_dir include include/torch/csrc/api/include)
  target_compile_options(Trireme::torch INTERFACE "SHELL:-idirafter ${TRIREME_TORCH_ROOT}/${_dir}")
endforeach()
# LibTorch's libraries export functions of the C++ library (std::filesystem) that they were linked
# with. Programmes must find those of the machine first: LibTorch 2.11's remove_all() ends them.
target_link_libraries(Trireme::torch INTERFACE stdc++)
if(_trireme_lib_device)
  # No programme calls libtorch.so by name, so a linker with --as-needed would leave it out, and the
  # devices with it.
  target_link_libraries(Trireme::torch INTERFACE
    "-Wl,--push-state,--no-as-needed,\"${_trireme_lib_torch}\",--pop-state")
else()
  target_link_libraries(Trireme::torch INTERFACE ${_trireme_lib_torch})
endif()
target_link_libraries(Trireme::torch INTERFACE ${_trireme_lib_torch_cpu} ${_trireme_lib_c10})
target_link_options(Trireme::torch INTERFACE -Wl,-rpath,${TRIREME_TORCH_ROOT}/lib)
