// The rules between the parts of a configuration. Those inside one part stand beside its rows.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/files.h>
#include <trireme/checkpoint/name_rules.h>
#include <trireme/config/value.h>
#include <trireme/data/data_kinds.h>
#include <trireme/data/kinds/record_set.h>
#include <trireme/models/family.h>
#include <trireme/parallel/servers/tables/row_table.h>
#include <trireme/plan/collective_table.h>
#include <trireme/plan/mesh_plan.h>
#include <trireme/plan/strategy.h>
#include <trireme/run/config.h>
#include <trireme/run/places.h>
#include <trireme/train/expectations.h>
#include <trireme/train/measure.h>
#include <algorithm>

namespace trireme {
namespace {

[[noreturn]] void refuse_config(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "config", what, remedy);
}

void check_tokens(const Config& config) {
  if (!data::find_kind(config.data.name)->has_tokens) return;
  const models::Family* family = models::family_of(config.model);
  if (family && !family->takes_tokens)
    refuse_config(fmt::format("data.name is {}, but model.name is {}, which takes no tokens",
                              config.data.name, config.model.name),
                  "model.name=gpt");
  const bool has_blocks = config.data.name != "tokens" || data::block_of(config.data) > 0;
  if (has_blocks && config.model.context > 0 && config.model.context < config.data.block)
    refuse_config(
        fmt::format("model.context is {} and data.block is {}: a sample must fit the context",
                    config.model.context, config.data.block),
        fmt::format("data.block={}", config.model.context));
}

void check_measures(const Config& config) {
  const std::vector<std::string> known = metric_names();
  const std::vector<std::string> wanted = split_names(config.metrics);
  for (const std::string& name : wanted)
    if (std::ranges::find(known, name) == known.end())
      refuse_config(fmt::format("train.metrics has \"{}\", and no metric of this name is "
                                "registered",
                                name),
                    known.empty() ? "a programme or model.library that registers it"
                                  : fmt::format("{}", fmt::join(known, ", ")));
  check_measure("early_stop.measure", config.trainer.early_stop.measure, wanted);
  check_measure("checkpoint.measure", config.trainer.checkpoint.measure, wanted);
  check_measure("evaluator.measure", config.trainer.evaluator.measure, wanted);
}

void check_norms_of_shards(const Config& config) {
  const models::Family* family = models::family_of(config.model);
  if (config.trainer.virtual_shards == 0 || !family) return;
  if (!family->has_batch_norm(models::resolve(config.model))) return;
  refuse_config(
      fmt::format("reproducible.virtual_shards is {} and model.name is {}, whose batch norms keep "
                  "running statistics: the result would depend on the number of replicas",
                  config.trainer.virtual_shards, config.model.name),
      fmt::format("{}, or reproducible.virtual_shards=0", family->without_batch_norm));
}

void check_tensor_axis(const Config& config) {
  const int ranks = config.trainer.division.mesh.tensor;
  const models::Family* family = models::family_of(config.model);
  if (ranks <= 1) return;
  if (family && !family->divides)
    refuse_config(fmt::format("mesh.tensor is {} and model.name is {}, of which no layer can be "
                              "divided along a tensor axis",
                              ranks, config.model.name),
                  "mesh.tensor=1, or model.name=gpt or mlp");
  if (family && family->has_key("model.heads"))
    if (const int64_t heads = models::resolve(config.model).heads; heads % ranks != 0)
      refuse_config(fmt::format("mesh.tensor is {} and model.heads is {}: each rank takes whole "
                                "heads, and as many as the others",
                                ranks, heads),
                    "a mesh.tensor that divides model.heads");
  if (config.optimizer.name == "lars" || config.optimizer.name == "lamb")
    refuse_config(fmt::format("mesh.tensor is {} and optimizer.name is {}, whose step needs the "
                              "norms of whole layers",
                              ranks, config.optimizer.name),
                  "mesh.tensor=1, or optimizer.name=sgd, adam, adamw, rmsprop or adagrad");
}

void check_optimizer_on_device(const Config& config) {
  if (config.trainer.device == "cpu" || !is_layerwise(config.optimizer)) return;
  refuse_config(
      fmt::format("device.name is {} and optimizer.name is {}, which has kernels for the "
                  "CPU only",
                  config.trainer.device, config.optimizer.name),
      "device.name=cpu, or optimizer.name=sgd, adam, adamw, rmsprop or adagrad");
}

// Servers have parts of layers.
void check_optimizer_of_servers(const Config& config) {
  if (config.trainer.ps.servers == 0 || !is_layerwise(config.optimizer)) return;
  refuse_config(fmt::format("the job has parameter servers and optimizer.name is {}, whose step "
                            "needs the norms of whole layers",
                            config.optimizer.name),
                "optimizer.name=sgd, adam, adamw, rmsprop or adagrad");
}

void check_tables(const Config& config) {
  check(config.tables, config.optimizer);
  if (!config.tables.on_servers) return;
  const models::Family* family = models::family_of(config.model);
  if (!family || !family->tables)
    refuse_config(fmt::format("ps.tables is true, and model.name is {}, which has no embedding "
                              "tables that servers could have",
                              config.model.name),
                  "model.name=dlrm, or ps.tables=false");
  const TableOptions options = table_options_of(config.tables, config.optimizer);
  if (config.trainer.ps.replication > 1 && !grows_without_limits(options))
    refuse_config(fmt::format("ps.replication is {}, and tables have limits (tables.admit_after, "
                              "evict_unused or budget), which only the first server of a row "
                              "follows",
                              config.trainer.ps.replication),
                  "ps.replication=1, or no limits of tables");
}

void check_faults(const Config& config) {
  const auto& faults = config.trainer.inject.faults;
  const bool drops = std::any_of(faults.begin(), faults.end(), [](const Fault& fault) {
    return fault.kind == FaultKind::drop ||
           std::find(fault.kinds.begin(), fault.kinds.end(), FaultKind::drop) != fault.kinds.end();
  });
  if (drops && config.world.backend != "tcp")
    refuse_config(
        fmt::format(
            "inject.faults drops a link, but comm.backend is {}: only tcp has links of its own",
            config.world.backend),
        "comm.backend=tcp");
}

void check_expectations(const Config& config) {
  std::vector<Expectation> expected;
  try {
    expected = parse_expectations(config.expect);
  } catch (const Error& error) {
    const ErrorParts parts = parts_of(error);
    throw Error(error.code(), "config", "inject.expect: " + parts.what, parts.remedy);
  }
  const bool same_loss =
      std::find(expected.begin(), expected.end(), Expectation::same_loss) != expected.end();
  if (same_loss && config.trainer.resize.batch != "keep")
    refuse_config(
        fmt::format(
            "elastic.batch is {} and same-loss is expected: losses depend on the workers then",
            config.trainer.resize.batch),
        "elastic.batch=keep, or --expect exactly-once");
}

void check_table(const Config& config) {
  if (config.world.table.empty()) return;
  try {
    plan::CollectiveTable::parse(read_file(config.world.table), config.world.table);
  } catch (const Error& error) {
    refuse_config(fmt::format("comm.table is {}, which is not a table of collectives: {}",
                              config.world.table, brief(error)),
                  "a file that trireme bench collectives --tune --output FILE wrote");
  }
}

void check_backend(const std::string& backend, const ResolvedStrategy& strategy) {
  if (backend == "threads" && strategy.workers > 1)
    refuse_config(fmt::format("comm.backend is threads, which connects the replicas of one "
                              "process, but there are {} workers",
                              strategy.workers),
                  "comm.backend=auto, shm, tcp or gloo");
  if (backend != "auto" && backend != "threads" && plan::is_in_threads(strategy.name))
    refuse_config(
        fmt::format("comm.backend is {}, which connects processes, but strategy {} is one process",
                    backend, strategy.name),
        "comm.backend=threads or auto, or strategy.name=multi_worker with --workers 2");
}

}  // namespace

