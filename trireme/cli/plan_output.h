// The arguments and the output of `trireme plan` for a configuration. The same code runs in a
// programme without torch, and in one that can measure the model.
#pragma once
#include <trireme/cli/command_line.h>
#include <trireme/data/pipeline/stage.h>
#include <trireme/plan/engine_plan.h>
#include <trireme/plan/memory_plan.h>
#include <trireme/plan/partition.h>
#include <trireme/plan/pipeline_decisions.h>
#include <trireme/run/config.h>
#include <trireme/run/engine_plan.h>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trireme::cli {

struct PlanArguments {
  ConfigSource source;
  int workers = 1;
  std::optional<int> ps;
  Launchers launchers;
  int64_t batches = 0;
  bool measure = false, json = false;

  void add_to(Command command);
  std::vector<std::string> words() const;  // The same arguments for another process.
};

// The plans that need measured blocks; see MeasuredModel.
struct PlanMeasures {
  std::function<std::vector<plan::BlockCost>()> costs;
  std::function<plan::PipelineMemory(const plan::EnginePlan&)> memory_of_stages;
  std::function<plan::MemoryPlan()> memory_of_replica;
};
using MeasureModel = std::function<PlanMeasures(const Config&, const ResolvedStrategy&)>;

// Throws if one of the stages calls a function that is not registered.
using FindFunctions = std::function<void(const data::Stages&)>;

// Plans, checks and prints. `measure` is empty if nothing is to be measured, and `find_functions`
// in a process that cannot open model.library.
int show_plan(const PlanArguments& arguments, const MeasureModel& measure,
              const FindFunctions& find_functions);

}  // namespace trireme::cli
