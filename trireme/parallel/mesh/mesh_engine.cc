#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/base/seconds.h>
#include <trireme/parallel/agreement.h>
#include <trireme/parallel/file_tensors.h>
#include <trireme/parallel/gradients.h>
#include <trireme/parallel/mesh/block_costs.h>
#include <trireme/parallel/mesh/counted_batches.h>
#include <trireme/parallel/mesh/foreign_state.h>
#include <trireme/parallel/mesh/keep_shards.h>
#include <trireme/parallel/mesh/mesh_engine.h>
#include <trireme/parallel/mesh/mesh_rules.h>
#include <trireme/parallel/mesh/model_forms.h>
#include <trireme/parallel/mesh/parameter_keeper.h>
#include <trireme/parallel/mesh/stage.h>
#include <trireme/parallel/mesh/stage_memory.h>
#include <trireme/parallel/mesh/stage_scalars.h>
#include <trireme/parallel/mesh/tied_gradients.h>
#include <trireme/parallel/nn/tensor_parallel_layer.h>
#include <trireme/parallel/offloaded_model.h>
#include <trireme/parallel/pipeline/pipeline_runner.h>
#include <trireme/parallel/step_facts.h>
#include <trireme/plan/mesh_plan.h>
#include <trireme/tensor/hollow.h>
#include <chrono>
#include <cmath>
#include <utility>

namespace trireme {
namespace {

class MeshEngine : public Engine {
 public:
  explicit MeshEngine(const EngineSetting& setting)
      : setting_(setting),
        whole_(state_of(*setting.model.module)),
        forms_(forms_of(setting.mesh, setting.model, whole_)),
        stage_number_(stages().rank()) {
    const std::vector<Block> blocks = blocks_of(setting.model);
    const std::vector<BlockTensors> tensors = tensors_by_block(blocks, whole_);
    const plan::PipelinePlan pipeline = plan::pipeline_of(setting.division);
    if (must_be_measured(setting, pipeline))
      measured_ = measured_blocks(setting, blocks, pipeline);
    plan_ = plan::plan_mesh({.placement = group().placement(),
                             .parameters = as_updated(forms_),
                             .buckets = setting.options.buckets,
                             .division = setting.division,
                             .blocks = costs_of(setting, blocks, tensors, forms_, measured_),
                             .block_parameters = numbers_by_block(tensors, forms_),
                             .kept_types = types_of(forms_),
                             .shard_level = shard_level()});
    const bool is_cut_by_measure =
        !plan_.cut->by_hand && plan_.cut->measure != plan::PartitionMeasure::parameters;
    if (is_cut_by_measure && group().rank() == 0)
      log_info("pipeline.cut {}: {}", setting.division.pipeline.cut, plan_.cut->describe());
    Json facts = {{"strategy", setting.strategy}, {"model", to_json(forms_)}};
    for (auto& [name, part] : plan_.parts()) facts["plan"][name] = std::move(part);
    agree(group(), facts);
    memory_ = memory_of_stages(setting, plan_, measured_);
    stage_ = stage_of(blocks, tensors, *plan_.cut, *plan_.pipeline, stage_number_);
    for (const NamedTensor& named : whole_.buffers)
      if (stage_.buffers.contains(named.name)) own_buffers_.push_back(named);
    for (const NamedTensor& named : whole_.parameters)
      if (named.tensor.dim() == 0 && named.tensor.requires_grad())
        trained_scalars_.push_back(named);
    first_trained_block_ = first_trained(tensors, forms_);
    makes_blocks_in_turn_ = can_make_blocks_in_turn();
    if (setting.keep_only) setting.keep_only(names_to_keep());
    divide_layers_of_model();
    make_keeper();
    make_runner();
    if (setting.options.loss_scaling) scaler_.emplace(*setting.options.loss_scaling);
  }

  StepOutcome step(const StepRequest& request) override {
    const Traffic before = traffic();
    const auto started = std::chrono::steady_clock::now();
    keeper_->drop_gradients();
    const double scale = loss_scale();
    const CountedBatches counted(own_buffers_);
    Contribution mine = runner_->compute(request, scale);
    counted.count_once();
    setting_.enter(Phase::exchange);
    keeper_->reduce();
    add_up_over_dividers();
    tied_->add_up();
    if (dividers().rank() > 0) mine = {};  // They have the same loss.
    const Wishes wishes = setting_.wishes();
    mine.wants_stop = wishes.stop;
    mine.wants_regroup = wishes.regroup;
    mine.total_samples = request.batch.global_size;
    mine.gradient_scale = scale;

    StepOutcome outcome = share_facts(mine, scale);
    count_time(started);
    const double norm = outcome.gradient_norm;
    const auto& options = setting_.options;
    if (!options.gradient_norm && options.clip_norm <= 0) outcome.gradient_norm = -1;
    const bool is_accepted = outcome.nonfinite_ranks.empty() && outcome.samples > 0 &&
                             !outcome.nonfinite_gradients &&
                             (!options.accept || options.accept(outcome.loss, norm));
    if (is_accepted) update(clip_factor(norm, options.clip_norm) / scale, outcome);
    if (scaler_) scaler_->update(outcome.nonfinite_gradients);
    keeper_->drop_gradients();
    const Traffic sent = traffic() - before;
    outcome.operations = sent.operations;
    outcome.bytes_sent = sent.bytes_sent;
    return outcome;
  }

