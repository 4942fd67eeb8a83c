// mixup and cutmix: each sample of a batch is mixed with the one before it in the global batch.
//
// A rank that has a share of the batch loads that one sample more, so the result does not depend
// on the number of ranks.
#pragma once
#include <trireme/data/pipeline/stage.h>
#include <trireme/data/source.h>
#include <cstdint>
#include <functional>
#include <vector>

namespace trireme::data {

// The draws of a share with the sample that stands before it in the global batch.
Draws with_neighbour(const Draws& draws);

class BatchMix {
 public:
  // Throws Error(invalid_argument) if there are stages, but fewer than 2 classes.
  BatchMix(const Stages& stages, int64_t classes);
  bool empty() const { return stages_.empty(); }

  using Load = std::function<Example(const Draws&, std::vector<size_t>& left_out)>;
  // Loads the samples of `draws` and the one before, and mixes them by one of the stages, which
  // the position of the batch chooses. The targets become float32 [samples, classes]. A sample
  // whose neighbour was left out stays as it is.
  Example run(const Draws& draws, std::vector<size_t>& left_out, const Load& load) const;

 private:
  const Stages stages_;
  const int64_t classes_;
};

}  // namespace trireme::data
