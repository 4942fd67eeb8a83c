// Keeps the parameters of the blocks that run, and no others: fetched before a block's forward and
// backward, and freed after it (Rajbhandari et al. 2019, "ZeRO", section 5.3; Zhao et al. 2023,
// "PyTorch FSDP", section 3).
#pragma once
#include <trireme/parallel/mesh/row_messages.h>
#include <vector>

namespace trireme {

// Used by one thread. What begins to fetch is COLLECTIVE along the data axis: all ranks visit the
// blocks in the same order.
class GatheredBlocks {
 public:
  // Frees the divided parameters. With `prefetches` the next block is fetched while one computes.
  // The arguments outlive the object.
  GatheredBlocks(RowMessages& messages, const std::vector<OwnTensor>& parameters,
                 const plan::RowShards& shards, bool prefetches);
  // Gives the parameters memory again, with the own rows in it and zeros elsewhere.
  void restore(const OwnRows& own);

  void before_forward(int block);
  // `stays`: its backward or another pass comes next.
  void after_forward(int block, bool stays);
  // `goes_on`: backward then comes to the block before it.
  void before_backward(int block, bool goes_on);
  // Forward or backward has ended or was abandoned: frees everything.
  void leave();

 private:
  static constexpr int kNone = -1;
  bool is_needed(const plan::RowUnit& unit) const;
  void free_others();
  void start(int block);
  void expect(int block) const;
  void enter(int block, int next);

  RowMessages& messages_;
  const std::vector<OwnTensor>& parameters_;
  const plan::RowShards& shards_;
  const bool prefetches_;
  std::vector<bool> is_there_;  // [unit]: it has memory, and values unless they are being fetched.
  int running_ = kNone, staying_ = kNone, next_ = kNone;  // Blocks.
};

}  // namespace trireme
