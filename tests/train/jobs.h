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

// Six blocks of odd sizes. The third one's output also goes past the next two, to the last one,
// and the fifth has a parameter without dimensions.
struct Chain : torch::nn::Module {
  struct Factor : torch::nn::Module {
    at::Tensor value = register_parameter("value", at::ones({}));
  };
  explicit Chain(double dropout = 0) : rate(dropout) {
    layers.push_back(register_module("in", torch::nn::Linear(5, 9)));
    for (int i = 1; i < 5; ++i)
      layers.push_back(register_module("hidden" + std::to_string(i), torch::nn::Linear(9, 9)));
    layers.push_back(register_module("out", torch::nn::Linear(9, 3)));
  }
  at::Tensor forward(const at::Tensor& x) { return output_of(blocks(), {x}); }
  std::vector<Block> blocks() {
    std::vector<Block> blocks;
    for (size_t i = 0; i < layers.size(); ++i)
      blocks.push_back(
          {"block" + std::to_string(i), {layers[i].ptr()}, [this, i](const Tensors& all) {
             at::Tensor x = layers[i]->forward(all[0]);
             if (i + 1 < layers.size()) x = at::tanh(x);
             if (rate > 0) x = at::dropout(x, rate, is_training());
             if (i == 2) return Tensors{x, x};
             if (i == 3) return Tensors{x, all[1]};
             if (i == 4) return Tensors{x * factor->value + all[1]};
             return Tensors{x};
           }});
    blocks[4].modules.push_back(factor);
    return blocks;
  }
  double rate;
  std::vector<torch::nn::Linear> layers;
  std::shared_ptr<Factor> factor = register_module("factor", std::make_shared<Factor>());
};

// The first and the last block have one weight.
struct Tied : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return output_of(blocks(), {x}); }
  std::vector<Block> blocks() {
    return {{"in", {in.ptr()}, [this](const Tensors& x) { return Tensors{at::tanh(in(x[0]))}; }},
            {"middle",
             {middle.ptr()},
             [this](const Tensors& x) { return Tensors{at::tanh(middle(x[0]))}; }},
            {"back", {in.ptr(), out.ptr()}, [this](const Tensors& x) {
               return Tensors{out(at::matmul(x[0], in->weight))};
             }}};
  }
  torch::nn::Linear in = register_module("in", torch::nn::Linear(5, 8)),
                    middle = register_module("middle", torch::nn::Linear(8, 8)),
                    out = register_module("out", torch::nn::Linear(5, 3));
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
