#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>

#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/base/seconds.h>
#include <trireme/parallel/activation_measure.h>
#include <trireme/parallel/pipeline/gradient_sums.h>
#include <trireme/parallel/pipeline/pipeline_runner.h>
#include <trireme/parallel/sync_batch_norm.h>
#include <trireme/plan/data_plan.h>
#include <trireme/tensor/autocast.h>
#include <trireme/tensor/identity_node.h>
#include <trireme/tensor/replica_random.h>
#include <algorithm>
#include <chrono>

namespace trireme {
namespace {

using Item = ActivationMail::Item;
using plan::PipelineTask;

// Values that the next part takes: autograd of this part ends at them.
std::vector<Item> items_of(const Tensors& outputs) {
  std::vector<Item> items;
  for (const at::Tensor& output : outputs)
    items.push_back({output.detach(), output.requires_grad()});
  return items;
}

Tensors leaves_of(std::vector<Item> items) {
  Tensors leaves;
  for (auto& [tensor, requires_grad] : items) {
    if (requires_grad) tensor.requires_grad_(true);
    leaves.push_back(std::move(tensor));
  }
  return leaves;
}

// The same tensors for a block, which may work on them in place. Autograd allows that neither for
// a leaf nor for a view of one. They share their versions with the part that made them, so
// autograd notices if its backward needs what has been changed.
Tensors received(const Tensors& leaves) {
  Tensors tensors;
  for (const at::Tensor& leaf : leaves) {
    tensors.push_back(leaf);
    if (!leaf.requires_grad()) continue;
    tensors.back() = leaf.tensor_data();
    const NodePointer same = make_identity_node();
    same->set_next_edges(torch::autograd::collect_next_edges(leaf));
    torch::autograd::create_gradient_edge(tensors.back(), same);
  }
  return tensors;
}

std::vector<Block> blocks_in(const std::vector<PipelinePart>& parts) {
  std::vector<Block> blocks;
  for (const PipelinePart& part : parts)
    blocks.insert(blocks.end(), part.blocks.begin(), part.blocks.end());
  return blocks;
}

}  // namespace

PipelineRunner::PipelineRunner(const EngineSetting& setting, std::shared_ptr<Group> stages,
                               int data_rank, const plan::PipelinePlan& plan,
                               std::vector<PipelinePart> parts, ParameterKeeper& keeper)
    : setting_(setting),
      data_rank_(data_rank),
      plan_(plan),
      parts_(std::move(parts)),
      keeper_(keeper),
      mail_(stages, setting.group, plan_),
      steps_(plan_.steps[static_cast<size_t>(stages->rank())]),
      times_(plan_.parts()),
      memory_(blocks_in(parts_), storages_of(*setting.model.module), setting.random) {}

void PipelineRunner::decide(const std::vector<plan::MemoryDecision>& decisions, int64_t peak_bytes,
                            std::vector<int> read_from) {
  SwapOptions swap;
  swap.folder = setting_.memory.swap_dir;
  swap.limit_bytes = peak_bytes;
  swap.read_from = std::move(read_from);
  memory_.decide(decisions, swap);
  moves_activations_ = !setting_.memory.is_plain();
}

Contribution PipelineRunner::compute(const StepRequest& request, double scale) {
  // After an error this object is not used again, but nothing of it may outlive an abandoned step.
  live_.clear();
  inputs_.clear();
  gradients_.clear();
  Contribution mine;
  DeferredBatchNorm norms;
  for (int number = 0; number < request.passes; ++number) {
    const auto [from, to] = plan::DataPlan::share(request.batch.size(), number, request.passes);
    const Batch share = from == to ? Batch() : request.batch.part(from, to - from);
    Pass pass{.request = request, .scale = scale, .microbatches = {}};
    const int count = plan_.facts.microbatches;
    for (int i = 0; i < count; ++i) {
      const auto [first, last] = plan::DataPlan::share(share.size(), i, count);
      pass.microbatches.push_back(first == last ? Batch() : share.part(first, last - first));
    }
    pass.first_microbatch = number * count;
    try {
      run(pass, mine);
    } catch (...) {
      mail_.abandon();
      throw;
    }
  }
  norms.commit();
  mail_.finish();
  counts_activations_ = moves_activations_;
  return mine;
}

void PipelineRunner::run(const Pass& pass, Contribution& mine) {
  std::vector<bool> has_samples;
  for (const Batch& batch : pass.microbatches) has_samples.push_back(batch.size() > 0);
  mail_.begin_pass(has_samples);
  for (const plan::PipelineStep& step : steps_) {
    if (!has_samples[static_cast<size_t>(step.microbatch)]) {
      run_without_samples(step);
      continue;
    }
    switch (step.task) {
      case PipelineTask::forward: forward(step, pass, mine); break;
      case PipelineTask::backward:
      case PipelineTask::input_gradient: backward(step, pass); break;
      case PipelineTask::weight_gradient: backward_weights(step); break;
    }
  }
}

// All stages of a replica leave such a micro-batch out. Other replicas may have samples in it.
void PipelineRunner::run_without_samples(const plan::PipelineStep& step) {
  const PipelinePart& own = part(step.part);
  const size_t first = own.first_own, last = first + own.blocks.size();
  if (step.task == PipelineTask::forward) return keeper_.forward_without_samples(first, last);
  begin_backward(step);
  keeper_.backward_ended();
}

void PipelineRunner::forward(const plan::PipelineStep& step, const Pass& pass,
                             Contribution& mine) {
  const Batch& batch = pass.microbatches[static_cast<size_t>(step.microbatch)];
  Live live;
  live.inputs = inputs_of(step, batch);
  const auto count = [&](const Tensors& tensors) {
    if (!counts_activations_) return;
    for (auto& hold : memory_.hold(tensors, batch)) live.holds.push_back(std::move(hold));
  };
  count(live.inputs);
  setting_.enter(Phase::forward);
  const auto started = std::chrono::steady_clock::now();
  const PipelinePart& own = part(step.part);
  {
    const Autocast mixed(setting_.autocast);
    live.outputs = run_blocks(own, received(live.inputs), pass, step.microbatch);
    if (is_last_part(step.part)) {
      const at::Tensor output = only_output(own.blocks, live.outputs);
      live.outputs = {loss_of(output, batch)};
      mine.loss_sum += live.outputs[0].detach().item<double>() * static_cast<double>(batch.size());
      mine.samples += batch.size();
    }
  }
  times_.add(step, seconds_since(started));
  count(live.outputs);
  if (first_activation_bytes_ == 0) first_activation_bytes_ = memory_.bytes().current();
  if (!is_last_part(step.part)) hand_on(step, live.outputs);
  live_.insert_or_assign({step.part, step.microbatch}, std::move(live));
}

Tensors PipelineRunner::inputs_of(const plan::PipelineStep& step, const Batch& batch) {
  if (step.part == 0) {
    Tensors inputs;
    for (const std::string& name : setting_.model.inputs) inputs.push_back(batch.tensor(name));
    return inputs;
  }
  if (const auto message = plan_.needs(step)) return leaves_of(mail_.receive(*message));
  auto handed = inputs_.extract({step.part, step.microbatch});
  return leaves_of(std::move(handed.mapped()));
}

// Each block draws its random numbers from a seed of its own, so the places of the cuts change
// nothing. A block that runs again moves no running statistics: its DeferredBatchNorm is dropped.
Tensors PipelineRunner::run_blocks(const PipelinePart& own, Tensors tensors, const Pass& pass,
                                   int microbatch) {
  for (size_t i = 0; i < own.blocks.size(); ++i) {
    if (setting_.random)
      setting_.random->reseed(mix64(setting_.seed, static_cast<uint64_t>(pass.request.number),
                                    static_cast<uint64_t>(data_rank_),
                                    static_cast<uint64_t>(pass.first_microbatch + microbatch),
                                    static_cast<uint64_t>(own.first_block) + i));
    tensors = counts_activations_
                  ? memory_.output_of(own.first_own + i, tensors,
                                      pass.microbatches[static_cast<size_t>(microbatch)],
                                      [] { return std::make_shared<DeferredBatchNorm>(); })
                  : memory_.blocks()[own.first_own + i].forward(tensors);
    check_outputs(own.blocks[i], tensors);
  }
  return tensors;
}

at::Tensor PipelineRunner::loss_of(const at::Tensor& output, const Batch& batch) {
  const auto loss = [&] { return setting_.loss(output, batch); };
  return counts_activations_ ? memory_.keep("the loss", batch, loss) : loss();
}

void PipelineRunner::hand_on(const plan::PipelineStep& step, const Tensors& outputs) {
  std::vector<Item> items = items_of(outputs);
  if (const auto message = plan_.sends(step))
    mail_.send(*message, items);
  else
    inputs_.insert_or_assign({step.part + 1, step.microbatch}, std::move(items));
}

// Backward through a part, or its first half alone.
void PipelineRunner::backward(const plan::PipelineStep& step, const Pass& pass) {
  Live& live = live_.at({step.part, step.microbatch});
  const Tensors gradients = gradients_for(step, live, pass);
  begin_backward(step);
  setting_.enter(Phase::backward);
  const auto started = std::chrono::steady_clock::now();
  Tensors of_inputs;
  if (step.task == PipelineTask::input_gradient) {
    live.split.emplace(
        live.outputs, gradients, live.inputs,
        pipeline::SplitWatch{.block = [this] { return keeper_.block_of_backward(); },
                             .before = [this](size_t block) { keeper_.enter_weights(block); },
                             .hold = counting()});
    of_inputs = live.split->input_gradients();
    live.holds.clear();
    live.inputs.clear();
    live.outputs.clear();
  } else {
    torch::autograd::variable_list roots, of_roots;
    for (size_t i = 0; i < live.outputs.size(); ++i)
      if (live.outputs[i].requires_grad() && gradients[i].defined()) {
        roots.push_back(live.outputs[i]);
        of_roots.push_back(gradients[i]);
      }
    if (!roots.empty()) {
      torch::autograd::edge_list edges;
      for (const at::Tensor& root : roots)
        edges.push_back(torch::autograd::impl::gradient_edge(root));
      pipeline::add_within_products(edges);
      torch::autograd::backward(roots, of_roots);
    }
    for (const at::Tensor& input : live.inputs) of_inputs.push_back(input.grad());
  }
  times_.add(step, seconds_since(started));
  if (step.part > 0) {
    std::vector<Item> items;
    for (const at::Tensor& gradient : of_inputs) items.push_back({gradient, false});
    if (const auto message = plan_.sends(step))
      mail_.send(*message, items);
    else
      gradients_.insert_or_assign({step.part - 1, step.microbatch}, std::move(items));
  }
  if (step.task == PipelineTask::backward) live_.erase({step.part, step.microbatch});
  keeper_.backward_ended();
}

std::function<ActivationBytes::Hold(const c10::Storage&)> PipelineRunner::counting() {
  if (!counts_activations_) return {};
  return [this](const c10::Storage& storage) { return memory_.hold(storage); };
}

void PipelineRunner::backward_weights(const plan::PipelineStep& step) {
  begin_backward(step);
  setting_.enter(Phase::backward);
  const auto started = std::chrono::steady_clock::now();
  live_.at({step.part, step.microbatch}).split->weight_gradients();
  times_.add(step, seconds_since(started));
  live_.erase({step.part, step.microbatch});
  keeper_.backward_ended();
}

void PipelineRunner::begin_backward(const plan::PipelineStep& step) {
  const BackwardPart half = step.task == PipelineTask::backward         ? BackwardPart::all
                            : step.task == PipelineTask::input_gradient ? BackwardPart::inputs
                                                                        : BackwardPart::weights;
  const PipelinePart& own = part(step.part);
  keeper_.backward_begins(half, own.first_own, own.first_own + own.blocks.size());
}

// The gradients of a part's outputs; undefined where there is none.
Tensors PipelineRunner::gradients_for(const plan::PipelineStep& step, const Live& live,
                                      const Pass& pass) {
  if (is_last_part(step.part)) {
    const Batch& batch = pass.microbatches[static_cast<size_t>(step.microbatch)];
    const double weight = pass.scale * static_cast<double>(batch.size()) /
                          static_cast<double>(pass.request.batch.global_size);
    return {at::full_like(live.outputs[0].detach(), weight)};
  }
  std::vector<Item> items;
  if (const auto message = plan_.needs(step))
    items = mail_.receive(*message);
  else
    items = std::move(gradients_.extract({step.part, step.microbatch}).mapped());
  Tensors gradients;
  for (Item& item : items) gradients.push_back(std::move(item.tensor));
  return gradients;
}

at::Tensor PipelineRunner::evaluate(const Batch& batch) {
  for (const PipelinePart& own : parts_) {
    const plan::PipelineStep step{PipelineTask::forward, 0, own.number};
    Tensors tensors = inputs_of(step, batch);
    for (size_t i = 0; i < own.blocks.size(); ++i)
      tensors = memory_.blocks()[own.first_own + i].forward(tensors);
    if (is_last_part(own.number)) return only_output(own.blocks, tensors);
    hand_on(step, tensors);
  }
  mail_.finish();
  return {};
}

void PipelineRunner::evaluate_without_samples() {
  for (const PipelinePart& own : parts_)
    keeper_.forward_without_samples(own.first_own, own.first_own + own.blocks.size());
}

const PipelinePart& PipelineRunner::part(int number) const {
  return *std::ranges::find(parts_, number, &PipelinePart::number);
}

}  // namespace trireme
