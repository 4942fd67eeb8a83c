// What this process has used so far.
#pragma once
#include <cstdint>
#include <memory>

namespace trireme::monitor {

double process_cpu_seconds();  // User + system, this process and its ended children.
int64_t process_pss_bytes();   // Proportional set size now (/proc/self/smaps_rollup); 0 if the
                               // kernel does not tell.

// Remembers the largest PSS, sampled by a thread about once a second (and at peak()).
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
  double per_cpu_hour = 0;     // Money for one CPU busy one hour.
  double per_device_hour = 0;  // Money for one replica's device reserved one hour.
};
// Money for a run: CPU seconds used, and devices reserved for the wall time.
double cost_of(const CostOptions& options, double cpu_seconds, double wall_seconds, int devices);

}  // namespace trireme::monitor
