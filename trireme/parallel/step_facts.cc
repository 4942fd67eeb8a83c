#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/parallel/step_facts.h>
#include <cmath>

namespace trireme {
namespace {

constexpr uint64_t kExact = 1 << 24;  // A float32 tensor has all whole numbers below it.

// Not 0, unless the value is.
double folded(uint64_t value) {
  return value == 0 ? 0 : static_cast<double>(1 + value % (kExact - 1));
}

}  // namespace

Error with_step(const Error& error, int64_t step) {
  const auto [what, remedy] = parts_of(error);
  const std::string name = fmt::format("step {}: ", step);
  return Error(error.code(), "parallel", what.find(name) == std::string::npos ? name + what : what,
               remedy);
}

void StepFacts::write(const Contribution& mine, int rank, const std::vector<bool>& has_gradient,
                      bool gradients_are_finite, const at::Tensor& values) const {
  const at::Tensor facts = at::zeros({size()}, at::kDouble);
  double* fact = facts.mutable_data_ptr<double>();
  const bool finite = std::isfinite(mine.loss_sum);
  fact[kLoss] = finite ? mine.loss_sum : 0;
  fact[kSamples] = static_cast<double>(mine.samples);
  fact[kOfKnownTotal] = mine.total_samples > 0 ? static_cast<double>(mine.samples) : 0;
  fact[kStop] = (mine.wants_stop ? 1 : 0) + (mine.wants_end ? kOfEnd : 0);
  fact[kRegroup] = mine.wants_regroup;
  fact[kBadGradients] = !gradients_are_finite;
  fact[nonfinite(rank)] = !finite;
  fact[change(rank)] = static_cast<double>(mine.change.change);
  fact[note(rank)] =
      mine.change.change == Change::none ? folded(mine.writes) : mine.change.parameter;
  fact[groups(rank)] = static_cast<double>(mine.groups % kExact);
  fact[digest(rank)] = folded(mine.digest);
  for (size_t parameter = 0; parameter < names_.size(); ++parameter)
    fact[used(static_cast<int64_t>(parameter))] = has_gradient[parameter];
  values.copy_(facts);
}

void StepFacts::report_change(const at::Tensor& values, int rank, ParameterChange found) const {
  if (values.select(0, change(rank)).item<double>() != 0) return;
  values.select(0, change(rank)).fill_(static_cast<double>(found.change));
  values.select(0, note(rank)).fill_(static_cast<double>(found.parameter));
}

void StepFacts::refuse_different_parameters(const double* fact) const {
  int first = -1;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (fact[digest(rank)] == 0) continue;
    if (first < 0) first = rank;
    if (fact[digest(rank)] == fact[digest(first)]) continue;
    throw OtherDigests(
        ErrorCode::invalid_argument, "parallel",
        fmt::format("the parameters or learning rates of rank {} are not those of rank {}: "
                    "something else than the optimizer's steps has changed them on one "
                    "rank alone",
                    rank, first),
        "the same changes on all ranks (initialise, load, write, schedules), or sync() of "
        "Distributed or sync_state() of DataParallel afterwards");
  }
}

// A rank without samples tells no number.
bool StepFacts::writes_differ(const double* fact) const {
  double first = 0;
  for (int rank = 0; rank < world_size_; ++rank) {
    if (fact[note(rank)] == 0) continue;
    if (first != 0 && fact[note(rank)] != first) return true;
    first = fact[note(rank)];
  }
  return false;
}

StepFacts::Reported StepFacts::reported(const at::Tensor& values) const {
  const at::Tensor facts = values.to(at::kCPU, at::kDouble);
  const double* fact = facts.const_data_ptr<double>();
  for (int rank = 0; rank < world_size_; ++rank)
    if (const auto found = static_cast<Change>(std::lround(fact[change(rank)]));
        found != Change::none)
      return {rank, {found, static_cast<int>(std::lround(fact[note(rank)]))}};
  return {};
}

StepFacts::Summed StepFacts::read(const at::Tensor& values) const {
  if (const auto [rank, found] = reported(values); rank >= 0)
    throw ErrorOfAllRanks(change_error(rank, found, names_));
  const at::Tensor facts = values.to(at::kCPU, at::kDouble);
  const double* fact = facts.const_data_ptr<double>();
  for (int rank = 1; rank < world_size_; ++rank)
    if (fact[groups(rank)] != fact[groups(0)])
      throw ErrorOfAllRanks(
          ErrorCode::invalid_argument, "parallel",
          fmt::format("the optimizer of rank {} has other parameters, or has them in other "
                      "groups, than the optimizer of rank 0",
                      rank),
          "the same calls of add_param_group() on all ranks");
  refuse_different_parameters(fact);
  Summed summed;
  // A rank without samples does not count here: it may not have called backward() at all.
  summed.weighted = fact[kOfKnownTotal] > 0;
  if (summed.weighted && fact[kOfKnownTotal] != fact[kSamples])
    throw ErrorOfAllRanks(ErrorCode::invalid_argument, "parallel",
                          "some ranks gave backward() total_samples and others did not",
                          "total_samples on all ranks, or on none");
  StepOutcome& outcome = summed.outcome;
  outcome.samples = std::llround(fact[kSamples]);
  outcome.loss = outcome.samples > 0 ? fact[kLoss] / static_cast<double>(outcome.samples) : 0;
  outcome.stop = std::fmod(fact[kStop], kOfEnd) > 0;
  outcome.end = fact[kStop] >= kOfEnd;
  outcome.regroup = fact[kRegroup] > 0;
  outcome.nonfinite_gradients = fact[kBadGradients] > 0;
  outcome.writes_differ = writes_differ(fact);
  for (int rank = 0; rank < world_size_; ++rank)
    if (fact[nonfinite(rank)] > 0) outcome.nonfinite_ranks.push_back(rank);
  for (size_t parameter = 0; parameter < names_.size(); ++parameter)
    summed.used.push_back(fact[used(static_cast<int64_t>(parameter))] > 0);
  return summed;
}

}  // namespace trireme
