// The samples that one replica computes in a step.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/plan/data_plan.h>
#include <cstdint>
#include <vector>

namespace trireme {

struct Batch {
  at::Tensor data, target;       // The first dimension is this replica's share; it may be 0.
  std::vector<int64_t> indices;  // The samples of the share, in order.
  int64_t global_size = 0;       // The size of the whole global batch.
  plan::DataPosition position;   // The position of the first sample of the global batch.
  plan::DataPosition next;  // The position where training continues after this batch is committed.
  int64_t size() const { return static_cast<int64_t>(indices.size()); }
};

}  // namespace trireme
