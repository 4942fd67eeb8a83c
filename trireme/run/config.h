// The configuration of a training run: the options of all parts, read from YAML and --set. No
// torch. docs/configuration.md lists the keys.
#pragma once
#include <trireme/base/json.h>
#include <trireme/comm/world_options.h>
#include <trireme/config/given.h>
#include <trireme/config/rows.h>
#include <trireme/config/table.h>
#include <trireme/data/data_options.h>
#include <trireme/launch/patience.h>
#include <trireme/models/shapes.h>
#include <trireme/parallel/optimizer_options.h>
#include <trireme/parallel/servers/tables/table_settings.h>
#include <trireme/run/own_options.h>
#include <trireme/train/own_names.h>
#include <trireme/train/trainer_options.h>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

// The records that a run writes besides checkpoints, and their folder.
struct RecordOptions {
  std::string dir;  // Empty: runs/<data>-<date>-<time>, a new folder for each run.
  bool progress = true, json_lines = true, tensorboard = true;
};
config::Rows rows_of(const RecordOptions*);

// The file from which the model starts, instead of random values (parallel/load_weights.h).
struct WeightsSource {
  std::string file;      // Empty: random values.
  std::string optional;  // A regular expression for tensors that the file may lack.
};
config::Rows rows_of(const WeightsSource*);

struct Config {
  models::ModelOptions model;
  data::DataOptions data;
  OptimizerOptions optimizer;
  TableSettings tables;
  // These differ from the defaults of a Trainer that a programme makes: `auto`, and a price.
  TrainerOptions trainer{
      .replicas = -1, .epochs = -1, .threads = 0, .cost = {.per_cpu_hour = 0.04}};
  WeightsSource weights;
  // A shared object that registers models, data sets, losses and metrics (trireme/register.h).
  std::string library;
  // The registered metrics that evaluations compute, with commas between them; none: no others.
  std::string metrics = "none";
  std::string loss = kDefaultLoss;  // cross_entropy, mse, or one that was registered.
  WorldOptions world;
  launch::Patience patience;
  RecordOptions record;
  std::string expect = "none";  // What must hold at the end of a run with faults (docs/faults.md).
  OwnOptions own;               // Those of a programme that has called register_options().
};
config::Rows rows_of(const Config*);

using ConfigSource = config::Source;

// Reads and checks a configuration. Throws Error(invalid_argument | not_found) naming file and
// line (or the option), key, value, rule and, for an unknown key, the nearest known one. Relative
// data paths in a file are relative to the working directory.
Config load_config(const ConfigSource& source);
// The same for programmes of one's own: they may read the files that `trireme train` reads. A name
// of a strategy or compressor may be one that the programme has registered before. `set` has
// entries "key=value", which take precedence over the file.
Config load_options(const std::filesystem::path& file, const std::vector<std::string>& set = {});

// The table of all keys, for checks, documents and JSON (config/print.h).
const config::Table& table_of_config();
// All keys with their values, in order.
std::vector<std::pair<std::string, std::string>> flatten(const Config& config);
Json to_json(const Config& config);
// The keys that differ from their defaults, in the form that --set takes. load_config() makes the
// same Config of these alone, even if the file has changed or is gone.
std::vector<std::string> to_settings(const Config& config);
// The keys that change what is computed, with their values. They must be equal on all ranks.
// Checkpoints keep them.
Json keys_to_agree(const Config& config);

// Throws Error(invalid_argument) naming keys, values, rule and remedy if a value breaks its key's
// rule, or if two parts do not fit each other. load_config() has called it, and training_of()
// calls it again, because a programme may have changed the options in between.
void check(const Config& config);
// Resolves the strategy for `workers` (train/trainer_options.h). Throws Error(invalid_argument)
// with a remedy if strategy, replicas, backend or global batch do not fit that number.
ResolvedStrategy check_with_workers(const Config& config, int workers, int cores = 0);

}  // namespace trireme
