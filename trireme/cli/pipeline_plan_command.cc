// `trireme plan --schedule ...`: prints and draws a pipeline, without a configuration.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/cli/output_file.h>
#include <trireme/cli/pipeline_arguments.h>
#include <trireme/plan/pipeline_picture.h>
#include <trireme/plan/pipeline_run.h>
#include <trireme/plan/pipeline_text.h>

namespace trireme::cli {
namespace {

[[noreturn]] void refuse_option(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "cli", what, remedy);
}

plan::PipelinePlan plan_of(const PipelineArguments& arguments) {
  const bool from_file = !arguments.schedule_file.empty();
  if (from_file == !arguments.schedule.empty())
    refuse_option(from_file ? "--schedule and --schedule-file are given together"
                            : "a pipeline needs --schedule or --schedule-file",
                  fmt::format("--schedule NAME with one of {}, or --schedule-file FILE with a "
                              "schedule of your own",
                              fmt::join(plan::pipeline_schedules(), ", ")));
  if (from_file || plan::is_schedule_text(arguments.schedule)) {
    const std::string option = from_file ? "--schedule-file" : "a --schedule as text";
    if (arguments.stages || arguments.microbatches || arguments.chunks)
      refuse_option(option + " says how many stages, micro-batches and chunks there are",
                    "leave out --stages, --microbatches and --chunks");
    return plan::parse_pipeline(from_file ? read_file(arguments.schedule_file)
                                          : arguments.schedule);
  }
  if (!arguments.stages || !arguments.microbatches)
    refuse_option(fmt::format("--schedule {} without {}", arguments.schedule,
                              arguments.stages ? "--microbatches" : "--stages"),
                  "for example --stages 4 --microbatches 8");
  if (arguments.chunks && *arguments.chunks < 1)
    refuse_option(fmt::format("--chunks is {}", *arguments.chunks), "at least 1");
  const plan::PipelinePlan made =
      plan::plan_pipeline({arguments.schedule, *arguments.stages, *arguments.microbatches,
                           arguments.chunks.value_or(0)});
  check(made);
  return made;
}

}  // namespace

void PipelineArguments::add_to(Command command) {
  command.option(
      "--schedule", schedule,
      fmt::format("Plan a pipeline instead of a configuration: {}, or an order as text, "
                  "such as '0F0 0F1 0B0 0B1; 1F0 1B0 1F1 1B1'",
                  fmt::join(plan::pipeline_schedules(), ", ")));
  command.option("--stages", stages, "Stages of the pipeline");
  command.option("--microbatches", microbatches, "Micro-batches of a step");
  command.option("--chunks", chunks,
                 "Parts of the model on each stage, for interleaved (default: 2)");
  command.option("--schedule-file", schedule_file,
                 "A schedule of your own: a line for each stage, such as 0F0 0F1 0B0 0B1");
  command.option("--buffers", buffers,
                 "Messages that can wait between two stages, in each direction, before a send "
                 "waits too (default: any number); a plan that would then never end is refused");
  command.option("--costs", costs,
                 "Times of F, B, I and W, for all parts or one for each: 'F=1,1,2,1 B=2 "
                 "transfer=0.1'; also bytes=, held= and the word recompute (docs/pipeline.md)");
  command.option("--svg", svg, "Also draw the pipeline into this file");
}

bool PipelineArguments::are_given() const {
  return !schedule.empty() || !schedule_file.empty() || stages || microbatches || chunks ||
         buffers || !costs.empty() || !svg.empty();
}

int PipelineArguments::show(bool json) const {
  require_place_of("--svg", svg);
  if (buffers && *buffers < 0)
    refuse_option(fmt::format("--buffers is {}", *buffers), "0 or more");
  const plan::PipelinePlan made = plan_of(*this);
  check(made, buffers);
  const plan::PipelineCosts given =
      costs.empty() ? plan::PipelineCosts() : plan::parse_pipeline_costs(costs);
  if (!svg.empty()) write_file_atomically(svg, plan::draw_svg(made, given));
  if (!json) {
    fmt::print("{}", plan::describe(made, given));
    return kExitOk;
  }
  Json out = made.to_json();
  out["buffers"] = plan::buffers_needed(made);
  out["times"] = plan::simulate(made, given).to_json();
  const auto formula = plan::bubble_by_formula(made.facts, given);
  out["bubble_by_formula"] = formula ? Json(*formula) : Json();
  fmt::print("{}\n", out.dump(2));
  return kExitOk;
}

}  // namespace trireme::cli
