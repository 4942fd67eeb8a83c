#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <fmt/format.h>
#include <trireme/train/input_report.h>
#include <algorithm>
#include <cmath>

namespace trireme {
namespace {

constexpr double kWorthALine = 0.01, kWorthAdvice = 0.02, kBusy = 0.8;

Json stage_json(const data::StageUse& stage, double thread_seconds) {
  const double per_sample =
      stage.samples > 0 ? stage.seconds * 1e3 / static_cast<double>(stage.samples) : 0;
  return {{"name", stage.name},
          {"samples", stage.samples},
          {"seconds", stage.seconds},
          {"ms_per_sample", per_sample},
          {"busy_share", thread_seconds > 0 ? std::min(1.0, stage.seconds / thread_seconds) : 0}};
}

}  // namespace

Json report_of_input(const InputOfRank& own, Group& group) {
  // Numbers of each rank, and sums over processes.
  constexpr int64_t kOfRank = 2;
  const auto ranks = static_cast<int64_t>(group.size());
  int64_t stages = std::ssize(own.stages);
  at::Tensor most = at::zeros({1}, at::kLong);
  *most.mutable_data_ptr<int64_t>() = stages;
  group.all_reduce(most, ReduceOp::max);
  stages = *most.const_data_ptr<int64_t>();
  const at::Tensor all = at::zeros({ranks * kOfRank + 2 * stages + 2}, at::kDouble);
  auto* const numbers = all.mutable_data_ptr<double>();
  numbers[group.rank() * kOfRank] = own.waited;
  numbers[group.rank() * kOfRank + 1] = own.step_seconds;
  double* const sums = numbers + ranks * kOfRank;
  for (size_t i = 0; i < own.stages.size() && own.counts_process; ++i) {
    sums[2 * i] = own.stages[i].seconds;
    sums[2 * i + 1] = static_cast<double>(own.stages[i].samples);
  }
  sums[2 * stages] = static_cast<double>(own.threads);
  sums[2 * stages + 1] = own.counts_process ? static_cast<double>(own.skipped) : 0;
  group.all_reduce(all);

  Json shares = Json::array();
  double largest = 0, step_seconds = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const double waited = numbers[rank * kOfRank], seconds = numbers[rank * kOfRank + 1];
    const double share = seconds > 0 ? std::min(1.0, waited / seconds) : 0;
    shares.push_back(share);
    largest = std::max(largest, share);
    step_seconds = std::max(step_seconds, seconds);
  }
  Json input{{"waited_share", largest},
             {"waited_share_of_rank", shares},
             {"threads", std::llround(sums[2 * stages])},
             {"skipped", std::llround(sums[2 * stages + 1])},
             {"stages", Json::array()},
             {"slowest_stage", nullptr}};
  // Without threads the ranks load by themselves.
  const double thread_seconds =
      step_seconds * std::max(sums[2 * stages], static_cast<double>(ranks));
  double slowest = 0;
  for (int64_t i = 0; i < stages && i < std::ssize(own.stages); ++i) {
    const data::StageUse stage{own.stages[static_cast<size_t>(i)].name, sums[2 * i],
                               std::llround(sums[2 * i + 1])};
    input["stages"].push_back(stage_json(stage, thread_seconds));
    if (stage.seconds <= slowest) continue;
    slowest = stage.seconds;
    input["slowest_stage"] = stage.name;
  }
  input["line"] = line_of_input(input);
  return input;
}

std::string line_of_input(const Json& input) {
  const double waited = input.at("waited_share").get<double>();
  if (waited < kWorthALine) return "";
  std::string line = fmt::format("waited {:.1f} % of step time", waited * 100);
  if (!input.at("slowest_stage").is_string()) return line;
  const auto name = input.at("slowest_stage").get<std::string>();
  const auto threads = input.at("threads").get<int64_t>();
  double busy = 0;
  for (const Json& stage : input.at("stages")) busy += stage.at("busy_share").get<double>();
  line += fmt::format("; slowest stage {}", name);
  if (threads > 0)
    line += fmt::format(", {:.1f} of {} threads busy",
                        std::min(1.0, busy) * static_cast<double>(threads), threads);
  if (waited < kWorthAdvice) return line;
  const auto ranks = std::ssize(input.at("waited_share_of_rank"));
  const int64_t each = threads / std::max<int64_t>(1, ranks);
  if (threads == 0)
    line += ": data.threads=1";
  else if (busy >= kBusy)
    line += fmt::format(": data.threads={}, or a cheaper stage", each + 1);
  else
    line += ": data.prefetch, because the threads are not always busy";
  return line;
}

}  // namespace trireme
