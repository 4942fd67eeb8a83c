// Samples, and the batches that are made of them.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/plan/data_plan.h>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace trireme {

using Tensors = std::vector<at::Tensor>;

// A target that the loss cross_entropy leaves out, such as one in the padding of a sample.
inline constexpr int64_t kNoTarget = -100;

// A sample without a batch dimension, or several samples along a first dimension.
struct Example {
  at::Tensor data;
  at::Tensor target;  // Of one sample: a scalar (class index, int64) or a tensor of any shape.
  std::map<std::string, at::Tensor> more = {};  // Other tensors by name, such as "mask".
};

// The samples that one replica computes in a step.
struct Batch {
  // The first dimension of each tensor is this replica's share; it may be 0.
  at::Tensor data, target;
  std::map<std::string, at::Tensor> more = {};  // See Example.
  std::vector<int64_t> indices;                 // The samples of the share, in order.
  // Other samples of the share, which the source left out. They count as used.
  std::vector<int64_t> left_out = {};
  // Their places in the share, in ascending order.
  std::vector<int64_t> places_left_out = {};
  // The samples of the whole global batch. A loader knows only what its own source left out, so it
  // counts all of them until the ranks have told each other.
  int64_t global_size = 0;
  int64_t global_used = 0;  // The same with those that were left out.
  // The targets of the whole global batch that count, if the source tells them
  // (Source::size_of); -1: samples count alike. The mean loss is then the mean over these.
  int64_t global_targets = -1;
  plan::DataPosition position;  // The position of the first sample of the global batch.
  plan::DataPosition next;  // The position where training continues after this batch is committed.
  int64_t size() const { return static_cast<int64_t>(indices.size()); }
  // The first row of the samples from a place of the share on. Samples that were left out have
  // places and no rows.
  int64_t row_of(int64_t place) const;

  // The tensor "data", "target", or one of `more`. Throws Error(invalid_argument) that lists the
  // names that exist.
  const at::Tensor& tensor(const std::string& name) const;
  // Samples [from, from + count) of the share, as views.
  Batch part(int64_t from, int64_t count) const;
  // The same samples on a device. Copies to CUDA come from pinned memory, and nobody waits for
  // them.
  Batch on(at::Device device) const;
};

// The memory of its tensors.
int64_t bytes_of(const Batch& batch);
int64_t bytes_of(const Example& example);

}  // namespace trireme
