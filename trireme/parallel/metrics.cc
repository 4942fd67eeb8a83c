#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/parallel/agreement.h>
#include <trireme/parallel/metrics.h>
#include <trireme/parallel/module_state.h>
#include <vector>

namespace trireme {

void check_evaluation(const World& world, int64_t samples, int64_t batch) {
  if (batch < 1)
    throw Error(ErrorCode::invalid_argument, "parallel", fmt::format("a batch of {}", batch),
                "1 or more");
  if (samples < world.size())
    throw Error(
        ErrorCode::invalid_argument, "parallel",
        fmt::format("a data set of {} samples is evaluated by {} ranks", samples, world.size()),
        "at least one sample for each rank");
}

void check_rows(const at::Tensor& rows, int64_t samples) {
  if (rows.dim() > 0 && rows.size(0) == samples) return;
  throw Error(
      ErrorCode::invalid_argument, "parallel",
      fmt::format("evaluate() got {} for a batch of {} samples",
                  rows.dim() == 0 ? "a scalar" : fmt::format("{} rows", rows.size(0)), samples),
      "a row for each sample, such as the losses with torch::kNone as their reduction");
}

at::Tensor gather_for_metrics(World& world, const at::Tensor& values) {
  const at::NoGradGuard no_grad;
  if (world.size() == 1) return values;
  Group& group = *world.loop_group();
  const at::Tensor own = values.detach().contiguous();
  Json form = {{"type", c10::toString(own.scalar_type())}, {"sizes", own.sizes().vec()}};
  if (own.dim() == 0)
    form["sizes"] = "none: it is a scalar";
  else
    form["sizes"][0] = "samples";
  agree(group, {{"values for metrics", form}});
  if (own.dim() == 0)
    throw Error(ErrorCode::invalid_argument, "parallel", "the values for metrics are a scalar",
                "a value for each sample, along the first dimension");

  const at::Tensor counts = at::zeros({group.size()}, at::kLong);
  group.all_gather(at::tensor({own.size(0)}, at::kLong), counts);
  const int64_t most = counts.max().item<int64_t>();
  // All ranks send as many rows as the one with most.
  std::vector<int64_t> sizes = own.sizes().vec();
  sizes[0] = most;
  const at::Tensor padded = at::zeros(sizes, own.options());
  padded.narrow(0, 0, own.size(0)).copy_(own);
  sizes[0] = most * group.size();
  const at::Tensor all = at::empty(sizes, own.options());
  if (all.numel() > 0) group.all_gather(as_bytes(padded), as_bytes(all));
  std::vector<at::Tensor> rows;
  for (int rank = 0; rank < group.size(); ++rank)
    rows.push_back(all.narrow(0, rank * most, counts[rank].item<int64_t>()));
  return at::cat(rows);
}

}  // namespace trireme
