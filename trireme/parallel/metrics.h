// Exact metrics over the ranks of a loop of one's own.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <trireme/comm/world.h>
#include <trireme/plan/data_plan.h>
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace trireme {

// COLLECTIVE. `values` has what this rank computed for its samples, along the first dimension:
// such as [n, classes]. Ranks may have different n, also 0; the other sizes and the type are the
// same. Returns the values of all ranks, rank by rank, on every rank. If the samples are the
// shares of a global batch (make_data_loader, World::share), that is the order of the batch.
// Throws Error(invalid_argument) on every rank if the values of two ranks do not fit together.
at::Tensor gather_for_metrics(World& world, const at::Tensor& values);

// Throws as evaluate() does.
void check_evaluation(const World& world, int64_t samples, int64_t batch);
void check_rows(const at::Tensor& rows, int64_t samples);

// COLLECTIVE. Calls `values_of` with the stacked samples of this rank's part of a data set of
// torch::data, at most `batch` at a time, without gradients; it returns a row for each sample.
// Returns the rows of all samples in the data set's order, on every rank, for any number of ranks:
// each sample counts once. `dataset` gives stacked batches (`.map(Stack<>())`). Throws
// Error(invalid_argument) if it has fewer samples than there are ranks, or `values_of` returns
// another number of rows than it has samples.
template <typename Dataset, typename Values>
at::Tensor evaluate(World& world, Dataset dataset, int64_t batch, const Values& values_of) {
  const at::NoGradGuard no_gradients;
  const auto samples = static_cast<int64_t>(*dataset.size());
  check_evaluation(world, samples, batch);
  const auto [first, last] = plan::DataPlan::share(samples, world.rank(), world.size());
  std::vector<at::Tensor> rows;
  for (int64_t from = first; from < last; from += batch) {
    std::vector<size_t> indices;
    for (int64_t i = from; i < std::min(from + batch, last); ++i)
      indices.push_back(static_cast<size_t>(i));
    const auto wanted = static_cast<int64_t>(indices.size());
    rows.push_back(values_of(dataset.get_batch(std::move(indices))));
    check_rows(rows.back(), wanted);
  }
  return gather_for_metrics(world, at::cat(rows));
}

}  // namespace trireme
