// A stage of the user's own in a shared object, for test_data_service.py.
#include <torch/nn/modules/linear.h>
#include <trireme/data/pipeline/functions.h>
#include <trireme/register.h>

namespace {

struct Lone : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return out(x.flatten(1)); }
  torch::nn::Linear out = register_module("out", torch::nn::Linear(3 * 16 * 16, 3));
};

TRIREME_MODEL("lone", trireme::model_factory<Lone>(), {.input = {{3, 16, 16}, 3}});

[[maybe_unused]] const bool has_stage = trireme::config::register_early([] {
  trireme::register_map("darker", [](trireme::Example one, const trireme::Draw&) {
    one.data = one.data.mul(0.75);
    return one;
  });
});

}  // namespace
