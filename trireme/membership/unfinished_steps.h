// Counts how often workers are lost in the same step before it is committed. If a step loses a
// worker each time, for example because its data make the worker crash, it would lose the
// replacement too. Pure.
#pragma once
#include <trireme/base/json.h>
#include <cstdint>
#include <map>
#include <string>

namespace trireme::membership {

class UnfinishedSteps {
 public:
  static constexpr int kMostTimes = 5;  // The job ends when a step has lost this many workers.

  // A generation lost a worker in `step`; call it once for each such generation. `where` is like
  // "worker 1 in backward of step 7", `how` like "connection closed". `is_seen` says that `how` is
  // its end, and not only that of its connection.
  void lost(int64_t step, int64_t process, const std::string& where, const std::string& how,
            bool is_seen);
  // The launcher saw how the process ended. This replaces what its connection told. It may come
  // too late for the verdict, which then also has the last end that was seen in that step.
  void ended(int64_t process, const std::string& how);
  void committed(int64_t step);  // `step` and every step before it are committed.
  // Returns a sentence about a step that is never finished: its number, the worker that was lost
  // last, and how. The text is empty if there is no such step.
  std::string verdict() const;

  Json to_json() const;
  // Throws nlohmann's errors if `text` has another form.
  static UnfinishedSteps from_json(const Json& text);

 private:
  struct Step {
    int times = 0;
    int64_t process = 0;  // The process that was lost in it last.
    std::string where, how;
    std::string seen;  // The last end of a process in it that was seen.
  };
  std::map<int64_t, Step> steps_;
};

}  // namespace trireme::membership
