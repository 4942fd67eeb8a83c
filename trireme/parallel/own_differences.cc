#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/parallel/optimizer.h>
#include <trireme/parallel/own_differences.h>
#include <trireme/parallel/step_facts.h>
#include <algorithm>
#include <bit>
#include <string_view>

namespace trireme {
namespace {

// The values of all ranks.
std::vector<int64_t> gathered(Group& group, int64_t own) {
  const at::Tensor all = at::zeros({group.size()}, at::kLong);
  group.all_gather(at::tensor({own}, at::kLong), all);
  const auto* const values = all.const_data_ptr<int64_t>();
  return {values, values + all.numel()};
}

void refuse_other_steps(const OwnPlace& place, const std::vector<size_t>& ranks,
                        const std::vector<int64_t>& steps) {
  const auto count = [&](int64_t step) {
    return std::ranges::count_if(ranks, [&](size_t rank) { return steps[rank] == step; });
  };
  const size_t first = ranks.front();
  for (const size_t rank : ranks) {
    if (steps[rank] == steps[first]) continue;
    const bool is_first_alone = ranks.size() > 2 && count(steps[first]) == 1;
    const size_t named = is_first_alone ? first : rank, other = is_first_alone ? rank : first;
    throw ErrorOfAllRanks(
        ErrorCode::invalid_argument, "parallel",
        fmt::format("rank {} is in step {} of optimizer {}, and rank {} in step {}: one "
                    "of them has left out a backward() or a step()",
                    named, steps[named] + 1, place.engine, other, steps[other] + 1),
        "the same calls on all ranks, or join() on a rank without a batch");
  }
}

}  // namespace

std::vector<OwnFact> facts_of(int64_t of_all, const torch::nn::Module& module,
                              const torch::optim::Optimizer& optimizer,
                              const std::vector<NamedTensor>& parameters) {
  uint64_t trained = 0;
  for (const auto& [name, tensor] : parameters)
    trained = mix64(trained, tensor.requires_grad() ? 1 : 0);
  std::vector<OwnFact> facts{
      {"size of the global batch", static_cast<uint64_t>(of_all),
       "world.share(n) with the same n on all ranks, in each step or never"},
      {"choice of frozen parameters", trained, "the same requires_grad_() on all ranks"},
      {"choice of train() or eval()", module.is_training() ? 1U : 0U,
       "model.train() behind an evaluation, on all ranks"}};
  for (const auto& [name, value] : hashes_of_options(optimizer)) {
    const bool is_rate = std::string_view(name) == "lr";
    facts.push_back({is_rate ? "learning rate" : name, value,
                     is_rate ? "the same schedules on all ranks. One that looks at a loss needs "
                               "the mean over all ranks, which LoopRecord::step() returns"
                             : "the same options of the optimizer on all ranks"});
  }
  return facts;
}

void refuse_differences(Group& group, const OwnPlace& place, const std::vector<OwnFact>& facts) {
  const std::vector<int64_t> joined = gathered(group, place.has_joined ? 1 : 0),
                             steps = gathered(group, place.steps);
  std::vector<size_t> ranks;
  for (size_t rank = 0; rank < joined.size(); ++rank)
    if (joined[rank] == 0) ranks.push_back(rank);
  if (ranks.empty()) return;
  refuse_other_steps(place, ranks, steps);
  for (const OwnFact& fact : facts) {
    const std::vector<int64_t> values = gathered(group, std::bit_cast<int64_t>(fact.value));
    for (const size_t rank : ranks)
      if (values[rank] != values[ranks.front()])
        throw ErrorOfAllRanks(ErrorCode::invalid_argument, "parallel",
                              fmt::format("rank {}, step {}: its {} is not that of rank {}", rank,
                                          place.steps + 1, fact.name, ranks.front()),
                              fact.remedy);
  }
}

}  // namespace trireme