  at::Tensor evaluate(const Batch& batch) override {
    const at::Tensor output = runner_->evaluate(batch);
    return dividers().rank() == 0 ? output : at::Tensor();
  }
  void evaluate_without_samples() override { runner_->evaluate_without_samples(); }
  DataShare data_share() const override { return {replicas().rank(), replicas().size()}; }

  // Running statistics are those of the first replica.
  void prepare_to_read() override {
    broadcast_tensors(replicas(), own_buffers_);
    share_scalars(stages(), stage_, whole_.parameters);
    share_scalars(stages(), stage_, whole_.buffers);
    foreign_->learn(own_state(), group());
  }

  EngineState state() override {
    EngineState own = own_state();
    StateView model;
    add_model_tensors(model, own.tensors, whole_.parameters, forms_, StateKind::parameter);
    add_model_tensors(model, own.tensors, whole_.buffers, specs_of(whole_.buffers),
                      StateKind::buffer);
    for (StateEntry& entry : own.tensors)
      if (!is_of_model(entry.kind)) model.push_back(std::move(entry));
    own.tensors = std::move(model);
    if (scaler_) own.counters["loss_scale"] = scaler_->state();
    return foreign_->complete(std::move(own));
  }
  StatePart state_part() const override {
    if (shard_level() > 0 && replicas().size() > 1) return {group().rank(), group().size()};
    const int of_a_replica = stages().size() * dividers().size();
    return {group().rank() % of_a_replica, of_a_replica};
  }

  void begin_load(const IncomingState& incoming) override {
    if (incoming.model_is_new) {
      // Ranks have read the tensors that are in slices; all others are whole, and rank 0 has them.
      std::vector<NamedTensor> from_first;
      for (size_t i = 0; i < whole_.parameters.size(); ++i)
        if (const NamedTensor& named = whole_.parameters[i];
            all_have_whole(named) && !is_divided(named) && !is_layer_divided(i))
          from_first.push_back(named);
      for (const NamedTensor& named : whole_.buffers)
        if (all_have_whole(named)) from_first.push_back(named);
      broadcast_tensors(group(), from_first);
    }
    // Loaded state moves to its places with the next step.
    const TensorsInFiles in_files(setting_.memory.folder_of_state());
    keeper_->begin_load(incoming);
    foreign_->learn(incoming);
    if (scaler_ && incoming.counters.contains("loss_scale"))
      scaler_->load(incoming.counters["loss_scale"]);
  }
  void end_load() override {
    keeper_->end_load();
    keeper_->publish();
  }

  std::vector<double> rates() const override { return keeper_->rates(); }
  void set_rates(std::span<const double> rates) override { keeper_->set_rates(rates); }
  const plan::EnginePlan& plan() const override { return plan_; }
  Json facts_for_report() override {
    const PartTimes::Bubble bubble = runner_->times().bubble(*plan_.pipeline, group());
    Json facts;
    for (const plan::MeshAxis& axis : plan_.mesh.axes()) facts["mesh"][axis.name] = axis.size;
    if (stages().size() > 1)
      facts["bubble"] = {{"measured", bubble.measured}, {"predicted", bubble.predicted}};
    return facts;
  }
  double loss_scale() const override { return scaler_ ? scaler_->scale() : 1.0; }
  MemoryUse memory_use() const override {
    MemoryUse use;
    use.activation_bytes = runner_->peak_activation_bytes();
    use.predicted_activation_bytes = must_be_measured(setting_, *plan_.pipeline)
                                         ? memory_.peak_bytes[static_cast<size_t>(stage_number_)]
                                         : runner_->first_activation_bytes();
    for (const StateEntry& entry : own_state().tensors)
      if (entry.kind == StateKind::parameter)
        use.parameter_bytes += static_cast<int64_t>(entry.tensor.nbytes());
    return use;
  }
  bool is_torn() const override { return updating_; }

