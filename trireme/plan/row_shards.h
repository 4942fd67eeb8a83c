// Decides which rows of each parameter each rank owns when the ranks divide the optimizer's state,
// gradients or parameters among them, and which rows travel together. The functions are pure.
//
// Parameters are cut along their first dimension, as in PyTorch's FSDP2, so that a rank's rows are
// a box of the tensor and contiguous memory.
#pragma once
#include <trireme/base/json.h>
#include <trireme/plan/bucket_plan.h>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace trireme::plan {

struct RowRange {
  int64_t from = 0, to = 0;
  int64_t count() const { return to - from; }
  bool operator==(const RowRange&) const = default;
};

// Parameters of one type whose rows travel together. In a message each rank has a block of
// `block_elements` with the rows that it owns, one parameter after the other; shorter blocks are
// padded.
struct RowUnit {
  DType dtype = DType::float32;
  bool trainable = true;
  std::vector<int> params;  // Indices into the given specs.
  // [rank][i]: the place of the rows of params[i] in that rank's block.
  std::vector<std::vector<int64_t>> offsets;
  int64_t block_elements = 0;
  std::vector<int> blocks;  // The blocks of the model that use these parameters, in order.
  // The unit is one parameter whose ranks own equally many rows: its own memory is the message.
  bool is_in_place = false;
};

bool uses(const RowUnit& unit, int block);

struct RowShards {
  int ranks = 1;
  // [parameter][rank]: the rows of each rank, in the order of the ranks. Empty if the parameter is
  // not divided, and every rank owns all of it.
  std::vector<std::vector<RowRange>> rows;
  // Each divided parameter is in one unit. Those of the last blocks come first.
  std::vector<RowUnit> units;

  bool divides(int param) const { return !rows[static_cast<size_t>(param)].empty(); }
  // The elements of the parameters (the trainable ones, or those that are frozen) that a rank owns
  // and divides with others.
  int64_t elements_of(int rank, std::span<const TensorSpec> params, bool trainable = true) const;
  Json to_json() const;
};

struct RowShardOptions {
  BucketOptions buckets;       // The size of a unit of several parameters.
  bool divide_frozen = false;  // Otherwise every rank owns those that are not trained.
  // Parameters whose rows are given out evenly, whatever the other ones are. Ranks that have such
  // a parameter in another mesh position, beside other parameters, then own the same rows of it.
  std::set<int> evenly;
};

// blocks[b]: the parameters that block b of the model uses. A tied parameter may be in several
// blocks; one that is in none counts as used by all. Parameters without dimensions or elements are
// not divided. A small parameter belongs to one rank, chosen so that all ranks own equally many
// bytes; after each unit the ranks differ by about one row, apart from those cut `evenly`. Throws
// Error(invalid_argument) if there is no rank, or naming a block and parameter that do not fit.
RowShards plan_row_shards(std::span<const TensorSpec> params,
                          std::span<const std::vector<int>> blocks, int ranks,
                          const RowShardOptions& options = {});

// Throws Error(internal) naming the parameter unless each row of a divided parameter belongs to
// one rank, and each divided parameter travels in one unit of its type, in which no rows overlap.
void check(const RowShards& shards, std::span<const TensorSpec> params);

}  // namespace trireme::plan
