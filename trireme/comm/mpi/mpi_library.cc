#include <dlfcn.h>
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/comm/mpi/mpi_library.h>
#include <atomic>

#ifdef OPEN_MPI
// Its header gives the address of `global`, which would have to be linked.
#undef OMPI_PREDEFINED_GLOBAL
#define OMPI_PREDEFINED_GLOBAL(type, global) (static_cast<type>(symbol(#global)))
#endif

namespace trireme::comm {
namespace {

constexpr const char* kMpiFile = TRIREME_MPI_FILE;
constexpr const char* kMpiPath = TRIREME_MPI_PATH;  // Its place when Trireme was built.
std::atomic<bool> mpi_loaded{false};

Error no_mpi_library(const std::string& why) {
  return Error(ErrorCode::unsupported, "comm",
               fmt::format("MPI cannot be loaded: {} (this build calls {})", why, kMpiFile),
               "install the MPI with which Trireme was built (on Debian and Ubuntu: openmpi-bin), "
               "or start the workers with trireme or torchrun");
}

MpiLibrary load_mpi() {
  // The plugins of Open MPI look for its functions among the global ones.
  void* handle = dlopen(kMpiFile, RTLD_NOW | RTLD_GLOBAL);
  if (!handle) {
    const std::string why = dlerror();
    handle = dlopen(kMpiPath, RTLD_NOW | RTLD_GLOBAL);
    if (!handle) throw no_mpi_library(why);
  }
  const auto symbol = [&](const char* name) {
    void* const found = dlsym(handle, name);
    if (!found) throw no_mpi_library(fmt::format("it has no {}", name));
    return found;
  };
  MpiLibrary library{};
#define TRIREME_MPI_FIND(name) \
  library.name = reinterpret_cast<decltype(library.name)>(symbol("MPI_" #name));
  TRIREME_MPI_FUNCTIONS(TRIREME_MPI_FIND)
#undef TRIREME_MPI_FIND
  library.comm_world = MPI_COMM_WORLD;
  library.errors_return = MPI_ERRORS_RETURN;
  library.request_null = MPI_REQUEST_NULL;
  library.op_null = MPI_OP_NULL;
  library.sum = MPI_SUM;
  library.datatype_null = MPI_DATATYPE_NULL;
  library.byte = MPI_BYTE;
  library.character = MPI_CHAR;
  library.integer = MPI_INT;
  library.float32 = MPI_FLOAT;
  library.float64 = MPI_DOUBLE;
  library.int32 = MPI_INT32_T;
  library.int64 = MPI_INT64_T;
  library.uint8 = MPI_UINT8_T;
  mpi_loaded = true;
  return library;
}

}  // namespace

const MpiLibrary& mpi() {
  static const MpiLibrary library = load_mpi();
  return library;
}

bool mpi_is_loaded() { return mpi_loaded; }

}  // namespace trireme::comm
