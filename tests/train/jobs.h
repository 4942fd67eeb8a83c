// Tiny jobs that train in milliseconds, and runs of them under every strategy.
#pragma once
#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <trireme/data/source.h>
#include <trireme/train/trainer.h>
#include <filesystem>

#include "../comm/ranks.h"

namespace trireme::tests {

// Three overlapping clouds of points: the loss falls but does not reach zero.
inline std::shared_ptr<TensorSource> clouds(int64_t samples, uint64_t seed = 1) {
  const auto generator = at::detail::createCPUGenerator(seed);
  const at::Tensor target = at::randint(3, {samples}, generator, at::kLong);
  const at::Tensor data =
      at::randn({samples, 5}, generator, at::kDouble) + target.to(at::kDouble).unsqueeze(1);
  return std::make_shared<TensorSource>(data, target);
}

struct Classifier : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return out(at::tanh(in(x))); }
  torch::nn::Linear in = register_module("in", torch::nn::Linear(5, 8)),
                    out = register_module("out", torch::nn::Linear(8, 3));
};
struct NormClassifier : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return out(norm(in(x))); }
  torch::nn::Linear in = register_module("in", torch::nn::Linear(5, 8));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(8));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(8, 3));
};
struct DropoutClassifier : Classifier {
  at::Tensor forward(const at::Tensor& x) {
    return out(at::dropout(at::tanh(in(x)), 0.3, is_training()));
  }
};

template <typename Net = Classifier>
Job job(OptimizerFactory optimizer = SGD{.lr = 0.1, .momentum = 0.9}) {
  Job job;
  job.name = "clouds";
  job.model = model_factory<Net>();
  job.optimizer = std::move(optimizer);
  return job;
}

inline TrainerOptions options(int replicas = 1) {
  TrainerOptions options;
  options.replicas = replicas;
  options.epochs = 2;
  options.batch = 16;
  options.dtype = plan::DType::float64;
  return options;
}

inline World alone() { return World::join({.timeout = Milliseconds(20000)}, Environment()); }

inline Report fit(const TrainerOptions& options, const Job& what,
                  std::shared_ptr<const Source> train,
                  std::shared_ptr<const Source> test = nullptr) {
  World world = alone();
  return Trainer(world, options).fit(what, std::move(train), std::move(test));
}

class Folder {
 public:
  Folder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "trireme-train-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

inline double difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
  return worst;
}

}  // namespace trireme::tests
