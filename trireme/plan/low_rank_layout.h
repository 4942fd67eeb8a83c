// The layout of gradients that travel as products of two narrow matrices (powersgd). The functions
// are pure.
#pragma once
#include <trireme/plan/compression_plan.h>
#include <cstdint>
#include <span>
#include <vector>

namespace trireme::plan {

// The parameters of a bucket that travel as two factors, and those that travel whole.
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

// Plans the messages of a bucket.
void plan_low_rank(const Compression& compression, const CompressedBucketFacts& bucket,
                   OperationPlanner& operations);

}  // namespace trireme::plan
