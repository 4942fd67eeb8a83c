// `trireme plan`: prints what a run would do, for any world size, or a pipeline. It does not run
// it or load LibTorch, unless it has to measure the model, or to make one of a shared object: then
// `trireme-worker` plans.
#include <trireme/cli/commands.h>
#include <trireme/cli/pipeline_arguments.h>
#include <trireme/cli/plan_output.h>
#include <trireme/config/given.h>
#include <trireme/run/config.h>
#include <trireme/run/model_library.h>
#include <memory>

namespace trireme::cli {

void add_plan(Command app) {
  struct Arguments {
    PlanArguments of_run;
    PipelineArguments of_pipeline;
  };
  auto arguments = std::make_shared<Arguments>();
  Command command = app.subcommand(
      "plan", "Print the plans of a configuration for any world size, without running it");
  arguments->of_run.add_to(command);
  arguments->of_pipeline.add_to(command);
  for (const char* const option :
       {"config", "--set", "--workers", "--ps", "--nodes", "--batches", "--measure"})
    for (const char* const pipeline : {"--schedule", "--schedule-file"})
      command.excludes(option, pipeline);
  command.examples({"trireme plan examples/digits.yaml --workers 4",
                    "trireme plan examples/digits.yaml --set memory.policy=recompute --measure",
                    "trireme plan --schedule 1f1b --stages 4 --microbatches 8"});
  command.action([arguments] {
    const PlanArguments& of_run = arguments->of_run;
    if (arguments->of_pipeline.are_given()) return arguments->of_pipeline.show(of_run.json);
    const std::string library = config::text_of(of_run.source, table_of_config(), "model.library");
    if (!of_run.measure && library.empty()) return show_plan(of_run, {}, {});
    if (!library.empty()) use_model_library(library);  // Refuses what cannot be started.
    std::vector<std::string> words = of_run.words();
    words.insert(words.begin(), "plan");
    become("trireme-worker", library, std::move(words));
  });
}

}  // namespace trireme::cli
