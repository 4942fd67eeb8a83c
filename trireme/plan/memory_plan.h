// Decides which activations of a chain of blocks stay in memory between forward and backward, and
// in which order blocks run. The functions are pure.
#pragma once
#include <trireme/base/json.h>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::plan {

// The place of a block's activations between its forward and its backward.
enum class MemoryDecision {
  keep,       // In memory.
  recompute,  // Nowhere: only the block's input stays, and forward runs again.
  swap,       // In host memory or a file. They come back ahead of use.
  compress,   // In memory, in fewer bytes.
};
std::string_view to_string(MemoryDecision decision);

// The costs of a block's forward and backward, as measured in one step. A block's output is the
// next block's input: where both are given and differ, the larger one counts.
struct BlockMemory {
  std::string name;
  double forward_seconds = 0, backward_seconds = 0;
  int64_t inner_bytes = 0;  // Autograd saves them in the block, without its input and output.
  int64_t input_bytes = 0, output_bytes = 0;
  bool saves_input = true, saves_output = false;  // Whether autograd saves these too.
  // Memory that exists only while forward or backward runs.
  int64_t forward_extra_bytes = 0, backward_extra_bytes = 0;
  // The inner bytes in storages that are too small to be swapped or compressed.
  int64_t still_bytes = 0;
  MemoryDecision decision = MemoryDecision::keep;  // Result; see MemoryPlan::is_nested.
};

struct MemoryRule {
  std::string pattern;  // For the names of blocks; * stands for any text.
  MemoryDecision decision = MemoryDecision::keep;
};
bool matches(const MemoryRule& rule, std::string_view block);

struct MemoryPlanOptions {
  // none, recompute, swap, or auto, which takes whatever costs the least time.
  std::string policy = "none";
  // The peak may not exceed it. 0: no budget; `recompute` and `swap` then treat all blocks but the
  // last so, for which it saves nothing.
  int64_t budget_bytes = 0;
  std::vector<MemoryRule> rules;  // They go before the policy. The last one that matches counts.
  // The copies to and from where swapped activations are; 0: no swapping. Each direction has a
  // stream of its own, which works in order and beside the computation.
  double out_bytes_per_second = 0, in_bytes_per_second = 0;
  // Compressed bytes for each byte, such as 0.5 for 16 instead of 32 bits; 0: nothing can be
  // compressed. The seconds are those of one direction.
  double compressed_fraction = 0, compress_seconds_per_byte = 0;
  bool compresses_by_rule_only = false;  // `auto` compresses nothing: gradients would change.
  int64_t least_moved_bytes = 0;         // Smaller inputs of blocks are not swapped or compressed.
  bool can_nest = true;  // Whether a block may run forward more than twice (operations).
  // Whether the gradients between blocks count, and whether the chain's input needs one.
  bool counts_gradients = true, input_gradient = false;
};

// A step is a sequence of operations. x(i) is the input of block i. It goes when nothing holds it.
struct MemoryOperation {
  enum class Kind {
    forward_all,  // Saves for backward. Uses x(i), makes x(i+1) and the block's activations.
    forward_checkpoint,  // Saves nothing; x(i) stays until the backward of the block.
    forward_nothing,     // Saves nothing; x(i) goes.
    loss,                // The loss and the gradient of the last output. Its block is -1.
    backward,            // Uses what forward_all saved, and frees it.
    swap_out,            // A copy of what is saved begins.
    wait_out,            // It has ended, and the memory is free.
    swap_in,             // Memory is taken, and the copy back begins.
    wait_in,             // It has ended.
    compress,
    decompress,
  };
  Kind kind = Kind::forward_all;
  int block = 0;
  bool operator==(const MemoryOperation&) const = default;
};
using MemoryKind = MemoryOperation::Kind;
std::string to_string(const MemoryOperation& operation);  // "F_all(3)"
constexpr bool is_forward(MemoryKind kind) { return kind <= MemoryKind::forward_nothing; }

// [block]: the last block from whose backward on, down to its own, memory only becomes free:
// blocks that run again or are compressed first take some. What was swapped may be read back from
// there.
std::vector<int> last_blocks_with_room(std::span<const MemoryDecision> decisions);

struct MemoryPlan {
  MemoryPlanOptions options;
  std::vector<BlockMemory> blocks;  // With decisions.
  // All of a step. In a plan that is not nested they say no more than the decisions do, besides
  // the times of copies.
  std::vector<MemoryOperation> operations;
  // Whether a block runs forward more than twice, or for another reason not as its decision says:
  // then only `operations` tell how.
  bool is_nested = false;
  // Predicted, also for the plan that keeps everything. Seconds are those of a step of the chain.
  int64_t peak_bytes = 0, keep_all_bytes = 0;
  double seconds = 0, keep_all_seconds = 0;
  double waiting_seconds = 0;  // For copies; part of `seconds`.

  // [block]: the block before whose backward its activations may be read back, if it is swapped:
  // when the plan says, or earlier if only blocks that are kept or swapped lie between.
  std::vector<int> read_from() const;
  double slowdown() const { return keep_all_seconds > 0 ? seconds / keep_all_seconds : 1; }
  std::string describe() const;  // A line for each block; the operations of a nested plan.
  Json to_json() const;
};

// Plans a step of the chain: the fastest of these plans that keeps the budget, and of equal ones
// the first.
// - Where each block is kept, compressed, or recomputed once, the best one by dynamic programming
//   over the pairs (bytes held, seconds) of which none is better in both. Exact up to 65536 pairs.
// - Where blocks may run more often: the persistent schedule of Beaumont et al., arXiv 1911.13214
//   (their theorem), over discretised bytes. Only without rules, and for at most 256 blocks.
// - With swapping: the fastest in a simulation of the copies, over all decisions for up to 6
//   free blocks, else over the best for each of several prices of a copied byte, improved block by
//   block (up to 32 blocks).
// Throws Error(invalid_argument) naming the value for: an unknown policy, a rule that matches no
// block, a cost below 0, swapping or compressing without its numbers, and a budget that no plan
// keeps (with the least that works).
MemoryPlan plan_memory(std::vector<BlockMemory> blocks, const MemoryPlanOptions& options);

// Runs the plan's operations on paper. Throws Error(internal) naming the operation that lacks what
// it needs, a block without its backward, a peak above the budget, or predictions that do not come
// true.
void check(const MemoryPlan& plan);

}  // namespace trireme::plan
