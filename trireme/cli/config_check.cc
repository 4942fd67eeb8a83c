#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/cli/config_check.h>
#include <trireme/cli/config_value.h>
#include <trireme/faults/faults.h>
#include <trireme/plan/collective_table.h>
#include <trireme/train/expectations.h>
#include <trireme/train/resize.h>
#include <algorithm>

namespace trireme::cli {
namespace {

bool applies(const Config& config, const Key& key) {
  if (key.only_for.selector.empty()) return true;
  const std::string chosen = value_as_text(config, *find_key(key.only_for.selector));
  return std::find(key.only_for.values.begin(), key.only_for.values.end(), chosen) !=
         key.only_for.values.end();
}

bool given_by_file(const GivenKeys& given, std::string_view key) {
  const auto found = given.find(key);
  return found != given.end() && !found->second.by_set;
}
bool given_by_set(const GivenKeys& given, std::string_view key) {
  const auto found = given.find(key);
  return found != given.end() && found->second.by_set;
}

class Checker {
 public:
  Checker(const Config& config, const GivenKeys& given) : config_(config), given_(given) {}

  void keys_fit_their_selector() const {
    for (const Key& key : all_keys()) {
      if (given_.find(key.name) == given_.end() || applies(config_, key)) continue;
      refuse(key.name,
             fmt::format("{} is for {} {}, but {} is {}", key.name, key.only_for.selector,
                         fmt::join(key.only_for.values, ", "), key.only_for.selector,
                         value_as_text(config_, *find_key(key.only_for.selector))),
             fmt::format("leave {} out, or {}={}", key.name, key.only_for.selector,
                         key.only_for.values.front()));
    }
  }

  void model() const { models::resolve(config_.model); }

  void data() const {
    const auto& data = config_.data;
    if (data.name == "text") return text();
    if (data.name != "idx") return;
    if (data.path.empty() && (data.images.empty() || data.labels.empty())) {
      refuse(
          "data.name",
          "data.name is idx, but data.images and data.labels do not name the two training files",
          "data.images=FILE and data.labels=FILE, or data.path=FOLDER that holds both");
    }
    if (data.path.empty() && data.test_images.empty() != data.test_labels.empty()) {
      refuse(data.test_images.empty() ? "data.test_labels" : "data.test_images",
             "one of data.test_images and data.test_labels is given without the other",
             "give both, or none");
    }
  }

  void text() const {
    if (config_.data.path.empty()) {
      refuse("data.name", "data.name is text, but data.path does not name its file",
             "data.path=FILE");
    }
    if (models::family_of(config_.model) != models::Family::gpt) {
      refuse("data.name",
             fmt::format("data.name is text, but model.name is {}, which takes no tokens",
                         config_.model.name),
             "model.name=gpt");
    }
    if (config_.model.context > 0 && config_.model.context < config_.data.block) {
      refuse("model.context",
             fmt::format("model.context is {} and data.block is {}: a sample must fit the context",
                         config_.model.context, config_.data.block),
             fmt::format("data.block={}", config_.model.context));
    }
  }

  void optimizer() const {
    if (config_.optimizer.nesterov && config_.optimizer.momentum == 0) {
      refuse("optimizer.nesterov",
             "optimizer.nesterov is true, but optimizer.momentum is 0: it needs momentum",
             "optimizer.momentum=0.9");
    }
  }

  void scaled_rate() const {
    if (config_.optimizer.scale_lr != "none" && config_.optimizer.base_batch < 1) {
      refuse("optimizer.scale_lr",
             fmt::format("optimizer.scale_lr is {}, but optimizer.base_batch does not say for "
                         "which batch optimizer.lr was found",
                         config_.optimizer.scale_lr),
             "optimizer.base_batch=256");
    }
  }

  void precision() const {
    const auto& train = config_.train;
    if (train.precision != "float32" && train.dtype != "float32") {
      refuse(
          "train.precision",
          fmt::format(
              "train.precision is {} and train.dtype is {}: autocast needs parameters of float32",
              train.precision, train.dtype),
          "train.dtype=float32, or leave train.precision out");
    }
    if (given_.contains("train.loss_scale") && train.precision != "fp16" &&
        train.dtype != "float16") {
      refuse("train.loss_scale",
             "train.loss_scale is for train.precision fp16 or train.dtype float16",
             "leave train.loss_scale out");
    }
  }

