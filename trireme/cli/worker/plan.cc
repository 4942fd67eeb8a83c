#include <trireme/cli/plan_output.h>
#include <trireme/cli/worker/commands.h>
#include <trireme/data/pipeline/functions.h>
#include <trireme/run/measured_model.h>
#include <memory>

namespace trireme::cli {
namespace {

PlanMeasures measures_of(const Config& config, const ResolvedStrategy& strategy) {
  const auto model = std::make_shared<MeasuredModel>(config, strategy);
  return {
      [model] { return model->costs(); },
      [model](const plan::EnginePlan& plan) { return model->memory_of_stages(plan); },
      [model] { return model->memory_of_replica(); },
  };
}

}  // namespace

void add_worker_plan(Command app) {
  auto arguments = std::make_shared<PlanArguments>();
  Command command = app.subcommand("plan", "Print the plans of a configuration that it measures");
  arguments->add_to(command);
  command.action([arguments] {
    return show_plan(*arguments, arguments->measure ? measures_of : MeasureModel(),
                     [](const data::Stages& stages) { data::versions_of_functions(stages); });
  });
}

}  // namespace trireme::cli
