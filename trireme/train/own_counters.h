// Counters of schedules and numbers of the programme: a loop of one's own has them besides
// tensors, and must have them again after a resume.
#pragma once
#include <torch/optim/schedulers/lr_scheduler.h>
#include <trireme/base/json.h>
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace torch::optim {
class ReduceLROnPlateauScheduler;
}

namespace trireme {

// One thread uses it. What is added outlives it.
class OwnCounters {
 public:
  void add(torch::optim::LRScheduler& schedule) { schedules_.push_back(&schedule); }
  void add(torch::optim::ReduceLROnPlateauScheduler& schedule) { plateaus_.push_back(&schedule); }
  // Throws Error(invalid_argument) if there is a number of that name.
  void add(const std::string& name, double& number) { add_number(name, &number); }
  void add(const std::string& name, int64_t& number) { add_number(name, &number); }

  // Adds keys to an object.
  void show(Json& loop) const;
  // Throws Error(invalid_argument) if the keys are those of other counters.
  void check(const Json& loop) const;
  void take(const Json& loop) const;

 private:
  using Number = std::variant<double*, int64_t*>;
  void add_number(const std::string& name, Number number);

  std::vector<torch::optim::LRScheduler*> schedules_;
  std::vector<torch::optim::ReduceLROnPlateauScheduler*> plateaus_;
  std::map<std::string, Number> numbers_;
};

// Throws Error(invalid_argument) if the checkpoint has another number of them.
void require_as_many(const char* what, size_t in_checkpoint, size_t in_programme);

}  // namespace trireme