  void local_steps() const {
    const auto& strategy = config_.strategy;
    if (strategy.local_steps == 1) {
      for (const std::string_view key : {"strategy.local_after", "strategy.local_momentum"}) {
        if (given_.contains(key))
          refuse(key, fmt::format("{} is given, but strategy.local_steps is 1", key),
                 "strategy.local_steps=8");
      }
    } else if (strategy.compression != "none") {
      refuse("strategy.local_steps",
             fmt::format("strategy.local_steps is {} and strategy.compression is {}: local steps "
                         "send no gradients that could be compressed",
                         strategy.local_steps, strategy.compression),
             "one of them");
    }
  }

  void guard() const {
    const auto& guard = config_.guard;
    if (guard.spike != 0 && guard.spike <= 1) {
      refuse(
          "guard.spike",
          fmt::format("guard.spike is {}, but a spike is above the median: 0 (off) or more than 1",
                      guard.spike),
          "guard.spike=10");
    }
    if (config_.strategy.local_steps == 1) return;
    for (const auto& [key, is_on] :
         {std::pair<std::string_view, bool>{"guard.spike", guard.spike != 0},
          {"guard.check_replicas_every", guard.check_replicas_every != 0}}) {
      if (is_on)
        refuse(key,
               fmt::format("{} is given, but strategy.local_steps is {}: replicas differ then",
                           key, config_.strategy.local_steps),
               "strategy.local_steps=1");
    }
  }

  void inject() const {
    const auto pass_on = [this](std::string_view key, auto parse) {
      try {
        parse();
      } catch (const Error& error) {
        throw located(key, error);
      }
    };
    pass_on("inject.faults", [this] { parse_faults(config_.inject.faults); });
    const std::vector<Fault> faults = parse_faults(config_.inject.faults);
    const bool drops = std::any_of(faults.begin(), faults.end(), [](const Fault& fault) {
      return fault.kind == FaultKind::drop || std::find(fault.kinds.begin(), fault.kinds.end(),
                                                        FaultKind::drop) != fault.kinds.end();
    });
    if (drops && config_.comm.backend != "tcp") {
      refuse(
          "inject.faults",
          fmt::format(
              "inject.faults drops a link, but comm.backend is {}: only tcp has links of its own",
              config_.comm.backend),
          "comm.backend=tcp");
    }
    pass_on("inject.expect", [this] { parse_expectations(config_.inject.expect); });
  }

  void reproducible() const {
    const auto& strategy = config_.strategy;
    if (config_.reproducible.virtual_shards == 0) return;
    const auto refuse_with = [&](std::string_view key, const std::string& value,
                                 const std::string& remedy) {
      refuse(key,
             fmt::format("reproducible.virtual_shards is {} and {} is {}: the result would "
                         "depend on the number of replicas",
                         config_.reproducible.virtual_shards, key, value),
             remedy + ", or reproducible.virtual_shards=0");
    };
    if (strategy.compression != "none")
      refuse_with("strategy.compression", strategy.compression, "strategy.compression=none");
    if (strategy.local_steps > 1)
      refuse_with("strategy.local_steps", std::to_string(strategy.local_steps),
                  "strategy.local_steps=1");
    if (strategy.sync_batch_norm)
      refuse_with("strategy.sync_batch_norm", "true", "strategy.sync_batch_norm=false");
    const bool has_norms = models::family_of(config_.model) == models::Family::resnet ||
                           models::resolve(config_.model).batch_norm == 1;
    if (has_norms)
      refuse_with("model.name", config_.model.name + ", whose batch norms keep running statistics",
                  models::family_of(config_.model) == models::Family::cnn
                      ? "model.batch_norm=false"
                      : "a model without batch norm");
  }

  void elastic() const {
    const auto& elastic = config_.elastic;
    try {
      trireme::check(
          ResizeOptions{elastic.batch, elastic.lr, elastic.warmup_steps, elastic.workers},
          config_.data.batch);
    } catch (const Error& error) {
      throw located("elastic.batch", error);
    }
    if (elastic.batch == "keep") return;
    if (config_.reproducible.virtual_shards > 0) {
      refuse("elastic.batch",
             fmt::format("elastic.batch is {} and reproducible.virtual_shards is {}: the result "
                         "would depend on the number of workers",
                         elastic.batch, config_.reproducible.virtual_shards),
             "elastic.batch=keep");
    }
    const auto expected = parse_expectations(config_.inject.expect);
    if (std::find(expected.begin(), expected.end(), Expectation::same_loss) != expected.end()) {
      refuse(
          "elastic.batch",
          fmt::format(
              "elastic.batch is {} and same-loss is expected: losses depend on the workers then",
              elastic.batch),
          "elastic.batch=keep, or --expect exactly-once");
    }
  }

