#include <ATen/core/Tensor.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/parallel/data_parallel.h>
#include <trireme/parallel/data_parallel_engine.h>
#include <trireme/parallel/file_tensors.h>
#include <trireme/parallel/offloaded_model.h>
#include <trireme/parallel/optimizer_view.h>
#include <trireme/parallel/passes.h>
#include <trireme/tensor/replica_random.h>

namespace trireme {
namespace {

// Copies the part into its own memory, because operators may add in another order if data is
// aligned differently.
Batch copy_of_part(const Batch& batch, int64_t from, int64_t count) {
  Batch part = batch.part(from, count);
  part.data = part.data.clone();
  part.target = part.target.clone();
  for (auto& [name, tensor] : part.more) tensor = tensor.clone();
  return part;
}

DataParallelOptions options_of(const EngineSetting& setting) {
  DataParallelOptions options = setting.options;
  options.offload = offload_of(setting.memory);
  return options;
}

// The setting for passes over a model whose parameters may be in a file.
EngineSetting paged(EngineSetting setting, DataParallel& replica) {
  if (setting.memory.offload != "parameters" || setting.model.blocks.empty()) return setting;
  setting.model.blocks = replica.paged(setting.model.blocks);
  setting.model.forward = [blocks = setting.model.blocks](const std::vector<at::Tensor>& inputs) {
    return output_of(blocks, inputs);
  };
  return setting;
}

class DataParallelEngine : public Engine {
 public:
  explicit DataParallelEngine(const EngineSetting& setting)
      : replica_(setting.group, setting.model.module, setting.optimizer, options_of(setting)),
        setting_(paged(setting, replica_)),
        optimizer_(replica_.optimizer(), replica_.updated_parameters()),
        passes_(setting_) {}

  StepOutcome step(const StepRequest& request) override {
    if (setting_.options.virtual_shards > 0)
      compute_shards(request);
    else
      compute(request.batch, request.passes);
    setting_.enter(Phase::exchange);
    const Wishes wishes = setting_.wishes();
    if (wishes.stop) replica_.request_stop();
    if (wishes.regroup) replica_.request_regroup();
    return replica_.step();
  }

  at::Tensor evaluate(const Batch& batch) override { return output_of(setting_.model, batch); }
  DataShare data_share() const override {
    return {setting_.group->rank(), setting_.group->size()};
  }

  void prepare_to_read() override {
    replica_.synchronise();
    replica_.sync_buffers();
  }
  void check_parameters() override {
    // Without sharing, the next step finds what it refuses.
    if (replica_.shares_parameters()) replica_.check_parameters();
  }

  EngineState state() override {
    EngineState state{replica_.state_view(), replica_.counters()};
    optimizer_.show(state);
    return state;
  }

  void begin_load(const IncomingState& incoming) override {
    if (incoming.model_is_new) replica_.sync_state();
    // Loaded state moves to its places with the next step.
    const TensorsInFiles in_files(setting_.memory.folder_of_state());
    optimizer_.begin_load(incoming.counters, incoming.tensors);
    replica_.load_counters(incoming.counters);
  }
  void end_load() override {
    optimizer_.end_load();
    replica_.sync_masters();
  }

  std::vector<double> rates() const override { return optimizer_.rates(); }
  void set_rates(std::span<const double> rates) override { optimizer_.set_rates(rates); }

  const plan::EnginePlan& plan() const override { return replica_.plan(); }
  double loss_scale() const override { return replica_.loss_scale(); }
  bool shares_parameters() const override { return replica_.shares_parameters(); }
  bool is_torn() const override { return replica_.is_torn(); }
  MemoryUse memory_use() const override { return passes_.memory_use(); }

 private:
  void compute(const Batch& batch, int passes) {
    passes_.compute(batch, passes, [&](const at::Tensor& loss, int64_t samples, bool is_last) {
      if (is_last)
        replica_.last_backward(loss, samples, batch.global_size);
      else
        replica_.backward(loss, samples, batch.global_size);
    });
  }

  // Each shard has random numbers of its own, and is computed in so many passes. Samples that were
  // left out keep their places, so each shard has the same samples on any number of replicas.
  void compute_shards(const StepRequest& request) {
    const Batch& batch = request.batch;
    const int all = setting_.options.virtual_shards;
    const std::vector<at::Tensor> before = std::exchange(buffers_judged_, true)
                                               ? std::vector<at::Tensor>()
                                               : copies_of(replica_.state().buffers);
    const plan::ShardRange own = replica_.shards();
    int64_t from = 0;
    for (int shard = own.first; shard < own.last; ++shard) {
      const auto [first, last] = plan::DataPlan::share(batch.global_used, shard, all);
      setting_.random->reseed(mix64(setting_.seed, static_cast<uint64_t>(request.number),
                                    static_cast<uint64_t>(shard)));
      const int64_t to = from + last - first, row = batch.row_of(from);
      compute(copy_of_part(batch, row, batch.row_of(to) - row), request.passes);
      replica_.end_shard();
      from = to;
    }
    refuse_moved_buffers(before);
  }

  // Refuses buffers that change, because running statistics would depend on which replica saw
  // which shard.
  void refuse_moved_buffers(const std::vector<at::Tensor>& before) const {
    for (size_t i = 0; i < before.size(); ++i)
      if (const auto& [name, tensor] = replica_.state().buffers[i]; !tensor.equal(before[i]))
        throw Error(
            ErrorCode::invalid_argument, "train",
            fmt::format("reproducible.virtual_shards is {}, but training changes the buffer "
                        "'{}': its values would depend on which replica computes which shard",
                        setting_.options.virtual_shards, name),
            "a model without running statistics (batch norm), or reproducible.virtual_shards=0");
  }

  DataParallel replica_;
  const EngineSetting setting_;
  OptimizerView optimizer_;
  Passes passes_;
  bool buffers_judged_ = false;  // Used with virtual shards.
};

}  // namespace

std::unique_ptr<Engine> make_data_parallel_engine(const EngineSetting& setting) {
  return std::make_unique<DataParallelEngine>(setting);
}

}  // namespace trireme
