// The compressions of gradients, and the operations that each adds to a plan. The layouts of
// compressed gradients have headers of their own: compressors work with them too.
#pragma once
#include <trireme/config/rows.h>
#include <trireme/plan/tensor_spec.h>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::plan {

class OperationPlanner;

struct CompressionOptions {
  // none, bf16, fp16, int8, topk, powersgd, or a registered name.
  std::string name = "none";
  int rank = 2;         // powersgd: the columns of each factor. More are more exact and cost more.
  double ratio = 0.01;  // topk: the fraction of the values that travel.
};
config::Rows rows_of(const CompressionOptions*);

// The names of the compressors that come with Trireme and of those that were added, without
// `none`. Any thread.
std::vector<std::string> compressions();
void add_compression(const std::string& name);

// A format for blocks of numbers.
struct BlockFormat {
  int64_t block = 1;        // The elements that are encoded together.
  int64_t block_bytes = 0;  // The bytes of their code.
};

// A bucket whose compressed reduction is planned.
struct CompressedBucketFacts {
  std::string content;  // See Operation.
  DType dtype = DType::float32;
  int64_t elements = 0;
  std::vector<TensorSpec> parameters;
  CompressionOptions options;
};

// A compression that comes with Trireme.
struct Compression {
  std::string_view name;
  std::optional<BlockFormat> format;  // Of those that encode numbers in blocks.
  // Adds the operations that reduce one bucket.
  void (*plan)(const Compression&, const CompressedBucketFacts&, OperationPlanner&);
};

// The format of the compression's blocks; nothing if it has none, or for other names.
std::optional<BlockFormat> block_format_of(const std::string& compression);
// Adds the operations that reduce one bucket. Returns false if they are not known, because the
// compressor does not come with Trireme.
bool plan_compressed(const CompressedBucketFacts& bucket, OperationPlanner& operations);

}  // namespace trireme::plan