  void schedule() const {
    if (config_.schedule.name == "step" && config_.schedule.every == 0) {
      refuse("schedule.name",
             "schedule.name is step, but schedule.every does not say after how many epochs",
             "schedule.every=10");
    }
  }

  void strategy() const {
    if (config_.strategy.name == "one_device" && config_.strategy.replicas > 1) {
      refuse("strategy.replicas",
             fmt::format(
                 "strategy.name is one_device, which has one replica, but strategy.replicas is {}",
                 config_.strategy.replicas),
             "strategy.name=mirrored");
    }
  }

  void length() const {
    if (config_.train.epochs >= 0 && config_.train.steps >= 0) {
      refuse("train.steps",
             fmt::format("train.epochs is {} and train.steps is {}: only one of them can say how "
                         "long to train",
                         config_.train.epochs, config_.train.steps),
             "leave one out");
    }
  }

  void comm() const {
    if (config_.comm.heartbeat_timeout > Milliseconds(0) &&
        config_.comm.heartbeat_timeout <= config_.comm.heartbeat_interval) {
      refuse("comm.heartbeat_timeout",
             fmt::format(
                 "comm.heartbeat_timeout is {} ms and comm.heartbeat_interval is {} ms: the "
                 "timeout must be longer",
                 config_.comm.heartbeat_timeout.count(), config_.comm.heartbeat_interval.count()),
             fmt::format("comm.heartbeat_timeout={}ms",
                         10 * config_.comm.heartbeat_interval.count()));
    }
  }

  void table() const {
    if (config_.comm.table.empty()) return;
    try {
      plan::CollectiveTable::parse(read_file(config_.comm.table), config_.comm.table);
    } catch (const Error& error) {
      refuse("comm.table",
             fmt::format("comm.table is {}, which is not a table of collectives: {}",
                         config_.comm.table, brief(error)),
             "a file that trireme bench collectives --tune --output FILE wrote");
    }
  }

  void checkpoint() const {
    try {
      parse_every(config_.checkpoint.every);
    } catch (const Error&) {
      refuse("checkpoint.every",
             fmt::format(
                 "checkpoint.every is \"{}\", but must be a number of steps or epochs, or never",
                 config_.checkpoint.every),
             "checkpoint.every=\"100 steps\" or \"2 epochs\"");
    }
  }

 private:
  [[noreturn]] void refuse(std::string_view key, const std::string& what,
                           const std::string& remedy) const {
    const auto found = given_.find(key);
    throw Error(ErrorCode::invalid_argument, "config",
                found == given_.end() ? what : found->second.origin + ": " + what, remedy);
  }

  // The message of a room above, with the origin of the key's value.
  Error located(std::string_view key, const Error& error) const {
    const auto found = given_.find(key);
    return {error.code(), "config",
            fmt::format("{}{}: {}", found == given_.end() ? "" : found->second.origin + ": ", key,
                        brief(error))};
  }

  const Config& config_;
  const GivenKeys& given_;
};

}  // namespace

void drop_overridden(Config& config, GivenKeys& given) {
  const auto drop = [&](std::string_view key) {
    set_default(config, *find_key(key));
    given.erase(given.find(key));
  };
  for (const Key& key : all_keys()) {
    if (given_by_file(given, key.name) && given_by_set(given, key.only_for.selector) &&
        !applies(config, key))
      drop(key.name);
  }
  if (given_by_set(given, "train.steps") && given_by_file(given, "train.epochs"))
    drop("train.epochs");
  if (given_by_set(given, "train.epochs") && given_by_file(given, "train.steps"))
    drop("train.steps");
}

void check(const Config& config, const GivenKeys& given) {
  const Checker checker(config, given);
  checker.keys_fit_their_selector();
  checker.model();
  checker.data();
  checker.optimizer();
  checker.scaled_rate();
  checker.precision();
  checker.local_steps();
  checker.guard();
  checker.inject();
  checker.reproducible();
  checker.elastic();
  checker.schedule();
  checker.strategy();
  checker.length();
  checker.comm();
  checker.table();
  checker.checkpoint();
}

}  // namespace trireme::cli
