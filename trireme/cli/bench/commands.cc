#include <trireme/cli/bench/ranks.h>
#include <trireme/cli/bench_arguments.h>

namespace trireme::cli {

void add_bench_ranks(Command app) {
  auto arguments = std::make_shared<RankArguments>();
  const auto add_common = [&](Command command) {
    command.option("--workers", arguments->workers);
    command.option("--path", arguments->path);
    command.option("--steps", arguments->steps);
    command.flag("--json", arguments->json);
  };
  const auto add_step = [&](const std::string& name, const std::string& description,
                            int (*run)(const RankArguments&)) {
    Command step = app.subcommand(name, description);
    step.option("--model", arguments->model);
    step.option("--library", arguments->library);
    step.option("--batch", arguments->batch);
    step.option("--compression", arguments->compression);
    step.option("--compression-rank", arguments->compression_rank);
    step.flag("--written", arguments->written);
    step.option("--check-every", arguments->check_every);
    arguments->mesh.add_to(step, /*described=*/false);
    add_common(step);
    step.action([arguments, run] { return run(*arguments); });
  };
  add_step("step", "Training steps of a model", bench_step);
  add_step("first-step", "One training step, and the time of day when it is done",
           bench_first_step);
  auto of_input = std::make_shared<InputArguments>();
  Command input = app.subcommand("input", "The data of a configuration");
  input.option("config", of_input->source.file);
  input.repeated("--set", of_input->source.set);
  input.option("--seconds", of_input->seconds);
  input.flag("--json", of_input->json);
  input.action([of_input] { return bench_input(*of_input); });
  Command servers = app.subcommand("ps", "Pushes and pulls of a parameter server");
  servers.option("--bytes", arguments->bytes);
  servers.option("--table", arguments->table);
  servers.option("--rows", arguments->rows);
  add_common(servers);
  servers.action([arguments] {
    return arguments->table.empty() ? bench_parameter_server(*arguments)
                                    : bench_tables(*arguments);
  });
  Command collectives = app.subcommand("collectives", "One collective operation");
  collectives.option("--op", arguments->op);
  collectives.option("--bytes", arguments->bytes);
  collectives.option("--algorithm", arguments->algorithm);
  collectives.flag("--tune", arguments->tune);
  collectives.flag("--shared-tensors", arguments->shared_tensors);
  collectives.option("--output", arguments->output);
  add_common(collectives);
  collectives.action([arguments] {
    return arguments->tune ? tune_collectives(*arguments) : bench_collectives(*arguments);
  });
}

}  // namespace trireme::cli