 private:
  Group& group() const { return *setting_.group; }
  Group& replicas() const { return *setting_.mesh.along(plan::kDataAxis); }
  Group& dividers() const { return *setting_.mesh.along(plan::kTensorAxis); }
  Group& stages() const { return *setting_.mesh.along(plan::kPipelineAxis); }

  Traffic traffic() const {
    Traffic all = group().traffic();
    for (const auto& [axis, along] : setting_.mesh.groups) all = all + along->traffic();
    return all;
  }

  // With level 3 a stage need never have the memory of all its parameters. Layers that a tensor
  // axis divides are made with it, and so is a model that has values already.
  // COLLECTIVE along the data axis: survivors of a lost worker have values, and newcomers have
  // not.
  bool can_make_blocks_in_turn() const {
    if (!setting_.keep_only || shard_level() != 3 || replicas().size() == 1 ||
        dividers().size() > 1)
      return false;
    return are_hollow_on_all(whole_.parameters, replicas());
  }

  // Tensors without dimensions are on every rank, because they have no slices.
  std::set<std::string> names_to_keep() const {
    std::set<std::string> names = stage_.buffers;
    if (!makes_blocks_in_turn_) names.insert(stage_.parameters.begin(), stage_.parameters.end());
    for (const auto* const part : {&whole_.parameters, &whole_.buffers})
      for (const auto& [name, tensor] : *part)
        if (tensor.dim() == 0) names.insert(name);
    return names;
  }

  // Parameters of other stages have no values, and stay whole: in a later generation this rank may
  // get their stage.
  void divide_layers_of_model() {
    const auto& ranks = setting_.mesh.along(plan::kTensorAxis);
    if (ranks->size() == 1) return;
    const TensorsInFiles in_files(setting_.memory.folder_of_parameters());
    parts_ = nn::divide_layers(*setting_.model.module, ranks,
                               [](const at::Tensor& whole, const nn::ParameterParts& parts) {
                                 return is_hollow(whole) ? whole : nn::part_of(whole, parts);
                               });
  }

  // The boxes of a parameter that this rank has.
  std::vector<plan::TensorSlice> boxes_of(size_t parameter) const {
    if (!parts_.empty()) return parts_[parameter].parts;
    return {plan::TensorSlice::whole(forms_[parameter].name, forms_[parameter].shape)};
  }
  bool is_layer_divided(size_t parameter) const {
    return !parts_.empty() && parts_[parameter].is_divided();
  }

  void make_keeper() {
    ParameterKeeperSetting keeper{.parameters = {},
                                  .replicas = setting_.mesh.along(plan::kDataAxis),
                                  .optimizer = setting_.optimizer,
                                  .buckets = setting_.options.buckets,
                                  .offload = offload_of(setting_.memory),
                                  .blocks = {}};
    stage_.add_blocks_to(keeper, first_trained_block_);
    std::vector<NamedTensor> own;
    std::set<std::string> summed;
    for (size_t i = 0; i < whole_.parameters.size(); ++i) {
      const auto& [name, tensor] = whole_.parameters[i];
      if (!stage_.parameters.contains(name)) continue;
      if (!is_hollow(tensor)) own.push_back({name, tensor});
      const bool has_copies = dividers().size() > 1 && !is_layer_divided(i);
      const bool is_counted = !has_copies || dividers().rank() == 0;
      keeper.parameters.push_back({.name = name,
                                   .tensor = tensor,
                                   .boxes = boxes_of(i),
                                   .counts = is_counted && stage_.counts(name, stage_number_),
                                   .is_elsewhere = has_copies || stage_.is_tied(name)});
      if (!parts_.empty() && parts_[i].sums_gradients) summed.insert(name);
    }
    broadcast_tensors(replicas(), own);
    broadcast_tensors(replicas(), own_buffers_);
    if (makes_blocks_in_turn_)
      keeper.materialise = [this](const std::set<std::string>& names) { make_in_turn(names); };
    if (!parts_.empty()) check_divided_update(*setting_.optimizer(own));
    const auto make = [&] {
      const TensorsInFiles in_files(setting_.memory.folder_of_parameters());
      keeper_ = keep_shards(std::move(keeper), shard_level());
    };
    // Blocks in turn are made together, so an error of one rank has to end the waits of the
    // others.
    if (makes_blocks_in_turn_)
      make();
    else
      run_on_all(group(), make);
    const std::vector<NamedTensor> updated = keeper_->updated();
    tied_.emplace(setting_.mesh.along(plan::kPipelineAxis), stage_.tied, updated);
    for (const auto& [name, tensor] : updated)
      if (summed.contains(name) && tensor.numel() > 0) summed_.push_back(tensor);
    foreign_.emplace(forms_);
  }

