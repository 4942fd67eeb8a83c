// Blocks that report when forward and backward enter and leave them.
#pragma once
#include <trireme/parallel/model.h>
#include <memory>
#include <vector>

namespace trireme {

// The calls come on the thread that runs forward or backward. Their exceptions come out of it.
class BlockVisitor {
 public:
  virtual ~BlockVisitor() = default;
  virtual void before_forward(size_t block) = 0;
  virtual void after_forward(size_t block) = 0;
  // All gradients for the outputs of the block are there, so backward has left the blocks after
  // it. Nobody calls it for outputs that need no gradient.
  virtual void before_backward(size_t block) = 0;
};

// The same blocks, which call the visitor while it lives.
std::vector<Block> visited(const std::vector<Block>& blocks,
                           const std::shared_ptr<BlockVisitor>& visitor);

// True on a thread that runs a backward.
bool is_in_backward();

}  // namespace trireme
