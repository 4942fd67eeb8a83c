#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/base/log.h>
#include <trireme/comm/at_the_end.h>
#include <trireme/comm/odd_ranks.h>
#include <trireme/parallel/optimizer.h>
#include <trireme/parallel/own_differences.h>
#include <trireme/parallel/step_facts.h>
#include <algorithm>
#include <bit>
#include <numeric>
#include <string>
#include <string_view>

namespace trireme {
namespace {

// The values of the ranks, one each.
std::vector<int64_t> gathered(Group& group, const std::vector<int>& ranks, int64_t own) {
  const at::Tensor all = at::zeros({group.size()}, at::kLong);
  group.all_gather(at::tensor({own}, at::kLong), all);
  const auto* const values = all.const_data_ptr<int64_t>();
  std::vector<int64_t> of_ranks;
  for (const int rank : ranks) of_ranks.push_back(values[rank]);
  return of_ranks;
}

std::vector<int> ranks_with_batches(Group& group, const OwnPlace& place) {
  std::vector<int> all(static_cast<size_t>(group.size()));
  std::iota(all.begin(), all.end(), 0);
  const std::vector<int64_t> joined = gathered(group, all, place.has_joined ? 1 : 0);
  std::erase_if(all, [&](int rank) { return joined[static_cast<size_t>(rank)] != 0; });
  return all;
}

void refuse_other_steps(const OwnPlace& place, const std::vector<int>& ranks,
                        const std::vector<int64_t>& steps) {
  const OddRanks found = find_odd_ranks(ranks, steps);
  if (!found) return;
  const auto step_of = [&](int rank) {
    return steps[static_cast<size_t>(std::ranges::find(ranks, rank) - ranks.begin())] + 1;
  };
  const int named = found.odd.front(), other = found.others.front();
  throw ErrorOfAllRanks(
      ErrorCode::invalid_argument, "parallel",
      fmt::format("rank {} is in step {} of optimizer {}, and rank {} in step {}: one "
                  "of them has left out a backward() or a step()",
                  named, step_of(named), place.engine, other, step_of(other)),
      "the same calls on all ranks, or join() on a rank without a batch");
}

}  // namespace

uint64_t hash_of_modes(const torch::nn::Module& module) {
  uint64_t hash = module.is_training() ? 2 : 1;
  for (const auto& child : module.children()) hash = mix64(hash, hash_of_modes(*child));
  return hash;
}

std::vector<OwnFact> facts_of(const OwnLoop::BatchInHand& batch, const torch::nn::Module& module,
                              const torch::optim::Optimizer& optimizer,
                              const std::vector<NamedTensor>& parameters) {
  uint64_t trained = 0;
  for (const auto& [name, tensor] : parameters)
    trained = mix64(trained, tensor.requires_grad() ? 1 : 0);
  std::vector<OwnFact> facts{
      {"size of the global batch", static_cast<uint64_t>(batch.of_all),
       "world.share(n) with the same n on all ranks, in each step or never"},
      {"global batch", batch.indices,
       "the same order on all ranks: a sampler that draws in reset(), as RandomSampler does, and "
       "neither in next() nor by a generator of its own"},
      {"choice of frozen parameters", trained, "the same requires_grad_() on all ranks"},
      {"choice of World::weigh()", batch.weight >= 0 ? 1U : 0U,
       "World::weigh() on all ranks, or on none"},
      {"choice of train() or eval()", hash_of_modes(module),
       "model.train() behind an evaluation, on all ranks, and the same modes of its layers"}};
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
  const std::vector<int> ranks = ranks_with_batches(group, place);
  refuse_other_steps(place, ranks, gathered(group, ranks, place.steps));
  for (const OwnFact& fact : facts) {
    const OddRanks found =
        find_odd_ranks(ranks, gathered(group, ranks, std::bit_cast<int64_t>(fact.value)));
    if (found)
      throw ErrorOfAllRanks(
          ErrorCode::invalid_argument, "parallel",
          fmt::format("rank {}, step {}: its {} is not that of {}", found.odd.front(),
                      place.steps + 1, fact.name, names_of_ranks(found.others)),
          fact.remedy);
  }
}

void refuse_other_parameters(Group& group, const OwnPlace& place,
                             const std::vector<NamedTensor>& parameters) {
  const std::vector<int> ranks = ranks_with_batches(group, place);
  std::vector<int64_t> own;
  for (const NamedTensor& each : parameters)
    own.push_back(std::bit_cast<int64_t>(digest_of({each})));
  const auto count = std::ssize(own);
  const at::Tensor all = at::zeros({group.size(), count}, at::kLong);
  group.all_gather(at::tensor(own, at::kLong), all.view({-1}));
  const auto found = find_odd_thing(ranks, own.size(), [&](size_t p) {
    std::vector<int64_t> values;
    for (const int rank : ranks)
      values.push_back(all[rank][static_cast<int64_t>(p)].item<int64_t>());
    return values;
  });
  if (!found) return;
  throw ErrorOfAllRanks(
      ErrorCode::invalid_argument, "parallel",
      fmt::format(
          "step {}: {}{}. {}", place.steps + 1,
          found->ranks.sentence(fmt::format("the parameter '{}'", parameters[found->thing].name)),
          found->others > 0 ? fmt::format(", nor are {} others", found->others) : "",
          since_when(place.alike_in)),
      place.remedy);
}

std::string parameters_at_the_end(const std::vector<NamedTensor>& parameters, int64_t steps,
                                  int64_t alike_in) {
  comm::ParametersAtTheEnd own{.digests = {}, .steps = steps, .alike_in = alike_in};
  for (const NamedTensor& each : parameters)
    own.digests.emplace_back(each.name, std::bit_cast<int64_t>(digest_of({each})));
  return own.to_text();
}

void refuse_same_samples(Group& group, const OwnPlace& place, int64_t gradients) {
  std::vector<int> ranks(static_cast<size_t>(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const std::vector<int64_t> all = gathered(group, ranks, gradients);
  if (std::ranges::count(all, 0) > 0) return;
  if (std::ranges::count(all, gradients) == std::ssize(all))
    throw ErrorOfAllRanks(
        ErrorCode::invalid_argument, "parallel",
        fmt::format("step {}: all ranks have computed the same gradients, bit for bit: they read "
                    "the same samples",
                    place.steps + 1),
        "trireme::make_data_loader() or World::share(), which give each rank its part. "
        "OwnStepsOptions::own_samples = true if the ranks are to read the same");
  if (group.rank() == 0)
    log_warning(
        "the samples of the first step were not shared by trireme::make_data_loader() or "
        "World::share(): each rank counts alike, and has to read other samples than the others; "
        "try: one of the two, or OwnStepsOptions::own_samples if the loop does it");
}

}  // namespace trireme
