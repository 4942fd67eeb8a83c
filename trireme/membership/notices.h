// Notices of a worker that is lost, hangs or is slow: a line for people, and a record with the
// same facts for the log. Pure.
#pragma once
#include <trireme/base/json.h>
#include <trireme/watch/phase.h>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trireme::membership {

struct Notice {
  std::string text;
  // {"kind": "lost" | "stalled" | "mismatched" | "unconnected" | "straggler", "rank", "pid",
  // "host", "phase", "step", "collective", "seconds", "waiting": [ranks], ...}. A kind may leave
  // some of them out.
  Json record;
  int pid = 0;  // The process whose stack tells more; 0: none.
};

// A present worker and what it is doing.
struct WorkerNow {
  int worker = 0;
  int rank = 0;  // The rank of its first replica.
  int pid = 0;
  std::string host;
  PhaseNow now;
  std::string name() const;       // "worker 1 (host b)"
  std::string full_name() const;  // "worker 1 (host b, pid 4711)"
};

// The circumstances of a worker at `place` that is lost or does not come: "it had been there for
// 0.3 s, and worker 0 (host a) waits for it in exchange of step 40 (collective 1: gradients)".
std::string circumstances(const PhaseNow& place, const std::vector<WorkerNow>& others,
                          std::chrono::steady_clock::time_point now);
// The facts of a record. `others` are the workers that may wait for this one.
Json record_of(const std::string& kind, const WorkerNow& whose,
               const std::vector<WorkerNow>& others, std::chrono::steady_clock::time_point now);

// Finds workers that keep the others waiting, or that called another operation than the others.
class Stalls {
 public:
  using Time = std::chrono::steady_clock::time_point;
  explicit Stalls(std::chrono::milliseconds timeout) : timeout_(timeout) {}
  // Returns one notice for each such worker and place.
  std::vector<Notice> judge(const std::vector<WorkerNow>& present, Time now);
  // Returns a notice if all present workers wait for something that will not come: they called
  // different operations, or wait in a collective for one that `left` the job before it.
  std::optional<Notice> find_deadlock(const std::vector<WorkerNow>& present,
                                      const std::vector<WorkerNow>& left, Time now) const;

 private:
  using Place = std::pair<int64_t, int64_t>;  // A step and the number of a collective.
  bool is_new(int worker, const PhaseAt& at);
  std::vector<Notice> those_at_work(const std::vector<WorkerNow>& present, Time now);
  std::vector<Notice> all_wait(const std::vector<WorkerNow>& present, Time now);

  const std::chrono::milliseconds timeout_;
  std::map<int, Place> named_;
};

}  // namespace trireme::membership
