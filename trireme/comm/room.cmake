# Each optional backend is a folder with its file and a no_ twin. Exactly one of the two is
# compiled.
function(trireme_unused_sources)
  list(TRANSFORM ARGN PREPEND ${PROJECT_SOURCE_DIR}/trireme/comm/ OUTPUT_VARIABLE sources)
  set_source_files_properties(${sources} PROPERTIES HEADER_FILE_ONLY ON)
endfunction()

option(TRIREME_GLOO "Carry tensors between processes with Gloo (needs libgloo-dev's headers)" ON)
if(TRIREME_GLOO)
  target_include_directories(trireme_comm SYSTEM PRIVATE ${TRIREME_GLOO_INCLUDE})
  target_compile_definitions(trireme_comm PRIVATE USE_C10D_GLOO)
  trireme_unused_sources(gloo/no_gloo.cc)
else()
  trireme_unused_sources(gloo/gloo_group.cc)
endif()

set(TRIREME_MPI AUTO CACHE STRING
    "Carry tensors with MPI between workers of mpirun: AUTO (if it is installed), ON or OFF")
set_property(CACHE TRIREME_MPI PROPERTY STRINGS AUTO ON OFF)
set(MPI_FOUND FALSE)
if(TRIREME_MPI)
  set(MPI_CXX_SKIP_MPICXX TRUE)
  if(TRIREME_MPI STREQUAL "AUTO")
    find_package(MPI QUIET COMPONENTS CXX)
  else()
    find_package(MPI REQUIRED COMPONENTS CXX)
  endif()
endif()
if(MPI_FOUND)
  target_include_directories(trireme_comm SYSTEM PRIVATE ${MPI_CXX_INCLUDE_DIRS})
  target_compile_definitions(trireme_comm PRIVATE ${MPI_CXX_COMPILE_DEFINITIONS})
  # MPI is loaded when it is used (mpi/mpi_library.h), under the name that programmes linked with
  # it would look for.
  list(FILTER MPI_CXX_LIBRARIES EXCLUDE REGEX "mpi_cxx|mpi\\+\\+")
  list(GET MPI_CXX_LIBRARIES 0 mpi_library)
  file(REAL_PATH ${mpi_library} mpi_library)
  execute_process(COMMAND ${CMAKE_OBJDUMP} -p ${mpi_library} OUTPUT_VARIABLE mpi_header)
  string(REGEX MATCH "SONAME +([^\n]+)" mpi_soname "${mpi_header}")
  if(NOT mpi_soname)
    message(FATAL_ERROR "${mpi_library} is no shared library, so MPI cannot be loaded at run time; "
                        "set TRIREME_MPI=OFF, or install a shared MPI")
  endif()
  set_source_files_properties(${PROJECT_SOURCE_DIR}/trireme/comm/mpi/mpi_library.cc PROPERTIES
    COMPILE_DEFINITIONS
    "TRIREME_MPI_FILE=\"${CMAKE_MATCH_1}\";TRIREME_MPI_PATH=\"${mpi_library}\"")
  trireme_unused_sources(mpi/no_mpi.cc)
else()
  trireme_unused_sources(mpi/mpi_calls.cc mpi/mpi_group.cc mpi/mpi_library.cc
                         mpi/mpi_messages.cc mpi/mpi_reduction.cc)
endif()
option(TRIREME_NCCL
       "Carry GPU tensors with NCCL (needs LibTorch with CUDA, and headers of NCCL and CUDA)" OFF)
if(TRIREME_NCCL)
  # pip installs the headers beside a torch with CUDA.
  file(REAL_PATH ${TRIREME_TORCH_ROOT} nvidia)
  file(GLOB nvidia ${nvidia}/../nvidia/*/include)
  find_path(TRIREME_NCCL_INCLUDE nccl.h HINTS ${nvidia} REQUIRED)
  find_path(TRIREME_CUDA_INCLUDE cuda_runtime.h HINTS ${nvidia} PATHS /usr/local/cuda/include
            REQUIRED)
  find_library(TRIREME_TORCH_CUDA torch_cuda PATHS ${TRIREME_TORCH_ROOT}/lib NO_DEFAULT_PATH
               REQUIRED)
  set_source_files_properties(
    ${PROJECT_SOURCE_DIR}/trireme/comm/nccl/nccl_group.cc PROPERTIES
    COMPILE_DEFINITIONS USE_C10D_NCCL
    COMPILE_OPTIONS "-isystem${TRIREME_NCCL_INCLUDE};-isystem${TRIREME_CUDA_INCLUDE}")
  # The linker sees no call to this library by name.
  target_link_libraries(trireme_comm PUBLIC "-Wl,--no-as-needed,${TRIREME_TORCH_CUDA},--as-needed")
  trireme_unused_sources(nccl/no_nccl.cc)
else()
  trireme_unused_sources(nccl/nccl_group.cc)
endif()
message(STATUS "Backends between processes: shared memory, TCP; Gloo ${TRIREME_GLOO}; "
               "MPI ${MPI_FOUND}; NCCL ${TRIREME_NCCL}")
