// Counts how often workers are lost in the same step before the step is committed. A step that
// costs a worker each time, such as one whose data make it crash, would cost the next replacement
// too. Pure.
#pragma once
#include <trireme/base/json.h>
#include <cstdint>
#include <map>
#include <string>

namespace trireme::launch {

class UnfinishedSteps {
 public:
  static constexpr int kMostTimes = 5;  // Then the job ends.

  // A generation lost a worker in `step`; call it once for each such generation. `where`: "worker 1
  // in backward of step 7"; `how`: "connection closed".
  void lost(int64_t step, int64_t process, const std::string& where, const std::string& how);
  // Its launcher saw how the process ended, which says more than its connection did.
  void ended(int64_t process, const std::string& how);
  void committed(int64_t step);  // And every step before it.
  // Empty, or that a step is never finished: its number, the worker that was lost last, and how.
  std::string verdict() const;

  Json to_json() const;
  static UnfinishedSteps from_json(const Json& text);  // Throws nlohmann's errors for what is none.

 private:
  struct Step {
    int times = 0;
    int64_t process = 0;  // The last one that was lost in it.
    std::string where, how;
  };
  std::map<int64_t, Step> steps_;
};

}  // namespace trireme::launch
