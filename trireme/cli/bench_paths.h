// What may carry the bytes of a benchmark, by the name that --path takes.
#pragma once
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::cli {

struct BenchPath {
  std::string_view name;
  bool in_threads;  // Ranks are threads of one process; else processes that the launcher starts.
  std::string_view backend;  // comm.backend between processes.
  bool shares_memory;        // Ranks of a host reach each other's tensors where they lie
                             // (Group::shared_tensor()).
};
inline constexpr BenchPath kBenchPaths[] = {
    {"threads", true, "auto", true}, {"shm", false, "shm", true},  {"tcp", false, "tcp", false},
    {"gloo", false, "gloo", false},  {"mpi", false, "mpi", false},  // Processes that mpirun starts.
};

inline std::string bench_path_names(bool sharing_memory = false) {
  std::vector<std::string_view> names;
  for (const BenchPath& path : kBenchPaths)
    if (path.shares_memory || !sharing_memory) names.push_back(path.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

// Throws Error(unsupported) with the names.
inline const BenchPath& find_bench_path(std::string_view name) {
  for (const BenchPath& path : kBenchPaths)
    if (path.name == name) return path;
  throw Error(ErrorCode::unsupported, "cli", fmt::format("--path {} is not in this version", name),
              bench_path_names());
}

}  // namespace trireme::cli
