// Gradients that move to their file when backward has left their block.
#pragma once
#include <trireme/parallel/mesh/block_visits.h>
#include <trireme/parallel/mesh/parameter_keeper.h>
#include <trireme/parallel/shared/gradient_files.h>
#include <vector>

namespace trireme {

// A hook of autograd at each parameter (GradientWatch) would do the same, but a stage then could
// not add up gradients inside matrix products (pipeline/gradient_sums.h), and its sums would have
// other bits. Used by one thread, as the visitor of the setting's blocks and as
// ParameterKeeper::backward_begins() says.
class GradientsByBlock : public BlockVisitor {
 public:
  // The gradients of `files` are those of the setting's parameters, in their order. `files`
  // outlives the object.
  GradientsByBlock(const ParameterKeeperSetting& setting, shared::GradientFiles& files);

  void begin(size_t first, size_t last);
  size_t entered() const { return entered_; }
  void enter(size_t block);  // Backward has left the blocks after this one.
  void end();                // It has left all of them.

  void before_forward(size_t) override {}
  void after_forward(size_t) override {}
  void before_backward(size_t block) override { enter(block); }

 private:
  const std::vector<std::vector<int>> by_block_;
  shared::GradientFiles& files_;
  size_t first_ = 0;
  size_t entered_ = 0;  // The block that was entered last, or the end of the blocks.
  size_t left_ = 0;     // Gradients of this block and those behind it have moved.
};

}  // namespace trireme
