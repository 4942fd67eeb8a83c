// Compressed reduction of gradients, for links slower than the step: an interface, and a registry
// by name to which users can add.
//
// The result has the same bits on every replica, and a repeated run is bit-identical. The losses
// differ from those of one_device. Methods with error feedback keep what they left out of a step
// and add it to the next one, so that it arrives late instead of never (Seide et al. 2014, "1-bit
// stochastic gradient descent"; Karimireddy et al. 2019, "Error feedback fixes SignSGD").
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/comm/group.h>
#include <trireme/parallel/state_view.h>
#include <trireme/plan/compression_plan.h>
#include <trireme/plan/tensor_spec.h>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace trireme {

using CompressionOptions = plan::CompressionOptions;
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

// One replica's end of the reduction of one bucket. One thread at a time uses it.
class Compressor {
 public:
  virtual ~Compressor() = default;
  // COLLECTIVE. `flat` (finite on every rank) becomes nearly the sum over all ranks, with the same
  // bits everywhere. The kept state does not change before commit(), because buckets travel before
  // it is known whether the step counts. While backward runs, another thread than the one that
  // made the object may call it.
  virtual void all_reduce(const at::Tensor& flat) = 0;
  // Says that the step counts: the object keeps what the last all_reduce() left out. Without this
  // call the next all_reduce() starts from the same state as the last one.
  virtual void commit() {}
  // The state kept between steps, of the kinds `rank` and `residual`, under names of its own for
  // each parameter ("error/conv1.weight"). Checkpoints save it, and a resumed run fills it in
  // place.
  virtual StateView state() { return {}; }
};

using CompressorFactory = std::function<std::unique_ptr<Compressor>(
    std::shared_ptr<Group> group, const CompressedBucket& bucket, const CompressionOptions&)>;

// Adds `name` to the known methods, for CompressionOptions too. Call it before training, on every
// rank. Throws Error(invalid_argument) if the name is taken.
void register_compressor(const std::string& name, CompressorFactory factory);
std::vector<std::string> compressor_names();  // The names in order, without `none`.
std::unique_ptr<Compressor> make_compressor(std::shared_ptr<Group> group,
                                            const CompressedBucket& bucket,
                                            const CompressionOptions& options);

}  // namespace trireme
