// Stages of the user's own in a shared object, for test_data_service.py, test_slow_stage.py and
// test_own_records.py.
#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>
#include <trireme/base/error.h>
#include <trireme/data/pipeline/functions.h>
#include <trireme/register.h>
#include <chrono>
#include <cstring>
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

// The value of a record is a byte for the label, and 8x8 pixels behind it.
trireme::Example labelled(const trireme::records::Record& record, int64_t) {
  const auto value = record.at("value").bytes;
  if (value.size() != 1 + 8 * 8)
    throw trireme::Error(trireme::ErrorCode::corrupt, "own",
                         "the value is no label and 8x8 pixels");
  at::Tensor pixels = at::empty({1, 8, 8}, at::kByte);
  std::memcpy(pixels.mutable_data_ptr(), value.data() + 1, value.size() - 1);
  const auto label = std::to_integer<int64_t>(value[0]);
  return {pixels.to(at::kFloat).div(255), at::full({}, label, at::kLong)};
}

TRIREME_DECODE("labelled", labelled, "1");
TRIREME_MAP("negative", [](trireme::Example one, const trireme::Draw&) {
  one.data = 1 - one.data;
  return one;
});
TRIREME_FILTER("no greens",
               [](const trireme::Example& one) { return one.target.item<int64_t>() != 1; });

}  // namespace
