# Finds LibTorch and makes the imported target Trireme::torch.
#
# The search goes through TORCH_DIR (CMake or environment: the folder that holds include/ and
# lib/), CMAKE_PREFIX_PATH, for an installed Trireme the LibTorch it was built with, and the
# virtual environment .venv of the source tree.
#
# LibTorch's include folder carries old copies of other libraries' headers (protobuf, fmt). It is
# therefore searched after every other folder, by -idirafter, which CMake's own find_package(Torch)
# does not offer.
if(TARGET Trireme::torch)
  return()
endif()
file(GLOB _trireme_venv_torch ${CMAKE_CURRENT_LIST_DIR}/../.venv/lib/python3*/site-packages/torch)
find_path(TRIREME_TORCH_ROOT include/torch/headeronly/version.h
          HINTS ${TORCH_DIR} $ENV{TORCH_DIR} ${CMAKE_PREFIX_PATH} ${TRIREME_BUILT_WITH_TORCH}
                ${_trireme_venv_torch}
          PATH_SUFFIXES . ../..  # torch.utils.cmake_prefix_path is share/cmake of that folder.
          NO_CACHE)
if(NOT TRIREME_TORCH_ROOT)
  message(FATAL_ERROR "LibTorch was not found. Run scripts/setup, or set TORCH_DIR to the folder "
                      "that holds LibTorch's include/ and lib/ (2.11 or newer).")
endif()
cmake_path(NORMAL_PATH TRIREME_TORCH_ROOT)
string(REGEX REPLACE "/$" "" TRIREME_TORCH_ROOT "${TRIREME_TORCH_ROOT}")
file(STRINGS ${TRIREME_TORCH_ROOT}/include/torch/headeronly/version.h _version_lines
     REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
string(REGEX MATCHALL "[0-9]+" _version_numbers "${_version_lines}")
list(JOIN _version_numbers "." TRIREME_TORCH_VERSION)
if(TRIREME_TORCH_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "LibTorch ${TRIREME_TORCH_VERSION} in ${TRIREME_TORCH_ROOT} is too old: "
                      "2.11 or newer is needed.")
endif()
message(STATUS "LibTorch ${TRIREME_TORCH_VERSION} in ${TRIREME_TORCH_ROOT}")

add_library(Trireme::torch INTERFACE IMPORTED)
foreach(_dir include include/torch/csrc/api/include)
  target_compile_options(Trireme::torch INTERFACE "SHELL:-idirafter ${TRIREME_TORCH_ROOT}/${_dir}")
endforeach()
foreach(_lib torch torch_cpu c10)
  find_library(_trireme_lib_${_lib} ${_lib} PATHS ${TRIREME_TORCH_ROOT}/lib
               NO_DEFAULT_PATH REQUIRED NO_CACHE)
  list(APPEND _trireme_torch_libs ${_trireme_lib_${_lib}})
endforeach()
target_link_libraries(Trireme::torch INTERFACE ${_trireme_torch_libs})
target_link_options(Trireme::torch INTERFACE -Wl,-rpath,${TRIREME_TORCH_ROOT}/lib)
