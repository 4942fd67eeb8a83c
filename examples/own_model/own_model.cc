// A model, a data set and a metric of one's own for `trireme train`, `trireme plan` and
// `trireme bench step`, as a shared object:
//
//   trireme train examples/own_model/waves.yaml --workers 2
//   trireme plan examples/own_model/waves.yaml --workers 2
//   trireme bench step --library own_model.so --model waves
#include <ATen/ops/linspace.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>
#include <torch/nn/modules/linear.h>
#include <trireme/register.h>
#include <cmath>

namespace {

// Predicts the next value of a wave from the 16 before it.
struct Waves : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return out(at::tanh(in(x))).squeeze(1); }
  torch::nn::Linear in = register_module("in", torch::nn::Linear(16, 32)),
                    out = register_module("out", torch::nn::Linear(32, 1));
};

// A sample is a wave with a frequency and a phase of its own. (`get` depends on the index alone,
// so every rank and every epoch has the same waves.)
class WaveSource : public trireme::Source {
 public:
  WaveSource(int64_t samples, int64_t first) : samples_(samples), first_(first) {}
  int64_t size() const override { return samples_; }
  trireme::Example get(const trireme::Draw& draw) const override {
    const auto number = static_cast<double>(first_ + draw.index);
    const double frequency = 0.1 + 0.4 * std::fmod(number * 0.618, 1.0);
    const at::Tensor wave = at::sin(at::linspace(number, number + 16 * frequency, 17, at::kFloat));
    return {wave.slice(0, 0, 16), wave[16]};
  }

 private:
  int64_t samples_, first_;
};

trireme::OwnData make_waves(const trireme::data::DataOptions&) {
  return {.train = std::make_shared<WaveSource>(2000, 0),
          .test = std::make_shared<WaveSource>(200, 2000),
          .input = {.shape = {16}, .classes = 0},
          .content = "waves, version 1"};
}

TRIREME_MODEL("waves", trireme::model_factory<Waves>(), {.input = {{16}, 0}, .batch = 64});
TRIREME_DATA("waves", make_waves);
TRIREME_METRIC("rmse", {.name = "rmse",
                        .sums =
                            [](const at::Tensor& output, const at::Tensor& target) {
                              const double squares =
                                  (output - target).square().sum().item<double>();
                              return at::tensor({squares, double(output.numel())}, at::kDouble);
                            },
                        .value =
                            [](const at::Tensor& sums) {
                              return std::sqrt(sums[0].item<double>() / sums[1].item<double>());
                            }});

}  // namespace
