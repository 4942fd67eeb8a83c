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
  bool in_threads;           // Ranks are threads of one process; else processes that the launcher starts.
  std::string_view backend;  // comm.backend between processes.
};
inline constexpr BenchPath kBenchPaths[] = {
    {"threads", true, "auto"}, {"shm", false, "shm"}, {"tcp", false, "tcp"},
    {"gloo", false, "gloo"},   {"mpi", false, "mpi"},  // Processes that mpirun starts.
};

inline std::string bench_path_names() {
  std::vector<std::string_view> names;
  for (const BenchPath& path : kBenchPaths) names.push_back(path.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

// Throws Error(unsupported) with the names.
inline const BenchPath& find_bench_path(std::string_view name) {
  for (const BenchPath& path : kBenchPaths)
    if (path.name == name) return path;
  throw Error(ErrorCode::unsupported, "cli", fmt::format("--path {} is not in this version", name), bench_path_names());
}

}  // namespace trireme::cli
