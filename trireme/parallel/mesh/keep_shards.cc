#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <trireme/base/error.h>
#include <trireme/parallel/boxes.h>
#include <trireme/parallel/gradients.h>
#include <trireme/parallel/mesh/block_visits.h>
#include <trireme/parallel/mesh/gathered_blocks.h>
#include <trireme/parallel/mesh/gradients_by_block.h>
#include <trireme/parallel/mesh/keep_shards.h>
#include <trireme/parallel/mesh/part_optimizer.h>
#include <algorithm>
#include <functional>
#include <optional>
#include <set>

namespace trireme {
namespace {

plan::RowShards shards_of(const ParameterKeeperSetting& setting, int level) {
  const auto specs = specs_of(named(setting.parameters));
  plan::RowShardOptions options{setting.buckets, /*divide_frozen=*/level == 3, {}};
  for (size_t i = 0; i < setting.parameters.size(); ++i)
    if (setting.parameters[i].is_elsewhere) options.evenly.insert(static_cast<int>(i));
  plan::RowShards shards = plan::plan_row_shards(specs, parameters_by_block(setting),
                                                 setting.replicas->size(), options);
  plan::check(shards, specs);
  return shards;
}

// The parameters that get their values at the same time: those of blocks that follow each other
// and together need no more memory than the largest block. Each time costs a run of the model's
// factory. A parameter belongs to the first block that uses it.
std::vector<std::vector<size_t>> made_together(const ParameterKeeperSetting& setting) {
  std::vector<std::vector<size_t>> by_block;
  std::vector<size_t> bytes;
  std::set<int> seen;
  for (const std::vector<int>& used : parameters_by_block(setting)) {
    by_block.emplace_back();
    bytes.push_back(0);
    for (const int param : used) {
      if (!seen.insert(param).second) continue;
      by_block.back().push_back(static_cast<size_t>(param));
      bytes.back() += setting.parameters[static_cast<size_t>(param)].tensor.nbytes();
    }
  }
  const size_t most = bytes.empty() ? 0 : *std::ranges::max_element(bytes);
  std::vector<std::vector<size_t>> groups;
  size_t together = 0;
  for (size_t block = 0; block < by_block.size(); ++block) {
    together += bytes[block];
    if (groups.empty() || together > most) {
      groups.emplace_back();
      together = bytes[block];
    }
    groups.back().insert(groups.back().end(), by_block[block].begin(), by_block[block].end());
  }
  return groups;
}

OwnRows::EachInTurn in_turn(const ParameterKeeperSetting& setting) {
  return [&setting](const std::function<void(size_t)>& take) {
    for (const std::vector<size_t>& group : made_together(setting)) {
      std::set<std::string> names;
      for (const size_t i : group) names.insert(setting.parameters[i].name);
      if (setting.materialise) setting.materialise(names);
      for (const size_t i : group) take(i);
    }
  };
}

// The memory of parameters comes and goes, so nothing else may lie in it.
void check_memory(const std::vector<OwnTensor>& parameters) {
  for (const OwnTensor& own : parameters)
    if (own.tensor.storage().nbytes() != own.tensor.nbytes())
      throw Error(
          ErrorCode::unsupported, "parallel",
          fmt::format("shard.level 3 frees the memory of '{}', and other tensors lie in it",
                      own.name),
          "parameters that are no views of each other, or shard.level 2");
}

class Shards : public ParameterKeeper {
 public:
  Shards(ParameterKeeperSetting setting, int level)
      : setting_(std::move(setting)),
        level_(level),
        shards_(shards_of(setting_, level)),
        own_(setting_.parameters, shards_, setting_.replicas->rank(),
             level == 3 ? in_turn(setting_) : OwnRows::EachInTurn()),
        optimizer_(setting_, own_.parts(), own_.updated(), tensors_with_gradients_in_files()),
        messages_(setting_.replicas, setting_.parameters, own_, shards_, optimizer_.offloaded()) {
    if (!optimizer_.can_be_divided())
      throw Error(ErrorCode::unsupported, "parallel",
                  fmt::format("shard.level {} lets each rank update its rows of a parameter, and "
                              "whether this optimizer can do that is not known (or a parameter is "
                              "not contiguous float32 or float64)",
                              level_),
                  "shard.level 0, or SGD, Adam, AdamW, RMSprop, Adagrad, Lars or Lamb");
    if (level_ == 3) check_memory(setting_.parameters);
    if (level_ == 3)
      gathered_.emplace(messages_, setting_.parameters, shards_,
                        setting_.replicas->runs_in_background());
    if (level_ >= 2) visitor_ = std::make_shared<Visitor>(*this);
    if (level_ == 1 && optimizer_.gradient_files())
      by_block_ = std::make_shared<GradientsByBlock>(setting_, *optimizer_.gradient_files());
  }
  // Does not communicate: the parameters get this rank's rows, and zeros elsewhere. A model that
  // may be larger than memory stays hollow.
  ~Shards() override {
    visitor_.reset();
    messages_.drop();
    if (gathered_ && setting_.offload.parameters) gathered_->leave();
    if (gathered_ && !setting_.offload.parameters) gathered_->restore(own_);
  }
  Shards(const Shards&) = delete;

