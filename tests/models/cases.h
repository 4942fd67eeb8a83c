// Models of the command line, with what they take.
#pragma once
#include <ATen/ATen.h>
#include <trireme/models/shapes.h>
#include <vector>

namespace trireme::models {

struct Case {
  ModelOptions options;
  InputSpec input;
};

inline at::Tensor random_batch(const Case& c, int64_t samples) {
  std::vector<int64_t> shape = c.input.shape;
  shape.insert(shape.begin(), samples);
  if (c.options.name == "gpt") return at::randint(c.options.vocabulary, shape, at::kLong);
  return at::randn(shape);
}

}  // namespace trireme::models