void check_weights(const Config& config) {
  const auto& [file, optional] = config.weights;
  if (file.empty() && !optional.empty())
    refuse_config(
        fmt::format("model.weights_optional is \"{}\", but model.weights names no file", optional),
        "model.weights=FILE, or no model.weights_optional");
  if (!file.empty() && !path_exists(file) && !may_lack_weights(config))
    refuse_config(fmt::format("model.weights is \"{}\", and there is no such file", file),
                  "a path relative to the working directory");
  if (!optional.empty()) checkpoint::matches_any({optional}, "");  // Refuses what it cannot read.
}

void check(const Config& config) {
  config::check_values(table_of_config(), &config);
  models::resolve(config.model);
  check(config.data);
  check_tokens(config);
  check(config.optimizer);
  check(config.trainer);
  check(config.world);
  check_measures(config);
  check_weights(config);
  check_norms_of_shards(config);
  check_tensor_axis(config);
  check_optimizer_of_servers(config);
  check_optimizer_on_device(config);
  check_tables(config);
  check_faults(config);
  check_expectations(config);
  check_table(config);
}

ResolvedStrategy check_with_workers(const Config& config, int workers, int cores) {
  const ResolvedStrategy resolved = resolve_strategy(config.trainer, workers, cores);
  check_backend(config.world.backend, resolved);
  return resolved;
}

}  // namespace trireme
