// Decides which blocks of a model belong to which part, such as a stage of a pipeline. A part is a
// run of blocks that follow each other. The functions are pure.
#pragma once
#include <trireme/base/json.h>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::plan {

// The costs of one block of a chain. A cost that is not known is 0.
struct BlockCost {
  std::string name;
  int64_t parameters = 0;        // Elements.
  double forward_seconds = 0;    // For one micro-batch.
  double backward_seconds = 0;   // For one micro-batch.
  int64_t parameter_bytes = 0;   // Its parameters, with their gradients and optimizer state.
  int64_t activation_bytes = 0;  // Kept for backward, for each micro-batch.
  int64_t output_bytes = 0;      // Sent to the next block, for each micro-batch.
  // Kept besides by a part that begins with it, for each micro-batch.
  int64_t entry_bytes = 0;
};

// The cost that is made even.
enum class PartitionMeasure {
  parameters,  // Elements.
  time,        // Forward and backward of one micro-batch, in nanoseconds.
  memory,      // Parameter bytes, and the activation bytes of the micro-batches that are held.
};
std::string_view to_string(PartitionMeasure measure);

struct PartitionOptions {
  int parts = 0;  // 0: as many as a cut by hand makes.
  // `parameters`, `time` or `memory`: the partition whose largest part is the smallest. `auto`:
  // by time if a time is known, else by parameters. Everything else is a cut by hand, either the
  // first blocks of all parts but the first, by name or by number from 0 ("block3,block6"; a name
  // counts before a number), or the number of blocks in each part ("3+3+2").
  std::string cut = "auto";
  // Memory: for each part, the micro-batches whose activations it holds at its peak. Early stages
  // of 1F1B hold more. If empty, each part holds one.
  std::vector<int> micro_batches_held;
  int64_t limit_bytes = 0;  // Memory: no part may need more. 0: no limit.
  // Groups of blocks that have a tensor in common (tied weights), by number.
  std::vector<std::vector<int>> shared;
};

// Blocks that have a tensor in common.
struct SharedBlocks {
  std::vector<int> blocks;  // Ascending.
  std::vector<int> parts;   // The parts that these blocks are in, ascending, each once.
};

struct Partition {
  std::vector<std::string> blocks;  // The names of all blocks, in their order.
  std::vector<int> first;           // [part]: its first block. first[0] is 0.
  PartitionMeasure measure = PartitionMeasure::parameters;
  bool by_hand = false;
  std::vector<int64_t> loads;  // [part]: its cost, in the unit of `measure`.
  std::vector<int64_t>
      cut_bytes;        // [part but the last]: sent to the next part, for a micro-batch.
  double evenness = 1;  // The largest load over the mean load; 1 is even.
  std::string limit;    // A sentence: why it is not more even.
  std::vector<SharedBlocks> shared;

  int parts() const { return static_cast<int>(first.size()); }
  // The blocks [from, to) of a part.
  std::pair<int, int> blocks_of(int part) const;
  int part_of(int block) const;
  std::string describe() const;  // A line for each part, and the limit.
  Json to_json() const;
};

// Cuts a chain of blocks into parts, of which none is empty. A cut by a measure is optimal: no
// contiguous partition has a smaller largest load. Among those with the same largest load it takes
// the one with the least sum of squared loads, then the fewest bytes across its cuts, then the
// earliest cuts. It takes parts x blocks^2 steps. The loads of a cut by hand are by time if a time
// is known, else by parameters.
// Throws Error(invalid_argument) naming the value for: more parts than blocks, an empty part,
// cuts that do not ascend, a block that does not exist (with the nearest name), a measure that no
// block has, a negative cost, and a limit that no partition keeps (with the least that works).
Partition partition(std::span<const BlockCost> blocks, const PartitionOptions& options);

// Throws Error(internal) naming the part unless each block belongs to one part and no part is
// empty.
void check(const Partition& partition);

}  // namespace trireme::plan
