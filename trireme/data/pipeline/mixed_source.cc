#include <ATen/core/Tensor.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/data/pipeline/mixed_source.h>
#include <utility>

namespace trireme::data {
namespace {

class MixedSource : public Source {
 public:
  MixedSource(std::shared_ptr<const Source> samples, BatchMix mix)
      : samples_(std::move(samples)), mix_(std::move(mix)) {}

  int64_t size() const override { return samples_->size(); }
  Example get(const Draw& draw) const override { return samples_->get(draw); }
  Example get_batch(const Draws& draws) const override {
    std::vector<size_t> left_out;
    Example batch = get_kept(draws, left_out);
    require_all(draws, left_out);
    return batch;
  }
  Example get_kept(const Draws& draws, std::vector<size_t>& left_out) const override {
    return mix_.run(draws, left_out, [this](const Draws& which, std::vector<size_t>& out) {
      return samples_->get_kept(which, out);
    });
  }
  bool leaves_out() const override { return samples_->leaves_out(); }
  bool mixes_batches() const override { return true; }
  std::vector<StageUse> stage_use() const override { return samples_->stage_use(); }
  int64_t bad_records() const override { return samples_->bad_records(); }
  std::optional<CacheUse> cache_use() const override { return samples_->cache_use(); }
  std::optional<CacheAdvice> cache_advice() const override { return samples_->cache_advice(); }
  int64_t reads_ahead() const override { return samples_->reads_ahead(); }
  void announce(const std::vector<int64_t>& samples) const override {
    samples_->announce(samples);
  }
  void forget() const override { samples_->forget(); }
  std::optional<Example> get_if_kept(const Draw& draw) const override {
    return samples_->get_if_kept(draw);
  }
  std::optional<SampleSize> size_of(const Draw& draw) const override {
    return samples_->size_of(draw);
  }
  std::optional<ServedCounts> served() const override { return samples_->served(); }

 private:
  const std::shared_ptr<const Source> samples_;
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
