// The configuration of a training run: typed keys with defaults, read from YAML and --set. No
// torch.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/base/json.h>
#include <trireme/models/shapes.h>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trireme::cli {

struct Config {
  models::ModelOptions model;
  struct {
    std::string name = "digits";  // digits, idx, text
    // One file or folder. For digits, empty means the data set that ships with Trireme.
    std::string path;
    std::string images, labels, test_images, test_labels;  // idx
    std::string tokens = "characters";                     // text: characters, bytes
    int64_t block = 128;            // text: the number of tokens in a sample.
    int64_t classes = -1;           // -1: taken from the data.
    int64_t split_seed = 20260101;  // The seed of the held-out part; independent of train.seed.
    double test_fraction = 0.2;     // Used if the data has no test part of its own.
    int64_t batch = 64;             // The global batch.
    bool shuffle = true;
    bool drop_last = false;
    int threads = 1;
    int prefetch = 2;
  } data;
  struct {
    std::string name = "sgd";  // sgd, adam, adamw, rmsprop, adagrad
    double lr = 0.01, momentum = 0, weight_decay = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8,
           alpha = 0.99;
    double trust = 1e-3;  // lars
    bool nesterov = false;
    std::string scale_lr = "none";  // none, linear, sqrt
    int64_t base_batch = 0;         // The global batch for which lr was found.
  } optimizer;
  struct {
    std::string name = "constant";    // constant, step, cosine
    double gamma = 0.1, minimum = 0;  // step: factor; cosine: final fraction of lr.
    int64_t every = 0;                // step: epochs between decays.
    int64_t warmup_steps = 0;
  } schedule;
  struct {
    std::string name = "auto";  // auto, one_device, mirrored, multi_worker
    int replicas = -1;  // In each worker. -1: 1, or for mirrored the host's cores (at most 8).
    std::string all_reduce = "auto";  // auto, or an algorithm of docs/collectives.md
    bool share_parameters = true;
    bool sync_batch_norm = false;
    std::string compression = "none";  // none, bf16, fp16, int8, topk, powersgd
    int compression_rank = 2;          // powersgd
    double compression_ratio = 0.01;   // topk
    int64_t local_steps = 1, local_after = 0;
    bool local_momentum = false;
    int64_t bucket_bytes = 5 << 20, first_bucket_bytes = 1 << 20;
  } strategy;
  struct {
    int64_t epochs = -1, steps = -1;  // At most one of them is given; the default is 10 epochs.
    int64_t seed = 1;
    std::string dtype = "float32";      // float32, float64, bfloat16, float16
    std::string precision = "float32";  // float32, bf16, fp16
    double loss_scale = 65536;          // fp16: the first loss scale.
    double ema_decay = 0;               // 0: no average.
    int accumulate = 1;                 // Micro-batches in a step, on every replica.
    double clip_norm = 0;               // 0: no clipping.
    int64_t evaluate_every = 1;         // In epochs. 0: only at the end.
  } train;
  struct {
    std::string policy = "stop";  // stop, skip, rollback
    double spike = 0;             // 0: off.
    int64_t window = 32;
    int64_t check_replicas_every = 0;  // In steps. 0: never.
  } guard;
  struct {
    std::string faults = "none", expect = "none";  // docs/faults.md
  } inject;
  struct {
    int virtual_shards = 0;  // 0: off.
  } reproducible;
  struct {
    std::string batch = "keep";  // keep, scale
    std::string lr = "none";     // none, linear, sqrt
    int64_t warmup_steps = 0;
    // The number for which data.batch and optimizer.lr were chosen. 0: the number at the start.
    int workers = 0;
  } elastic;
  struct {
    std::string name = "cpu";
    // In each replica. 0: cores / replicas of the host, at least 1; with virtual shards 1.
    int threads = 0;
  } device;
  struct {
    std::string backend = "auto";  // auto, threads, shm, tcp, gloo, mpi
    // Name or address to bind. Empty: loopback, or the route to the rendezvous.
    std::string interface = "";
    std::string table;  // A file with choices of collective algorithms. Empty: the defaults.
    Milliseconds timeout{60000}, heartbeat_interval{200}, heartbeat_timeout{0},
        stall_timeout{10000}, launcher_grace{60000};
    double straggler_factor = 1.5;  // 0: no worker is named.
  } comm;
  struct {
    Milliseconds stop_grace{30000}, loss_grace{5000};
  } launch;
  struct {
    std::string dir;    // Empty: run.dir/checkpoint.
    std::string every;  // "100" or "100 steps", "2 epochs"; "" or "never": only at the end.
    int keep = 2;
    int64_t keep_every = 0;  // In steps. 0: no checkpoint stays for ever.
    int keep_best = 0;
    bool background = true;
    std::string writers = "hosts";
  } checkpoint;
  struct {
    std::string dir = "";  // Empty: runs/<data>-<date>-<time>, a new folder for each run.
  } run;
  struct {
    bool progress = true, json_lines = true, tensorboard = true;
  } monitor;
  struct {
    double per_cpu_hour = 0.04, per_device_hour = 0;
  } cost;
};

