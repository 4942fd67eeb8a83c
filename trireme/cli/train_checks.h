// The arguments of `trireme train`, and whether they fit the launcher that started this process,
// the configuration and each other. Each function throws Error(invalid_argument | unsupported).
#pragma once
#include <trireme/cli/config_keys.h>
#include <trireme/cli/node_options.h>
#include <trireme/membership/identity.h>
#include <trireme/run/config.h>
#include <optional>
#include <string>

namespace trireme::cli {

struct TrainArguments {
  ConfigSource source;
  std::optional<int> workers, ps;
  std::string elastic;
  std::string report, inject, expect;
  bool chief = false, evaluator = false;
  bool quiet = false, fresh = false, json = false, keys = false;
  NodeOptions node;
};

// Refuses --ps beside another number in --set. A number in the file is what --ps replaces.
void check_number_of_servers(const TrainArguments& arguments);
// The environment may name the servers of the job (TF_CONFIG, DMLC).
void take_servers_of_cluster(TrainArguments& arguments, const membership::Identity& identity);
// Throws if the arguments do not fit the launcher that started this process, or each other.
void check_launch(const TrainArguments& arguments, const Config& config,
                  const membership::Identity& identity,
                  const std::optional<membership::Elastic>& elastic);
// The evaluator of a job that something else starts is a task like the others.
void check_evaluator(const TrainArguments& arguments, const Config& config, bool launched);
void check_units(const Config& config, const membership::Elastic& elastic, int workers);
void check_carrier(const Config& config, const ResolvedStrategy& strategy, bool launched);

}  // namespace trireme::cli
