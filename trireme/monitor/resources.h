// The resources that this process has used so far.
#pragma once
#include <trireme/config/rows.h>
#include <cstdint>
#include <memory>

namespace trireme::monitor {

// User and system time of this process and of its children that have ended.
double process_cpu_seconds();
// The proportional set size now (/proc/self/smaps_rollup); 0 if the kernel does not report it.
int64_t process_pss_bytes();

// Remembers the largest PSS. A thread samples it about once a second, and peak() samples it too.
class PssSampler {
 public:
  PssSampler();
  ~PssSampler();
  int64_t peak();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct CostOptions {
  double per_cpu_hour = 0;     // The price of one CPU that is busy for one hour.
  double per_device_hour = 0;  // The price of one replica's device that is reserved for one hour.
};
config::Rows rows_of(const CostOptions*);
// The cost of a run: the CPU seconds used, and the devices reserved for the wall time.
double cost_of(const CostOptions& options, double cpu_seconds, double wall_seconds, int devices);

}  // namespace trireme::monitor
