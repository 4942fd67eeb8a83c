// A source whose samples contain their own index.
#pragma once
#include <ATen/ATen.h>
#include <trireme/data/loader.h>

#include <memory>
#include <vector>

namespace trireme {

class Numbered : public Source {
 public:
  explicit Numbered(int64_t samples) : samples_(samples) {}
  int64_t size() const override { return samples_; }
  Example get(const Draw& draw) const override {
    const int64_t index = draw.index;
    return {at::full({2, 3}, static_cast<float>(index)), at::scalar_tensor(index, at::kLong)};
  }

 private:
  int64_t samples_;
};

inline std::shared_ptr<const Source> numbered(int64_t samples) {
  return std::make_shared<Numbered>(samples);
}

// The indices of the samples in the next `batches` batches, one after the other.
inline std::vector<int64_t> next_samples(Loader& loader, int64_t batches) {
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < batches; ++i) {
    const Batch batch = loader.next();
    samples.insert(samples.end(), batch.indices.begin(), batch.indices.end());
  }
  return samples;
}
inline std::vector<int64_t> next_epoch(Loader& loader) {
  return next_samples(loader, loader.batches_per_epoch());
}

}  // namespace trireme
