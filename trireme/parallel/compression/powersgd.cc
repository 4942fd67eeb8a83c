#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <trireme/base/hash.h>
#include <trireme/parallel/compression/built_in.h>
#include <trireme/parallel/compression/error_memory.h>
#include <trireme/parallel/compression/kernels.h>
#include <trireme/parallel/gradients.h>
#include <algorithm>

namespace trireme::compression {
namespace {

// A parameter seen as a matrix: the first dimension by all others. Its factors are kept
// transposed, so that a column is contiguous.
struct Matrix {
  std::string name;
  int64_t offset = 0, rows = 0, columns = 0, rank = 0;
  int64_t p = 0, q = 0;  // The beginnings of its factors among those of all matrices.
};

class PowerSgd : public Compressor {
 public:
  PowerSgd(std::shared_ptr<Group> group, const CompressedBucket& bucket, int rank)
      : group_(std::move(group)), errors_(bucket) {
    int64_t p = 0, q = 0;
    for (size_t i = 0; i < bucket.parameters.size(); ++i) {
      const plan::TensorSpec& parameter = bucket.parameters[i];
      const int64_t rows = parameter.shape.size() > 1 ? parameter.shape[0] : 0;
      const int64_t columns = rows > 0 ? parameter.elements() / rows : 0;
      const int64_t kept = std::min<int64_t>({rank, rows, columns});
      if ((rows + columns) * kept < rows * columns) {
        matrices_.push_back({parameter.name, bucket.offsets[i], rows, columns, kept, p, q});
        p += kept * rows;
        q += kept * columns;
      } else {
        whole_.push_back({bucket.offsets[i], parameter.elements(), 0});
      }
    }
    for (Whole& part : whole_) p += (part.place = p, part.length);
    const auto type = at::TensorOptions().dtype(bucket.dtype);
    p_ = at::zeros({p}, type);
    q_ = at::zeros({q}, type);
    for (const Matrix& matrix : matrices_) q_of(matrix).copy_(first_q(matrix, type));
    next_q_ = q_.clone();
  }

  int64_t all_reduce(const at::Tensor& flat) override {
    const at::NoGradGuard no_grad;
    int64_t sent = 0;
    AT_DISPATCH_FLOATING_TYPES(flat.scalar_type(), "powersgd",
                               [&] { sent = reduce<scalar_t>(flat); });
    return sent;
  }

  void commit() override {
    errors_.commit();
    std::swap(q_, next_q_);
  }

  std::vector<NamedTensor> state() override {
    std::vector<NamedTensor> parts = errors_.state();
    for (const Matrix& matrix : matrices_) parts.push_back({"q/" + matrix.name, q_of(matrix)});
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
  int64_t reduce(const at::Tensor& flat) {
    const T* const kept = errors_.kept().const_data_ptr<T>();
    T* const left = errors_.left().mutable_data_ptr<T>();
    // P = M Q. The uncompressed parameters travel with it.
    for (const Matrix& matrix : matrices_)
      project(thin<T>(matrix, flat, q_), kept + matrix.offset);
    for (const auto& [offset, length, place] : whole_)
      p_.narrow(0, place, length).copy_(flat.narrow(0, offset, length));
    int64_t sent = add_up(p_);
    for (const auto& [offset, length, place] : whole_)
      flat.narrow(0, offset, length).copy_(p_.narrow(0, place, length));
    // Q = M^T P.
    for (const Matrix& matrix : matrices_) {
      orthogonalise(thin<T>(matrix, flat, next_q_));
      project_back(thin<T>(matrix, flat, next_q_));
    }
    sent += add_up(next_q_);
    // Every rank replaces the sum by P Q^T. Each rank keeps as error its own part less 1 /
    // ranks of P Q^T.
    for (const Matrix& matrix : matrices_)
      restore(thin<T>(matrix, flat, next_q_), T(1) / static_cast<T>(group_->size()),
              left + matrix.offset);
    return sent;
  }

  int64_t add_up(const at::Tensor& factors) {
    if (factors.numel() == 0) return 0;
    group_->all_reduce(factors);
    return all_reduce_bytes(static_cast<int64_t>(factors.nbytes()), group_->size());
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
