// The backends that can carry the bytes of a benchmark, by the names that --path takes.
#pragma once
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::cli {

struct BenchPath {
  std::string_view name;
  // True: ranks are threads of one process. False: they are processes that the launcher starts.
  bool in_threads;
  std::string_view backend;  // The value of comm.backend between processes.
  // The ranks of a host use each other's tensors in place (Group::shared_tensor()).
  bool shares_memory;
};
// The launcher starts the processes of every path but mpi, whose processes mpirun starts.
inline constexpr BenchPath kBenchPaths[] = {
    {"threads", true, "auto", true}, {"shm", false, "shm", true},  {"tcp", false, "tcp", false},
    {"gloo", false, "gloo", false},  {"mpi", false, "mpi", false},
};

inline std::string bench_path_names(bool sharing_memory = false) {
  std::vector<std::string_view> names;
  for (const BenchPath& path : kBenchPaths)
    if (path.shares_memory || !sharing_memory) names.push_back(path.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

// Throws Error(unsupported) with the names of all paths.
inline const BenchPath& find_bench_path(std::string_view name) {
  for (const BenchPath& path : kBenchPaths)
    if (path.name == name) return path;
  throw Error(ErrorCode::unsupported, "cli", fmt::format("--path {} is not in this version", name),
              bench_path_names());
}

}  // namespace trireme::cli
