#include <ATen/core/Tensor.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/data/pipeline/mixed_source.h>
#include <trireme/data/wrapped_source.h>
#include <utility>

namespace trireme::data {
namespace {

class MixedSource : public WrappedSource {
 public:
  MixedSource(std::shared_ptr<const Source> samples, BatchMix mix)
      : WrappedSource(std::move(samples)), mix_(std::move(mix)) {}

  Example get_batch(const Draws& draws) const override {
    std::vector<size_t> left_out;
    Example batch = get_kept(draws, left_out);
    require_all(draws, left_out);
    return batch;
  }
  Example get_kept(const Draws& draws, std::vector<size_t>& left_out) const override {
    return mix_.run(draws, left_out, [this](const Draws& which, std::vector<size_t>& out) {
      return source_->get_kept(which, out);
    });
  }
  bool mixes_batches() const override { return true; }
  void announce(const Draws& draws) const override { source_->announce(with_neighbour(draws)); }
  void release(const Draws& draws) const override { source_->release(with_neighbour(draws)); }

 private:
  const BatchMix mix_;
};

}  // namespace

std::shared_ptr<const Source> mix_source(std::shared_ptr<const Source> samples, BatchMix mix) {
  return std::make_shared<MixedSource>(std::move(samples), std::move(mix));
}

void require_all(const Draws& draws, const std::vector<size_t>& left_out) {
  if (left_out.empty()) return;
  throw Error(ErrorCode::invalid_argument, "data",
              fmt::format("sample {} is left out, and get_batch() gives all samples",
                          draws.indices[left_out[0]]),
              "get_kept()");
}

}  // namespace trireme::data
