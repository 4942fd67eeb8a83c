// The consistency of parameter servers: whether a push counts, and when a worker may begin its
// next step. A state machine without time, threads or tensors; one server has it for all.
//
// A worker's clock is the number of its next step, from 0. It pulls the parameters, computes, and
// pushes the gradients of that step. The modes, and what a worker that computes step c has seen:
//
//   sync               all pushes of the steps before c of all workers, added up to one update for
//                      each step (Valiant 1990, "A bridging model for parallel computation").
//                      With b backup workers an update takes the first pushes of a step, all but
//                      b, and drops the others (Chen et al. 2016, arXiv 1604.00981, section 3.1).
//   stale              at least all pushes of the steps before c - s of all workers, and all of
//                      its own (Ho et al. 2013, "More Effective Distributed ML via a Stale
//                      Synchronous Parallel Parameter Server", section 3). Each push is an update.
//   async              all of its own. Each push is an update (Dean et al. 2012, "Large Scale
//                      Distributed Deep Networks", section 4.1).
//   delay_compensated  as async; the update corrects the gradient for the distance that the
//                      parameters have moved since the pull (Zheng et al. 2017, arXiv 1609.08326).
#pragma once
#include <trireme/base/json.h>
#include <trireme/config/rows.h>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::plan {

enum class Consistency { sync, async, stale, delay_compensated };
std::string_view to_string(Consistency consistency);
// Throws Error(invalid_argument) naming the choices.
Consistency consistency_from_string(std::string_view name);

struct ConsistencyOptions {
  Consistency consistency = Consistency::sync;
  int staleness = 0;       // stale: the bound s.
  int backup_workers = 0;  // sync: the pushes of a step that an update does not wait for.
  bool operator==(const ConsistencyOptions&) const = default;
};
config::Rows rows_of(const ConsistencyOptions*);  // ps_options.cc
Json to_json(const ConsistencyOptions& options);
ConsistencyOptions consistency_in(const Json& json);  // Throws Error, nlohmann's errors.
// Throws Error(invalid_argument) naming the option: a bound below 0, backup workers without sync,
// or as many as there are workers.
void check(const ConsistencyOptions& options, int workers);

// Used under one lock.
class PushClock {
 public:
  // The workers 0 to `workers` - 1 are there, and others wait for them, until they leave.
  PushClock(ConsistencyOptions options, int workers);

  enum class Verdict {
    update,    // The push is an update by itself.
    gather,    // It waits for others of its step.
    complete,  // With those that were gathered it is an update.
    late,      // Its step has had its update without it: it is dropped.
    repeated,  // It has counted before: it is dropped. A worker that got no answer sends again.
  };
  // Throws Error(invalid_argument) naming worker and clock if the worker is not there, or has left
  // out a step.
  Verdict push(int worker, int64_t clock);
  // Whether a worker may begin the step `clock` with the parameters as they are now.
  bool may_begin(int worker, int64_t clock) const;
  // The step that a worker begins that asks for `clock`: a later one if it has pushed that step
  // already, or if updates did not wait for it.
  int64_t step_to_begin(int worker, int64_t clock) const;

  // A worker that is new, or comes back, begins with this step.
  int64_t join(int worker);
  // The worker pushes no more until it joins again; nobody waits for it. Returns true if the
  // pushes that were gathered are an update now. What it pushed counts.
  bool leave(int worker);
  // The pushes that were gathered do not wait for others any more. Returns as leave().
  bool flush();
  // Also while training goes on. Returns as leave().
  bool change(ConsistencyOptions options);
  // A push that does not count, although its step has come. Returns `late` or `repeated`.
  Verdict drop(int worker, int64_t clock);

  // For a copy of a clock, which may have to take its place. Another clock has made an update of
  // these pushes.
  struct Pushed {
    int worker = 0;
    int64_t clock = 0;
  };
  void follow(const std::vector<Pushed>& update);
  // The worker has ended all of its steps before this one, so far as another clock told it. A copy
  // does not know of pushes that did not count.
  void resume(int worker, int64_t clock);

  const ConsistencyOptions& options() const { return options_; }
  int64_t updates() const { return updates_; }  // The version of the parameters.
  int workers() const { return static_cast<int>(next_.size()); }
  bool has(int worker) const { return next_.contains(worker); }
  // The lowest clock of the workers that are there, and the worker that has it; empty without
  // workers. Others may wait for it.
  struct Slowest {
    int worker = 0;
    int64_t clock = 0;
  };
  std::optional<Slowest> slowest() const;
  // Why `worker` may not begin its step, as the end of a sentence: "it has not joined".
  std::string reason_to_wait(int worker) const;

  // Everything, so that another server can go on.
  Json to_json() const;
  static PushClock from_json(const Json& json);
  bool operator==(const PushClock&) const = default;

 private:
  bool completes_step();

  ConsistencyOptions options_;
  std::map<int, int64_t> next_;  // [worker]: its next step. Those that are there.
  std::map<int, int64_t> left_;  // [worker]: the next step of those that have left.
  int64_t step_ = 0;             // sync: the step whose pushes are gathered.
  std::set<int> gathered_;       // The workers that have pushed for it.
  int64_t updates_ = 0;
};

}  // namespace trireme::plan
