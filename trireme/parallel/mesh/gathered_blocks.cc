#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <trireme/parallel/mesh/gathered_blocks.h>
#include <trireme/tensor/hollow.h>

namespace trireme {

GatheredBlocks::GatheredBlocks(RowMessages& messages, const std::vector<OwnTensor>& parameters,
                               const plan::RowShards& shards, bool prefetches)
    : messages_(messages),
      parameters_(parameters),
      shards_(shards),
      prefetches_(prefetches),
      is_there_(shards.units.size(), true) {
  free_others();
}

void GatheredBlocks::restore(const OwnRows& own) {
  const at::NoGradGuard no_grad;
  leave();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!shards_.divides(static_cast<int>(i))) continue;
    give_memory(parameters_[i].tensor);
    const at::Tensor memory = parameters_[i].tensor.variable_data();
    memory.zero_();
    const at::Tensor& rows = own.parts()[i].tensor;
    memory.narrow(0, own.first_row(i), rows.size(0)).copy_(rows);
  }
}

bool GatheredBlocks::is_needed(const plan::RowUnit& unit) const {
  return uses(unit, running_) || uses(unit, staying_) || uses(unit, next_);
}

void GatheredBlocks::free_others() {
  for (size_t unit = 0; unit < shards_.units.size(); ++unit) {
    if (!is_there_[unit] || is_needed(shards_.units[unit])) continue;
    messages_.finish_gathering(unit);
    for (const int param : shards_.units[unit].params)
      make_hollow(parameters_[static_cast<size_t>(param)].tensor);
    is_there_[unit] = false;
  }
}

void GatheredBlocks::start(int block) {
  for (size_t unit = 0; unit < shards_.units.size(); ++unit) {
    if (is_there_[unit] || !uses(shards_.units[unit], block)) continue;
    for (const int param : shards_.units[unit].params)
      give_memory(parameters_[static_cast<size_t>(param)].tensor);
    messages_.start_gathering(unit);
    is_there_[unit] = true;
  }
}

void GatheredBlocks::expect(int block) const {
  for (size_t unit = 0; unit < shards_.units.size(); ++unit)
    if (!is_there_[unit] && uses(shards_.units[unit], block)) messages_.expect_gathering(unit);
}

void GatheredBlocks::enter(int block, int next) {
  running_ = block;
  next_ = kNone;
  free_others();
  start(block);
  for (size_t unit = 0; unit < shards_.units.size(); ++unit)
    if (uses(shards_.units[unit], block)) messages_.finish_gathering(unit);
  if (!prefetches_) return expect(next);
  if (next == kNone) return;
  next_ = next;
  start(next);
}

void GatheredBlocks::before_forward(int block) {
  staying_ = kNone;
  enter(block, block + 1);
}

void GatheredBlocks::after_forward(int block, bool stays) {
  running_ = kNone;
  staying_ = stays ? block : kNone;
  free_others();
}

void GatheredBlocks::before_backward(int block, bool goes_on) {
  staying_ = kNone;
  enter(block, goes_on ? block - 1 : kNone);
}

void GatheredBlocks::leave() {
  running_ = staying_ = next_ = kNone;
  free_others();
}

}  // namespace trireme
