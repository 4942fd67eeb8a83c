#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <trireme/base/hash.h>
#include <trireme/parallel/compression/built_in.h>
#include <trireme/parallel/compression/error_memory.h>
#include <trireme/parallel/gradients.h>
#include <algorithm>

namespace trireme::compression {
namespace {

// A parameter seen as a matrix: the first dimension by all others. Factors are kept transposed, a column in one piece: products of a large
// matrix with a few strided columns take many times as long.
struct Matrix {
  std::string name;
  int64_t offset = 0, rows = 0, columns = 0, rank = 0;
  at::Tensor q;  // [rank, columns], of the last step: the same on every replica.
  at::Tensor in(const at::Tensor& flat) const { return flat.narrow(0, offset, rows * columns).view({rows, columns}); }
};

// Several tensors in one, so that they travel in one message.
class Packet {
 public:
  explicit Packet(const std::vector<at::Tensor>& tensors) : tensors_(tensors) {
    std::vector<at::Tensor> flats;
    for (const at::Tensor& tensor : tensors) flats.push_back(tensor.reshape({-1}));
    flat_ = at::cat(flats);
  }
  const at::Tensor& flat() const { return flat_; }
  void unpack() const {
    int64_t place = 0;
    for (const at::Tensor& tensor : tensors_) {
      tensor.copy_(flat_.narrow(0, place, tensor.numel()).view(tensor.sizes()));
      place += tensor.numel();
    }
  }

 private:
  std::vector<at::Tensor> tensors_;
  at::Tensor flat_;
};

class PowerSgd : public Compressor {
 public:
  PowerSgd(std::shared_ptr<Group> group, const CompressedBucket& bucket, int rank) : group_(std::move(group)), errors_(bucket) {
    for (size_t i = 0; i < bucket.parameters.size(); ++i) {
      const plan::TensorSpec& parameter = bucket.parameters[i];
      const int64_t rows = parameter.shape.size() > 1 ? parameter.shape[0] : 0;
      const int64_t columns = rows > 0 ? parameter.elements() / rows : 0;
      const int64_t kept = std::min<int64_t>({rank, rows, columns});
      if ((rows + columns) * kept < rows * columns) {
        matrices_.push_back({parameter.name, bucket.offsets[i], rows, columns, kept, first_q(bucket, i, columns, kept)});
      } else {
        whole_.push_back({bucket.offsets[i], parameter.elements()});
      }
    }
  }

  int64_t all_reduce(const at::Tensor& flat) override {
    const torch::NoGradGuard no_grad;
    flat.add_(errors_.flat());
    // P = M Q, and with it what is not compressed.
    std::vector<at::Tensor> first, ps, qs;
    for (const Matrix& matrix : matrices_) ps.push_back(at::matmul(matrix.q, matrix.in(flat).t()));
    first = ps;
    for (const auto& [offset, length] : whole_) first.push_back(flat.narrow(0, offset, length));
    int64_t sent = reduce(first);
    // Orthogonal columns; a factorisation gives some also where P has none of its own (gradients of zero), so that Q never dies.
    for (at::Tensor& p : ps) p = std::get<0>(at::linalg_qr(p.t(), "reduced")).t().contiguous();
    // Q = M^T P.
    for (size_t i = 0; i < matrices_.size(); ++i) qs.push_back(at::matmul(ps[i], matrices_[i].in(flat)));
    sent += reduce(qs);
    // Everybody puts P Q^T in the place of the sum; each keeps its own part less its share of that.
    for (size_t i = 0; i < matrices_.size(); ++i) {
      Matrix& matrix = matrices_[i];
      matrix.q.copy_(qs[i]);
      at::Tensor mine = matrix.in(flat);
      const at::Tensor left = matrix.in(errors_.flat()).copy_(mine);
      at::mm_out(mine, ps[i].t(), qs[i]);
      left.sub_(mine, 1.0 / group_->size());
    }
    return sent;
  }

  std::vector<NamedTensor> state() override {
    std::vector<NamedTensor> parts = errors_.state();
    for (const Matrix& matrix : matrices_) parts.push_back({"q/" + matrix.name, matrix.q});
    return parts;
  }

 private:
  struct Whole {
    int64_t offset, length;
  };

  // Random, but drawn from the parameter's name: alike on every replica, in every run.
  static at::Tensor first_q(const CompressedBucket& bucket, size_t parameter, int64_t columns, int64_t rank) {
    const std::string hash = sha256_hex(bucket.parameters[parameter].name);
    const auto generator = at::detail::createCPUGenerator(std::stoull(hash.substr(0, 15), nullptr, 16));
    return at::randn({rank, columns}, generator, at::TensorOptions().dtype(bucket.dtype));
  }

  int64_t reduce(const std::vector<at::Tensor>& tensors) {
    if (tensors.empty()) return 0;
    const Packet packet(tensors);
    group_->all_reduce(packet.flat());
    packet.unpack();
    return all_reduce_bytes(static_cast<int64_t>(packet.flat().nbytes()), group_->size());
  }

  std::shared_ptr<Group> group_;
  std::vector<Matrix> matrices_;
  std::vector<Whole> whole_;
  ErrorMemory errors_;
};

}  // namespace

std::unique_ptr<Compressor> make_powersgd(std::shared_ptr<Group> group, const CompressedBucket& bucket, const CompressionOptions& options) {
  return std::make_unique<PowerSgd>(std::move(group), bucket, options.rank);
}

}  // namespace trireme::compression
