#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <trireme/base/hash.h>
#include <trireme/parallel/compression/error_memory.h>
#include <trireme/parallel/compression/kernels.h>
#include <trireme/parallel/compression/powersgd.h>
#include <trireme/plan/low_rank_layout.h>

namespace trireme::compression {
namespace {

// A parameter seen as a matrix. Its factors are kept transposed, so that a column is contiguous.
struct Matrix : plan::LowRankLayout::Matrix {
  std::string name;
  int64_t offset = 0;
};

class PowerSgd : public Compressor {
 public:
  PowerSgd(std::shared_ptr<Group> group, const CompressedBucket& bucket, int rank)
      : group_(std::move(group)), errors_(bucket) {
    const plan::LowRankLayout layout = plan::lay_out_low_rank(bucket.parameters, rank);
    for (const auto& matrix : layout.matrices)
      matrices_.push_back(
          {matrix, bucket.parameters[matrix.parameter].name, bucket.offsets[matrix.parameter]});
    for (const auto& [parameter, place] : layout.whole)
      whole_.push_back(
          {bucket.offsets[parameter], bucket.parameters[parameter].elements(), place});
    const auto type = at::TensorOptions().dtype(bucket.dtype);
    p_ = at::zeros({layout.p_elements}, type);
    q_ = at::zeros({layout.q_elements}, type);
    for (const Matrix& matrix : matrices_) q_of(matrix).copy_(first_q(matrix, type));
    next_q_ = q_.clone();
  }

  void all_reduce(const at::Tensor& flat) override {
    const at::NoGradGuard no_grad;
    AT_DISPATCH_FLOATING_TYPES(flat.scalar_type(), "powersgd", [&] { reduce<scalar_t>(flat); });
  }

  void commit() override {
    errors_.commit();
    std::swap(q_, next_q_);
  }

  StateView state() override {
    StateView parts = errors_.state();
    for (const Matrix& matrix : matrices_)
      parts.push_back(whole("q/" + matrix.name, q_of(matrix), StateKind::rank));
    return parts;
  }

 private:
  // A parameter that travels uncompressed.
  struct Whole {
    int64_t offset, length;
    int64_t place;  // Its place behind the P factors.
  };

  at::Tensor q_of(const Matrix& matrix) const {
    return q_.narrow(0, matrix.q, matrix.rank * matrix.columns)
        .view({matrix.rank, matrix.columns});
  }

  // A random matrix that is drawn from the parameter's name: equal on every replica, in every run.
  static at::Tensor first_q(const Matrix& matrix, const at::TensorOptions& type) {
    const auto generator = at::detail::createCPUGenerator(
        std::stoull(sha256_hex(matrix.name).substr(0, 15), nullptr, 16));
    return at::randn({matrix.rank, matrix.columns}, generator, type);
  }

  template <typename T>
  Thin<T> thin(const Matrix& matrix, const at::Tensor& flat, const at::Tensor& q) const {
    return {matrix.rows,
            matrix.columns,
            matrix.rank,
            flat.mutable_data_ptr<T>() + matrix.offset,
            p_.mutable_data_ptr<T>() + matrix.p,
            q.mutable_data_ptr<T>() + matrix.q};
  }

  template <typename T>
  void reduce(const at::Tensor& flat) {
    const T* const kept = errors_.kept().const_data_ptr<T>();
    T* const left = errors_.left().mutable_data_ptr<T>();
    // P = M Q. The uncompressed parameters travel with it.
    for (const Matrix& matrix : matrices_)
      project(thin<T>(matrix, flat, q_), kept + matrix.offset);
    for (const auto& [offset, length, place] : whole_)
      p_.narrow(0, place, length).copy_(flat.narrow(0, offset, length));
    add_up(p_);
    for (const auto& [offset, length, place] : whole_)
      flat.narrow(0, offset, length).copy_(p_.narrow(0, place, length));
    // Q = M^T P.
    for (const Matrix& matrix : matrices_) {
      orthogonalise(thin<T>(matrix, flat, next_q_));
      project_back(thin<T>(matrix, flat, next_q_));
    }
    add_up(next_q_);
    // Every rank replaces the sum by P Q^T. Each rank keeps as error its own part less 1 /
    // ranks of P Q^T.
    for (const Matrix& matrix : matrices_)
      restore(thin<T>(matrix, flat, next_q_), T(1) / static_cast<T>(group_->size()),
              left + matrix.offset);
  }

  void add_up(const at::Tensor& factors) {
    if (factors.numel() > 0) group_->all_reduce(factors);
  }

  std::shared_ptr<Group> group_;
  std::vector<Matrix> matrices_;
  std::vector<Whole> whole_;
  at::Tensor p_;  // The P factors of all matrices, then the uncompressed parameters.
  // The Q factors of all matrices, the same on every replica: those of the last step that counted,
  // and those of the current step.
  at::Tensor q_, next_q_;
  ErrorMemory errors_;
};

}  // namespace

std::unique_ptr<Compressor> make_powersgd(std::shared_ptr<Group> group,
                                          const CompressedBucket& bucket,
                                          const CompressionOptions& options) {
  return std::make_unique<PowerSgd>(std::move(group), bucket, options.rank);
}

}  // namespace trireme::compression
