// Compressed reduction of gradients, for links slower than the step: an interface, and a registry
// by name that a user can add to.
//
// What is promised: the result has the same bits on every replica, and a run repeated is
// bit-identical. What is not: the losses of one_device. Methods with error feedback keep what they
// left out of a step and add it to the next one (Seide et al. 2014, "1-bit stochastic gradient
// descent"; Karimireddy et al. 2019, "Error feedback fixes SignSGD"), so that nothing is lost, only
// late.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/comm/group.h>
#include <trireme/parallel/module_state.h>
#include <trireme/plan/tensor_spec.h>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace trireme {

struct CompressionOptions {
  std::string name = "none";  // none, bf16, fp16, int8, topk, powersgd, or one that was registered.
  int rank = 2;               // powersgd: columns of each factor. Higher: closer and dearer.
  double ratio = 0.01;        // topk: share of the values that travel.
};
// Throws Error(invalid_argument) naming option, value and rule.
void check(const CompressionOptions& options);

// Gradients that are reduced together: a flat tensor of float32 or float64 with each parameter's
// gradient at its offset.
struct CompressedBucket {
  std::vector<plan::TensorSpec> parameters;
  std::vector<int64_t> offsets;
  int64_t elements = 0;
  at::ScalarType dtype = at::kFloat;
};

// One replica's end of the reduction of one bucket. One thread at a time.
class Compressor {
 public:
  virtual ~Compressor() = default;
  // COLLECTIVE. `flat` (finite on every rank) becomes nearly the sum over all ranks, with the same
  // bits everywhere. Returns how many bytes this rank sent. What is kept between steps stays as it
  // was until commit(): buckets travel before it is known whether the step counts. While backward
  // runs, another thread than the one that made it may call it.
  virtual int64_t all_reduce(const at::Tensor& flat) = 0;
  // The step counts: what the last all_reduce() left out is kept. Without this call the next
  // all_reduce() starts from what it started from.
  virtual void commit() {}
  // What is kept between steps, by parameter ("error/conv1.weight"): for checkpoints, and to be
  // filled from one.
  virtual std::vector<NamedTensor> state() { return {}; }
};

using CompressorFactory = std::function<std::unique_ptr<Compressor>(
    std::shared_ptr<Group> group, const CompressedBucket& bucket, const CompressionOptions&)>;

// Makes `name` known, to CompressionOptions too. Before training, on every rank. Throws
// Error(invalid_argument) if the name is taken.
void register_compressor(const std::string& name, CompressorFactory factory);
std::vector<std::string> compressor_names();  // In order, without `none`.
std::unique_ptr<Compressor> make_compressor(std::shared_ptr<Group> group,
                                            const CompressedBucket& bucket,
                                            const CompressionOptions& options);

}  // namespace trireme