  std::vector<Block> blocks() const override {
    std::vector<Block> blocks = setting_.blocks;
    if (level_ < 3 && optimizer_.offloaded()) blocks = optimizer_.offloaded()->paged(blocks);
    if (by_block_) blocks = visited(blocks, by_block_);
    return visitor_ ? visited(blocks, visitor_) : blocks;
  }
  void forward_without_samples(size_t first, size_t last) override {
    for (size_t block = first; visitor_ && block < last; ++block) {
      visitor_->before_forward(block);
      visitor_->after_forward(block);
    }
  }

  void backward_begins(BackwardPart part, size_t first, size_t last) override {
    backward_ = {part, first, /*entered=*/last};
    if (by_block_) by_block_->begin(first, last);
  }
  size_t block_of_backward() const override {
    return by_block_ ? by_block_->entered() : backward_.entered;
  }
  void enter_weights(size_t block) override {
    if (visitor_) enter_backward(block);
    if (by_block_) by_block_->enter(block);
  }
  // Backward may have left out blocks at the end, and so have replicas without samples. In the
  // first half it does not come to blocks whose inputs need no gradients: then all is in the
  // second.
  void backward_ended() override {
    if (by_block_) by_block_->end();
    if (level_ == 1) return;
    const bool is_first_half = backward_.part == BackwardPart::inputs;
    if (!is_first_half || setting_.leaves_backward[backward_.first])
      enter_backward(backward_.first);
    if (gathered_) gathered_->leave();
    if (!is_first_half) reduce_owed_after(-1);
  }

  void reduce() override {
    if (level_ == 1) {
      owe_units([](const plan::RowUnit&) { return true; });
      reduce_owed_after(-1);
    }
    messages_.finish_reductions();
    share_flags();
  }

  std::vector<NamedTensor> updated() const override { return own_.updated(); }

  double squared_norm() override { return optimizer_.squared_norm(); }

  int64_t update(double factor) override {
    optimizer_.scale_gradients(factor);
    optimizer_.step_divided(*setting_.replicas, shards_);
    own_.masters().publish();
    for (size_t i = 0; i < setting_.parameters.size(); ++i)
      if (const at::Tensor& parameter = setting_.parameters[i].tensor;
          shards_.divides(static_cast<int>(i)) && parameter.requires_grad())
        parameter.unsafeGetTensorImpl()->bump_version();
    return optimizer_.counted_elements();
  }

  void publish() override {
    if (level_ < 3) gather_all();  // With level 3 every block fetches its parameters.
    if (optimizer_.offloaded()) optimizer_.offloaded()->leave();
  }

  void drop_gradients() override {
    messages_.drop();
    if (optimizer_.gradient_files()) optimizer_.gradient_files()->leave();
    if (gathered_) gathered_->leave();
    owed_.clear();
    backward_ = {};
  }

  void show(EngineState& state) const override {
    for (const OwnTensor& own : level_ == 3 ? own_.parts() : setting_.parameters)
      show_boxes(own.name, own.boxes, own.tensor, StateKind::parameter, state.tensors);
    optimizer_.show(state);
  }
  void begin_load(const IncomingState& incoming) override {
    own_.masters().adopt();
    optimizer_.begin_load(incoming);
  }
  void end_load() override {
    optimizer_.end_load();
    own_.masters().publish();
  }
  std::vector<double> rates() const override { return optimizer_.rates(); }
  void set_rates(std::span<const double> rates) override { optimizer_.set_rates(rates); }

 private:
  class Visitor : public BlockVisitor {
   public:
    explicit Visitor(Shards& keeper) : keeper_(keeper) {}
    // A block that runs again is there since backward has entered it. Ranks without samples run
    // nothing again, and all have to gather alike.
    void before_forward(size_t block) override {
      if (keeper_.gathered_ && !is_in_backward())
        keeper_.gathered_->before_forward(static_cast<int>(block));
    }
    void after_forward(size_t block) override {
      if (!keeper_.gathered_ || is_in_backward()) return;
      // The last block's backward is next.
      const bool is_last = block + 1 == keeper_.setting_.blocks.size();
      keeper_.gathered_->after_forward(static_cast<int>(block),
                                       at::GradMode::is_enabled() && is_last);
    }
    void before_backward(size_t block) override { keeper_.enter_backward(block); }

   private:
    Shards& keeper_;
  };

  void gather_all() {
    for (size_t unit = 0; unit < shards_.units.size(); ++unit) {
      messages_.start_gathering(unit);
      if (!setting_.replicas->runs_in_background()) messages_.finish_gathering(unit);
    }
    for (size_t unit = 0; unit < shards_.units.size(); ++unit) messages_.finish_gathering(unit);
  }

