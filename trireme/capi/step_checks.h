// Mistakes of one rank in a loop of another language, which every rank names: what own_steps.h
// finds in C++. The facts of a step travel before its gradients.
#pragma once
#include <trireme/comm/group.h>
#include <trireme/comm/own_loop.h>
#include <trireme/parallel/module_state.h>
#include <trireme/parallel/own_differences.h>
#include <trireme/parallel/step_facts.h>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme::capi {

class StepChecks {
 public:
  // `parameters` are views of the caller's memory, and outlive the object.
  StepChecks(std::shared_ptr<OwnLoop> loop, const std::vector<NamedTensor>& parameters);
  ~StepChecks();  // leave() compares the parameters of gradients that are gone too.
  StepChecks(const StepChecks&) = delete;
  void bind(std::shared_ptr<Group> group);
  void unbind();

  // The ranks compare their parameters in the first two steps, in each such number of steps, and
  // when they leave. 0: never.
  void check_every(int64_t steps);
  // Tells a value that all ranks must have in common; null: no longer.
  void set_fact(const std::string& name, const char* value);
  // This rank has reason to compare the parameters in the next step.
  void compare_now() { is_asked_ = true; }

  // Begins to send the facts of a step of so many samples of this rank.
  void send(int64_t samples);
  bool has_sent() const { return facts_on_way_ != nullptr; }
  // COLLECTIVE behind send(). The samples of all ranks. Throws ErrorOfAllRanks(invalid_argument)
  // naming rank and step if a rank has refused the step, or the ranks differ.
  int64_t samples_of_all();
  // Lets every rank throw Error(invalid_argument) in its next step, and this one now. The others
  // have not begun to send gradients of a step that this rank has not sent.
  [[noreturn]] void refuse(const std::string& what, const std::string& remedy);
  // COLLECTIVE, if some mean of the step is NaN or infinite. Returns the rank that had such a
  // gradient first; -1: none had one. Throws Error(internal) naming it unless the loop goes on.
  // `own` has this rank's gradients, by parameter.
  int look_for_nonfinite(const std::vector<std::optional<at::Tensor>>& own);
  void skip_nonfinite(bool skips) { skips_nonfinite_ = skips; }
  // `in_whole`: its means are there. Otherwise the step was given up.
  void end_step(bool in_whole);

 private:
  void count_from_newest_load();
  int64_t step() const { return steps_ + 1; }  // The one that the next finish() ends.
  OwnPlace place() const {
    return {.engine = number_,
            .steps = steps_,
            .remedy =
                "the same changes on all ranks (initialise, load, write, options of the "
                "optimizer), or a broadcast of rank 0's parameters afterwards"};
  }
  std::vector<OwnFact> facts() const;
  uint64_t digest_now();
  int64_t samples_without_mistakes();
  [[noreturn]] void throw_told(int rank);
  void write(const Contribution& mine);
  void tell_at_the_end();

  const std::shared_ptr<OwnLoop> loop_;
  const std::vector<NamedTensor>& parameters_;
  const int number_;  // Among those of the world.
  const std::shared_ptr<const std::function<void()>> before_leave_;
  std::shared_ptr<Group> group_;
  std::optional<StepFacts> form_;
  int64_t check_every_ = 64;
  bool skips_nonfinite_ = false;
  std::map<std::string, uint64_t> stated_;  // The hashes of values, by name.
  uint64_t names_of_stated_ = 0;
  int64_t steps_ = 0;                          // The finished ones.
  int64_t loads_ = -1;                         // OwnLoop::loads() when they were counted from.
  int64_t looks_ = 0;                          // The steps since this generation, or a load.
  bool is_asked_ = false, was_asked_ = false;  // For the next step, and for the one before.
  // The state of the step under way follows.
  Contribution mine_;
  at::Tensor values_;  // The facts of this rank, and then their sum.
  WorkPtr facts_on_way_;
  struct Refusal {
    std::string what, remedy;
  };
  Refusal refusal_;
};

}  // namespace trireme::capi
