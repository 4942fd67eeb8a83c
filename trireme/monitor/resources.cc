#include <trireme/config/row.h>
#include <trireme/monitor/resources.h>

#include <sys/resource.h>
#include <cstdio>
#include <fstream>
#include <string>

namespace trireme::monitor {
namespace {

double cpu_seconds_of(int who) {
  rusage usage{};
  if (::getrusage(who, &usage) != 0) return 0;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

double process_cpu_seconds() {
  return cpu_seconds_of(RUSAGE_SELF) + cpu_seconds_of(RUSAGE_CHILDREN);
}

int64_t process_pss_bytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string line; std::getline(rollup, line);) {
    long long kibibytes = 0;
    if (std::sscanf(line.c_str(), "Pss: %lld kB", &kibibytes) == 1) return kibibytes * 1024;
  }
  return 0;
}

double cost_of(const CostOptions& options, double cpu_seconds, double wall_seconds, int devices) {
  constexpr double kSecondsPerHour = 3600;
  return (options.per_cpu_hour * cpu_seconds + options.per_device_hour * wall_seconds * devices) /
         kSecondsPerHour;
}

config::Rows rows_of(const CostOptions*) {
  using O = CostOptions;
  return config::all_of<O>(
      {config::row(&O::per_cpu_hour, {.name = "cost.per_cpu_hour",
                                      .meaning = "Money for one CPU busy for one hour.",
                                      .range = config::at_least(0),
                                      .agreed = false}),
       config::row(&O::per_device_hour,
                   {.name = "cost.per_device_hour",
                    .meaning = "Money for one replica's device reserved for one hour.",
                    .range = config::at_least(0),
                    .agreed = false})});
}

}  // namespace trireme::monitor