  // COLLECTIVE along the data axis. Leaves the other divided parameters hollow.
  void make_in_turn(const std::set<std::string>& names) const {
    std::set<std::string> kept = names_to_keep();
    kept.insert(names.begin(), names.end());
    setting_.keep_only(kept);
    std::vector<NamedTensor> made;
    for (const NamedTensor& named : whole_.parameters)
      if (names.contains(named.name)) made.push_back(named);
    broadcast_tensors(replicas(), made);
  }

  int shard_level() const {
    return plan::shard_level_of(setting_.strategy, setting_.division.shard);
  }

  void make_runner() {
    stage_.take_blocks(keeper_->blocks());
    runner_.emplace(setting_, setting_.mesh.along(plan::kPipelineAxis), replicas().rank(),
                    *plan_.pipeline, stage_.parts, *keeper_);
    const auto decisions = decisions_of(memory_, stage_);
    runner_->decide(decisions, memory_.peak_bytes[static_cast<size_t>(stage_number_)],
                    read_from(decisions, stage_));
  }

  // COLLECTIVE along the tensor axis. Each of its ranks has computed the gradients of some
  // replicated parameters from its own tokens alone.
  void add_up_over_dividers() {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& tensor : summed_) {
      at::Tensor& gradient = tensor.mutable_grad();
      if (!gradient.defined()) continue;
      gradient = gradient.contiguous();
      dividers().all_reduce(gradient);
    }
  }

  // The facts travel with the squared norm of the gradients.
  StepOutcome share_facts(const Contribution& mine, double scale) {
    const StepFacts facts(group().size(), {});
    const double squares = keeper_->squared_norm();
    const at::Tensor values = at::zeros({facts.size() + 1}, at::kDouble);
    facts.write(mine, group().rank(), {}, std::isfinite(squares),
                values.narrow(0, 0, facts.size()));
    values[facts.size()] = std::isfinite(squares) ? squares : 0.0;
    group().all_reduce(values);
    StepOutcome outcome = facts.read(values.narrow(0, 0, facts.size())).outcome;
    outcome.gradient_norm = std::sqrt(values[facts.size()].item<double>()) / scale;
    return outcome;
  }

  // The first step allocates memory, and is not like the others.
  void count_time(std::chrono::steady_clock::time_point started) {
    if (std::exchange(has_stepped_, true))
      runner_->times().add_step(seconds_since(started));
    else
      runner_->times().clear();
  }

  void update(double factor, StepOutcome& outcome) {
    const at::NoGradGuard no_grad;
    updating_ = true;
    outcome.updated_elements = keeper_->update(factor);
    keeper_->publish();
    share_trained_scalars(stages(), stage_, trained_scalars_);
    updating_ = false;
    outcome.updated = true;
  }

  EngineState own_state() const {
    EngineState own;
    keeper_->show(own);
    append(own.tensors, own_buffers_, StateKind::buffer);
    return own;
  }

  bool all_have_whole(const NamedTensor& named) const {
    return stages().size() == 1 || named.tensor.dim() == 0;
  }
  // A parameter whose rows lie on several replicas.
  bool is_divided(const NamedTensor& parameter) const {
    return shard_level() == 3 && replicas().size() > 1 && parameter.tensor.dim() > 0;
  }

  const EngineSetting setting_;
  const ModuleState whole_;
  const std::vector<plan::TensorSpec> forms_;  // The forms of the whole parameters.
  std::vector<nn::ParameterParts> parts_;  // The parts of all parameters, if layers are divided.
  // This rank's updated part of parameters whose gradients are summed over the tensor axis.
  std::vector<at::Tensor> summed_;
  plan::MeasuredChain measured_;  // The blocks of the whole model; empty if nobody needs them.
  plan::EnginePlan plan_;
  plan::PipelineMemory memory_;
  const int stage_number_;
  Stage stage_;
  std::vector<NamedTensor> own_buffers_, trained_scalars_;
  bool makes_blocks_in_turn_ = false;  // See ParameterKeeperSetting::materialise.
  size_t first_trained_block_ = 0;     // A place in the whole model.
  std::unique_ptr<ParameterKeeper> keeper_;
  std::optional<TiedGradients> tied_;
  std::optional<ForeignState> foreign_;
  std::optional<PipelineRunner> runner_;
  std::optional<GradScaler> scaler_;
  bool updating_ = false, has_stepped_ = false;
};

}  // namespace

std::unique_ptr<Engine> make_mesh_engine(const EngineSetting& setting) {
  return std::make_unique<MeshEngine>(setting);
}

EngineNeeds needs_of_mesh(const plan::DivisionOptions& division, int ranks) {
  return {.mesh = plan::mesh_of(division.mesh, ranks),
          .blocks = division.mesh.pipeline > 1 || division.shard.level == 3};
}

}  // namespace trireme