struct ConfigSource {
  std::filesystem::path file;    // It may be empty; then only defaults hold.
  std::vector<std::string> set;  // "key=value", in order; applied after the file.
  // Other options of the command line that set a key: their names, and "key=value". They are
  // applied last.
  std::vector<std::pair<std::string, std::string>> options;
};

// Reads and checks a configuration. Throws Error(invalid_argument | not_found) naming file and
// line (or the option), key, value, rule and, for an unknown key, the nearest known one. Relative
// data paths in a file are relative to the working directory.
Config load_config(const ConfigSource& source);
// All keys with their values, in order. Used for the digest that ranks compare, for checkpoints
// and for `doctor`.
std::vector<std::pair<std::string, std::string>> flatten(const Config& config);
Json to_json(const Config& config);
// The keys that differ from their defaults, in the form that --set takes. load_config() makes the
// same Config of these alone, even if the file has changed or is gone.
std::vector<std::string> to_settings(const Config& config);
// A Markdown table of all keys with type, default and meaning, for `trireme train --keys` and
// docs/configuration.md.
std::string describe_keys();

// The interval between saves, in steps or in epochs. If both are 0, only the end is saved.
struct CheckpointEvery {
  int64_t steps = 0, epochs = 0;
};
// Reads checkpoint.every: "100", "100 steps", "2 epochs", "epoch", "" or "never". Throws
// Error(invalid_argument) naming the text.
CheckpointEvery parse_every(const std::string& text);

// The strategy with `auto` replaced by what it means for this number of workers.
struct ResolvedStrategy {
  std::string name;  // one_device, mirrored, multi_worker
  int workers = 1, replicas_per_worker = 1, world_size = 1;
};
// Throws Error(invalid_argument) if `workers`, the value of --workers, is below 1.
void require_workers(int workers);
// Resolves the strategy for `workers`. Throws Error(invalid_argument) with a remedy if strategy,
// replicas, backend or global batch do not fit that number. `cores` is the number that mirrored
// may fill; 0: the cores that this process may run on. Every worker gets the same answer if
// strategy.replicas is given, or if the strategy is not mirrored.
ResolvedStrategy check_with_workers(const Config& config, int workers, int cores = 0);

// The files of data.name: idx. A file that the configuration does not name is looked for in the
// folder data.path by its usual name: train-images-idx3-ubyte, train-labels-idx1-ubyte,
// t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte; each also with .gz.
struct IdxFiles {
  std::filesystem::path images, labels;
  std::filesystem::path test_images, test_labels;  // Both empty if there is no test part.
};
// Throws Error(not_found) naming the folder and the file names if a named file or the training
// part does not exist.
IdxFiles find_idx_files(const Config& config);

}  // namespace trireme::cli
