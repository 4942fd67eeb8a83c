// Stages of the user's own in a shared object, for test_data_service.py and test_slow_stage.py.
#include <torch/nn/modules/linear.h>
#include <trireme/data/pipeline/functions.h>
#include <trireme/register.h>
#include <chrono>
#include <thread>

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
  // It takes as long as a stage that waits for a file.
  trireme::register_map("slow", [](trireme::Example one, const trireme::Draw&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(4));
    return one;
  });
});

}  // namespace
