# The packages on which Trireme is built. All but LibTorch are Debian packages (scripts/setup
# installs them).
find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(CURL REQUIRED)
find_package(ZLIB REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(CLI11 REQUIRED)
include(FindLibTorch)

find_path(TRIREME_ASIO_INCLUDE asio.hpp REQUIRED)
find_path(TRIREME_XXHASH_INCLUDE xxhash.h REQUIRED)
find_path(TRIREME_GLOO_INCLUDE gloo/config.h REQUIRED)
