// Processes the workers leave behind: they become children of this process and are ended with the
// job.
#pragma once
#include <sys/types.h>
#include <trireme/base/deadline.h>
#include <vector>

namespace trireme::launch {

// While it lives, orphaned descendants of this process become its children
// (PR_SET_CHILD_SUBREAPER).
class Descendants {
 public:
  Descendants();
  ~Descendants();  // end_all(), for the case that an exception came between.
  Descendants(const Descendants&) = delete;
  Descendants& operator=(const Descendants&) = delete;

  // Reaps those that have ended by themselves; `workers` are somebody else's to reap.
  void reap_ended(const std::vector<pid_t>& workers) const;
  // Kills and reaps every child that this process did not have at construction, and what those
  // leave in turn. Call when the workers have ended. Returns false if some are still there at the
  // deadline (stuck in the kernel).
  bool end_all(Deadline deadline) const;

 private:
  std::vector<pid_t> left_over() const;

  int was_subreaper_ = 0;
  std::vector<pid_t> earlier_children_;
};

}  // namespace trireme::launch
