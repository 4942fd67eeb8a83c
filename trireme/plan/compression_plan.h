// The sizes of compressed gradients: the compressors work with them, and plans foresee them. The
// functions are pure.
#pragma once
#include <trireme/config/rows.h>
#include <trireme/plan/tensor_spec.h>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme::plan {

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
// The format of bf16, fp16 and int8; nothing for other names.
std::optional<BlockFormat> block_format_of(const std::string& compression);

// The division of a bucket that travels in blocks. Each rank owns a chunk of whole blocks, and at
// most `piece` elements of a chunk travel in one message.
struct QuantisedLayout {
  BlockFormat format;
  int64_t chunk = 0;  // The elements of each rank's chunk; zeros fill up the last chunks.
  int64_t piece = 0;
  int64_t pieces() const { return (chunk + piece - 1) / piece; }
  int64_t bytes_of(int64_t elements) const { return elements / format.block * format.block_bytes; }
};
QuantisedLayout lay_out_quantised(int64_t elements, int ranks, const BlockFormat& format);

// topk: the number of values of a bucket that each rank sends.
int64_t kept_values(int64_t elements, double ratio);

// powersgd: the parameters of a bucket that travel as two factors, and those that travel whole.
struct LowRankLayout {
  struct Matrix {
    size_t parameter = 0;  // Its index in the list of the bucket's parameters.
    int64_t rows = 0, columns = 0, rank = 0;
    int64_t p = 0, q = 0;  // The beginnings of its factors among those of all matrices.
  };
  struct Whole {
    size_t parameter = 0;
    int64_t place = 0;  // Its place behind the P factors.
  };
  std::vector<Matrix> matrices;
  std::vector<Whole> whole;
  // The elements of the two messages: the P factors and the whole parameters, and the Q factors.
  int64_t p_elements = 0, q_elements = 0;
};
// A parameter is a matrix of its first dimension by all others. Vectors, and matrices whose
// factors would not be smaller, travel whole.
LowRankLayout lay_out_low_rank(std::span<const TensorSpec> parameters, int rank);

}  // namespace trireme::plan