  // Whole gradients of level 1, or the sums of the own rows.
  std::vector<NamedTensor> tensors_with_gradients_in_files() const {
    return level_ == 1 ? named(setting_.parameters) : own_.updated();
  }

  // Backward has left the blocks after this one. All replicas enter each block once, in the same
  // order, whatever way the gradients took through the blocks.
  void enter_backward(size_t block) {
    while (backward_.entered > std::max(block, backward_.first)) {
      --backward_.entered;
      if (setting_.enters_backward[backward_.entered]) enter_next(backward_.entered);
    }
  }
  void enter_next(size_t entered) {
    const auto block = static_cast<int>(entered);
    messages_.finish_reductions();
    // Gradients of the first half wait for those of the second one.
    if (backward_.part != BackwardPart::inputs) {
      reduce_owed_after(block);
      owe_units([&](const plan::RowUnit& unit) { return uses(unit, block); });
    }
    const bool goes_on = entered > backward_.first && setting_.leaves_backward[entered];
    if (gathered_) gathered_->before_backward(block, goes_on);
  }

  // The units' gradients are due once backward has left all blocks that use them.
  void owe_units(const std::function<bool(const plan::RowUnit&)>& chosen) {
    for (size_t unit = 0; unit < shards_.units.size(); ++unit)
      if (shards_.units[unit].trainable && chosen(shards_.units[unit])) owed_.insert(unit);
  }
  void reduce_owed_after(int block) {
    std::erase_if(owed_, [&](size_t unit) {
      if (!shards_.units[unit].blocks.empty() && shards_.units[unit].blocks.front() <= block)
        return false;
      messages_.start_reduction(unit);
      return true;
    });
  }

  // One message says which parameters have gradients on some rank. It carries the gradients of
  // parameters that are not divided too: their update is the same on all ranks. In float64 the
  // sum of their few elements is not coarser than that of the others.
  void share_flags() {
    const at::NoGradGuard no_grad;
    const auto count = std::ssize(setting_.parameters);
    int64_t elements = count;
    for (const OwnTensor* const own : undivided()) elements += own->tensor.numel();
    const at::Tensor values = at::zeros({elements}, at::kDouble);
    int64_t next = count;
    for (const OwnTensor* const own : undivided()) {
      const int64_t size = own->tensor.numel();
      if (own->tensor.grad().defined())
        values.narrow(0, next, size).copy_(own->tensor.grad().reshape({-1}));
      next += size;
    }
    auto* const flags = values.mutable_data_ptr<double>();
    for (int64_t i = 0; i < count; ++i) {
      const auto index = static_cast<size_t>(i);
      flags[i] = shards_.divides(static_cast<int>(i))
                     ? messages_.had_gradient(index)
                     : setting_.parameters[index].tensor.grad().defined();
    }
    setting_.replicas->all_reduce(values);
    take_flags(values);
  }

  void take_flags(const at::Tensor& values) {
    const auto* const flags = values.const_data_ptr<double>();
    int64_t next = std::ssize(setting_.parameters);
    for (size_t i = 0; i < setting_.parameters.size(); ++i) {
      const at::Tensor& updated = own_.updated()[i].tensor;
      const bool is_used = flags[i] > 0;
      if (shards_.divides(static_cast<int>(i))) {
        if (!is_used) updated.mutable_grad().reset();
        continue;
      }
      if (!updated.requires_grad()) continue;
      const at::Tensor sum = values.narrow(0, next, updated.numel());
      next += updated.numel();
      setting_.parameters[i].tensor.mutable_grad().reset();
      if (is_used)
        updated.mutable_grad() = sum.to(updated.scalar_type()).view(updated.sizes()).clone();
    }
  }

  std::vector<const OwnTensor*> undivided() const {
    std::vector<const OwnTensor*> all;
    for (size_t i = 0; i < setting_.parameters.size(); ++i)
      if (const OwnTensor& own = setting_.parameters[i];
          !shards_.divides(static_cast<int>(i)) && own.tensor.requires_grad())
        all.push_back(&own);
    return all;
  }

  const ParameterKeeperSetting setting_;
  const int level_;
  const plan::RowShards shards_;
  const OwnRows own_;
  PartOptimizer optimizer_;
  RowMessages messages_;
  std::optional<GatheredBlocks> gathered_;
  std::shared_ptr<Visitor> visitor_;
  std::shared_ptr<GradientsByBlock> by_block_;  // Null unless whole gradients are in a file.
  struct Backward {
    BackwardPart part = BackwardPart::all;
    size_t first = 0;
    size_t entered = 0;  // The block that was entered last, or the end of the blocks.
  };
  Backward backward_;
  std::set<size_t> owed_;  // The units of blocks that backward has entered and not yet left.
};

}  // namespace

std::unique_ptr<ParameterKeeper> keep_shards(ParameterKeeperSetting setting, int level) {
  if (level == 0 || setting.replicas->size() == 1) return keep_copies(std::move(setting));
  return std::make_unique<Shards>(std::move(setting), level);
}

}  // namespace trireme
