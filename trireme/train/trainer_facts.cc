#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/config/print.h>
#include <trireme/parallel/servers/tables/model_tables.h>
#include <trireme/train/refuse.h>
#include <trireme/train/trainer_facts.h>

namespace trireme {

std::map<std::string, std::string> facts_of(const TrainerOptions& options, const Job& job,
                                            const Source& train, const Source* test) {
  std::map<std::string, std::string> facts;
  for (const auto& [key, value] : options.config.items())
    facts[key] = value.is_string() ? value.get<std::string>() : value.dump();
  const config::Table& table = config::table_of<TrainerOptions>();
  for (auto& [key, value] : config::agreed_values(table, &options)) facts[key] = std::move(value);
  // The folder may have another path on every host, but all ranks must save together.
  facts["checkpoints are wanted"] = options.checkpoint.dir.empty() ? "no" : "yes";
  // Operators of another number of threads add in another order.
  if (options.virtual_shards > 0) facts["device.threads"] = std::to_string(options.threads);
  facts["job"] = job.name;
  facts["metrics"] = fmt::format("{}", fmt::join(names_of(job.metrics), ", "));
  if (job.tables) facts["embedding tables on servers"] = job.tables->describe();
  facts["training samples"] = std::to_string(train.size());
  facts["test samples"] = std::to_string(test ? test->size() : 0);
  return facts;
}

void check_evaluations(const TrainerOptions& options, const Job& job, const Source* test) {
  check(job.metrics);
  check_measure("early_stop.measure", options.early_stop.measure, names_of(job.metrics));
  check_measure("checkpoint.measure", options.checkpoint.measure, names_of(job.metrics));
  check_measure("evaluator.measure", options.evaluator.measure, names_of(job.metrics));
  if (options.early_stop.patience > 0 && (test == nullptr || test->size() == 0))
    refuse_option(fmt::format("early_stop.patience is {}, and there are no held-out samples",
                              options.early_stop.patience),
                  "data with held-out samples, or early_stop.patience=0");
}

}  // namespace trireme
