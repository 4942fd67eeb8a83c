#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <trireme/parallel/compression/error_memory.h>
#include <trireme/parallel/compression/topk.h>
#include <trireme/plan/kept_values.h>

namespace trireme::compression {
namespace {

class TopK : public Compressor {
 public:
  TopK(std::shared_ptr<Group> group, const CompressedBucket& bucket, double ratio)
      : group_(std::move(group)),
        count_(plan::kept_values(bucket.elements, ratio)),
        errors_(bucket) {}

  void all_reduce(const at::Tensor& flat) override {
    const at::NoGradGuard no_grad;
    flat.add_(errors_.kept());
    const at::Tensor chosen =
        std::get<1>(flat.abs().topk(count_, 0, /*largest=*/true, /*sorted=*/false));
    const at::Tensor values = flat.index_select(0, chosen).to(at::kFloat);
    // The values travel as floats. The rest of a double stays in the error memory.
    errors_.left().copy_(flat).index_add_(0, chosen, values.to(flat.scalar_type()), -1);

    // Places come first, then values: 8 bytes for each pair.
    const at::Tensor mine = at::cat({chosen.to(at::kInt), values.view(at::kInt)});
    const at::Tensor all = at::empty({group_->size() * 2 * count_}, at::kInt);
    group_->all_gather(mine, all);
    flat.zero_();
    for (int rank = 0; rank < group_->size(); ++rank) {
      const at::Tensor places = all.narrow(0, rank * 2 * count_, count_);
      const at::Tensor theirs = all.narrow(0, rank * 2 * count_ + count_, count_).view(at::kFloat);
      flat.index_add_(0, places, theirs.to(flat.scalar_type()));
    }
  }

  void commit() override { errors_.commit(); }
  StateView state() override { return errors_.state(); }

 private:
  std::shared_ptr<Group> group_;
  int64_t count_;
  ErrorMemory errors_;
};

}  // namespace

std::unique_ptr<Compressor> make_topk(std::shared_ptr<Group> group, const CompressedBucket& bucket,
                                      const CompressionOptions& options) {
  return std::make_unique<TopK>(std::move(group), bucket, options.ratio);
}

}  // namespace trireme::compression
