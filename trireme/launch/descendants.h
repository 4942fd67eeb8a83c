// The processes that workers leave behind. They become children of this process, which ends them
// with the job.
#pragma once
#include <sys/types.h>
#include <trireme/base/deadline.h>
#include <vector>

namespace trireme::launch {

// A variable in the environment of a process that a launcher leaves alone: it serves several jobs,
// and ends by itself.
inline constexpr const char* kOutlivesJob = "TRIREME_OUTLIVES_JOB=yes";

// While this object lives, orphaned descendants of this process become its children
// (PR_SET_CHILD_SUBREAPER).
class Descendants {
 public:
  Descendants();
  ~Descendants();  // Calls end_all(), in case an exception prevented the call.
  Descendants(const Descendants&) = delete;
  Descendants& operator=(const Descendants&) = delete;

  // Reaps the children that have ended by themselves, except `workers`: their owner reaps them.
  void reap_ended(const std::vector<pid_t>& workers) const;
  // Kills and reaps every child that this process did not have at construction, and the processes
  // that those leave behind, but for those with kOutlivesJob. Call it when the workers have ended.
  // Returns false if some of them still exist at the deadline (stuck in the kernel).
  bool end_all(Deadline deadline) const;

 private:
  std::vector<pid_t> left_over() const;

  int was_subreaper_ = 0;
  std::vector<pid_t> earlier_children_;
};

}  // namespace trireme::launch
