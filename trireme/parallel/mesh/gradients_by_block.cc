#include <ATen/core/Tensor.h>

#include <trireme/parallel/mesh/gradients_by_block.h>
#include <algorithm>

namespace trireme {

GradientsByBlock::GradientsByBlock(const ParameterKeeperSetting& setting,
                                   shared::GradientFiles& files)
    : by_block_(parameters_by_block(setting)), files_(files) {}

void GradientsByBlock::begin(size_t first, size_t last) {
  first_ = first;
  entered_ = left_ = last;
}

void GradientsByBlock::enter(size_t block) {
  entered_ = std::clamp(block, first_, entered_);
  while (left_ > entered_ + 1)
    for (const int parameter : by_block_[--left_]) files_.keep(parameter);
}

void GradientsByBlock::end() {
  while (left_ > first_)
    for (const int parameter : by_block_[--left_]) files_.keep(parameter);
}

}  // namespace trireme
