#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <trireme/base/error.h>
#include <trireme/comm/dtype.h>
#include <trireme/train/evaluate.h>
#include <trireme/train/generation.h>

namespace trireme {
namespace {

// Returns an empty function if no spikes are looked for: then the update need not wait for the
// loss and the norm.
std::function<bool(double loss, double gradient_norm)> acceptance_of(const TrainerOptions& options,
                                                                     const Guard& guard) {
  if (options.guard.spike == 0) return {};
  return
      [&guard](double loss, double gradient_norm) { return guard.accepts(loss, gradient_norm); };
}

}  // namespace

void Generation::make_engine(const Strategy& strategy, ReplicaModel& model,
                             EngineSetting setting) {
  if (strategy.needs && strategy.needs(setting.division, group().size()).blocks &&
      model.model().blocks.empty())
    throw Error(
        ErrorCode::invalid_argument, "train",
        fmt::format("strategy '{}' cuts the model, but the model names no blocks",
                    setting.strategy),
        "`std::vector<Block> blocks()` in the module (docs/own_loop.md), or another strategy");
  engine_.reset();
  updated_.clear();
  model.drop_gradients();
  setting.group = groups_.all;
  setting.norm_group = groups_.norms;
  setting.mesh = groups_.mesh;
  const std::string name = setting.strategy;
  engine_ = strategy.make(setting);
  if (!engine_)
    throw Error(ErrorCode::invalid_argument, "train",
                fmt::format("strategy '{}' made no engine", name),
                "a function that returns one, such as make_engine<Kind>");
}

const std::vector<NamedTensor>& Generation::updated_parameters() {
  if (updated_.empty()) updated_ = updated_tensors(engine_->state().tensors);
  return updated_;
}

void Generation::load_from(std::shared_ptr<const Source> source, const LoaderOptions& options) {
  if (engine_->own_pace()) {  // Whole batches, in an order that nobody knows ahead.
    LoaderOptions of_batches = options;
    of_batches.threads = 0;
    loader_.emplace(std::move(source), of_batches, 0, 1);
    return;
  }
  const DataShare share = engine_->data_share();
  loader_.emplace(std::move(source), options, share.index, share.count);
}

std::vector<int64_t> Generation::shares_of(int64_t samples) const {
  std::vector<int64_t> sizes;
  const int shares = engine_->data_share().count;
  for (int share = 0; share < shares; ++share) {
    const auto [from, to] = loader_->plan().share_of(samples, share, shares);
    sizes.push_back(to - from);
  }
  return sizes;
}

plan::EnginePlan Generation::plan() const {
  plan::EnginePlan plan = engine_->plan();
  plan.data = loader_->plan().options();
  return plan;
}

EngineSetting engine_setting_of(const TrainerOptions& options, const Job& job, ReplicaModel& model,
                                const Guard& guard, bool is_elastic) {
  EngineSetting setting;
  setting.strategy = options.strategy;
  setting.model = model.model();
  setting.tables = job.tables;
  setting.optimizer = job.optimizer;
  setting.loss = [&job](const at::Tensor& output, const Batch& batch) {
    return loss_of(job, output, batch);
  };
  DataParallelOptions& each = setting.options;
  each.clip_norm = options.clip_norm;
  each.gradient_norm = options.clip_norm > 0 || guard.needs_norm();
  each.share_parameters = options.share_parameters && options.ema_decay == 0;
  each.guard.wanted = is_elastic;
  each.buckets = options.buckets;
  each.compression = options.compression;
  each.local = options.local;
  each.virtual_shards = options.virtual_shards;
  each.loss_scaling = options.loss_scaling;
  each.accept = acceptance_of(options, guard);
  setting.division = options.division;
  setting.memory = options.memory;
  setting.autocast = to_torch(options.autocast);
  setting.seed = options.seed;
  setting.random = &model.random();
  if (model.is_in_parts())
    setting.keep_only = [&model](const std::set<std::string>& names) { model.keep_only(names); };
  return setting;
}

LoaderOptions loader_options_of(const TrainerOptions& options, int64_t batch) {
  LoaderOptions loader;
  loader.batch = batch;
  loader.seed = options.seed;
  loader.shuffle = options.shuffle;
  loader.drop_last = options.drop_last;
  loader.virtual_shards = options.virtual_shards;
  loader.threads = options.loader_threads;
  loader.prefetch = options.prefetch;
  loader.compute_threads = std::max(1, options.threads);
  loader.memory_bytes = options.input_bytes;
  loader.dtype = to_torch(options.dtype);
  return loader;
}

Batch first_pass_of(std::shared_ptr<const Source> source, LoaderOptions options,
                    const DataShare& share, int passes) {
  options.threads = 0;
  Loader loader(std::move(source), options, share.index, share.count);
  const Batch batch = loader.next();
  const auto [from, to] = plan::DataPlan::share(batch.size(), 0, passes);
  return batch.part(from, to - from);
}

}  // namespace trireme
