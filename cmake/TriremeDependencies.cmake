# The packages on which Trireme is built. All but LibTorch are Debian packages (scripts/setup
# installs them).
include(TriremeLibraries)
find_package(CURL QUIET)
find_package(CLI11 QUIET)
find_path(TRIREME_ASIO_INCLUDE asio.hpp)
find_path(TRIREME_XXHASH_INCLUDE xxhash.h)
find_path(TRIREME_ZSTD_INCLUDE zstd.h)
find_path(TRIREME_GLOO_INCLUDE gloo/config.h)
foreach(needed CURL_FOUND:libcurl4-openssl-dev CLI11_FOUND:libcli11-dev
               TRIREME_ASIO_INCLUDE:libasio-dev TRIREME_XXHASH_INCLUDE:libxxhash-dev
               TRIREME_ZSTD_INCLUDE:libzstd-dev TRIREME_GLOO_INCLUDE:libgloo-dev)
  string(REPLACE ":" ";" needed ${needed})
  list(GET needed 0 found)
  if(NOT ${found})
    list(GET needed 1 package)
    list(APPEND TRIREME_MISSING_PACKAGES ${package})
  endif()
endforeach()
if(TRIREME_MISSING_PACKAGES)
  list(REMOVE_DUPLICATES TRIREME_MISSING_PACKAGES)
  list(JOIN TRIREME_MISSING_PACKAGES " " missing)
  message(FATAL_ERROR "Trireme needs packages that are not on this machine. On Debian and Ubuntu: "
                      "apt-get install ${missing}")
endif()
include(FindLibTorch)
