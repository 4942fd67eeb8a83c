#include <ATen/Parallel.h>
#include <torch/nn/module.h>

#include <trireme/comm/lone_rank.h>
#include <trireme/parallel/mesh/block_costs.h>
#include <trireme/parallel/mesh/model_forms.h>
#include <trireme/parallel/mesh/stage_memory.h>
#include <trireme/parallel/step_memory.h>
#include <trireme/plan/mesh_plan.h>
#include <trireme/run/measured_model.h>
#include <trireme/run/training.h>
#include <trireme/tensor/autocast.h>
#include <trireme/train/generation.h>
#include <trireme/train/replica_model.h>
#include <optional>
#include <utility>

namespace trireme {
namespace {

// As the Trainer completes its options.
TrainerOptions completed(TrainerOptions options, const ResolvedStrategy& strategy) {
  options.strategy = strategy.name;
  options.replicas = strategy.replicas_per_worker;
  options.batch = strategy.batch.global;
  options.accumulate = static_cast<int>(strategy.batch.accumulate);
  return options;
}

// The groups of rank 0, of which no other rank exists.
MeshRank mesh_of_rank_0(const plan::DivisionOptions& division, int ranks) {
  MeshRank mesh;
  mesh.shape = plan::mesh_of(division.mesh, ranks);
  for (const plan::MeshAxis& axis : mesh.shape->axes()) {
    mesh.coordinates.push_back(0);
    mesh.groups[axis.name] = comm::make_lone_rank(axis.size);
  }
  return mesh;
}

}  // namespace

struct MeasuredModel::Impl {
  Impl(const Config& config, const ResolvedStrategy& strategy)
      : training(training_of(config)),
        options(completed(training.options, strategy)),
        model(training.job, options, find_strategy(strategy.name).features.divides),
        guard(options.guard) {
    if (options.threads > 0) at::set_num_threads(options.threads);
    setting = engine_setting_of(options, training.job, model, guard, /*is_elastic=*/false);
    setting.group = comm::make_lone_rank(1);  // It plans alone.
    setting.mesh = mesh_of_rank_0(options.division, strategy.world_size);
    setting.sample = [this](const DataShare& share) {
      return first_pass_of(training.train, loader_options_of(options, options.batch), share,
                           options.accumulate);
    };
    shares = plan::replicas_of(options.division.mesh, strategy.world_size);
  }

  const plan::MeasuredChain& chain() {
    if (!measured)
      measured =
          measured_blocks(setting, blocks_of(setting.model), plan::pipeline_of(setting.division));
    return *measured;
  }

  Training training;
  TrainerOptions options;
  ReplicaModel model;
  Guard guard;
  EngineSetting setting;
  int shares = 1;
  std::optional<plan::MeasuredChain> measured;
};

MeasuredModel::MeasuredModel(const Config& config, const ResolvedStrategy& strategy)
    : impl_(std::make_unique<Impl>(config, strategy)) {}
MeasuredModel::~MeasuredModel() = default;

std::vector<plan::BlockCost> MeasuredModel::costs() {
  const std::vector<Block> blocks = blocks_of(impl_->setting.model);
  const ModuleState whole = state_of(*impl_->setting.model.module);
  const plan::MeasuredChain& chain = impl_->chain();
  return costs_of(impl_->setting, blocks, tensors_by_block(blocks, whole),
                  forms_of(impl_->setting.mesh, impl_->setting.model, whole), chain);
}

plan::PipelineMemory MeasuredModel::memory_of_stages(const plan::EnginePlan& plan) {
  return trireme::memory_of_stages(impl_->setting, plan, impl_->chain());
}

plan::MemoryPlan MeasuredModel::memory_of_replica() {
  if (impl_->model.is_in_parts()) {
    std::set<std::string> names;
    for (const auto* const part :
         {&impl_->model.tensors().parameters, &impl_->model.tensors().buffers})
      for (const NamedTensor& named : *part) names.insert(named.name);
    impl_->model.keep_only(names);
  }
  StepMemory memory(impl_->setting);
  const Autocast mixed(impl_->setting.autocast);
  return memory.planned(impl_->setting.sample({0, impl_->shares}));
}

}  // namespace trireme
