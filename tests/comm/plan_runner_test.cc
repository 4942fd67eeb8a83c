// Threads that run a plan give the result of the plan, bit for bit, in pieces of any size.
#include <gtest/gtest.h>
#include <trireme/base/hash.h>
#include <trireme/comm/host/host_team.h>
#include <trireme/comm/threads/plan_runner.h>
#include <cmath>
#include <thread>

#include "../plan/reference_executor.h"

namespace trireme::comm::plan_runner_test {
namespace {

plan::Tensors<float> random_tensors(int ranks, int64_t elements) {
  plan::Tensors<float> tensors(static_cast<size_t>(ranks));
  for (size_t rank = 0; rank < tensors.size(); ++rank) {
    for (int64_t i = 0; i < elements; ++i) {
      const uint64_t random = mix64(11, rank, static_cast<uint64_t>(i));
      tensors[rank].push_back(
          std::ldexp(static_cast<float>(random >> 40), static_cast<int>(random % 32) - 16));
    }
  }
  return tensors;
}

plan::Tensors<float> run_by_threads(const PreparedPlan& prepared, plan::Tensors<float> tensors,
                                    int64_t piece_bytes) {
  const int ranks = prepared.plan.world_size;
  const auto teams = make_thread_teams(ranks, Milliseconds(20000));
  std::vector<void*> begins;
  for (auto& tensor : tensors) begins.push_back(tensor.data());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      PlanRunner runner(rank, piece_bytes);
      runner.run(prepared, begins, static_cast<int64_t>(tensors[0].size()), plan::DType::float32,
                 Fold::sum, [&] { teams[static_cast<size_t>(rank)]->barrier("test"); });
    });
  for (std::thread& thread : threads) thread.join();
  return tensors;
}

TEST(PlanRunner, GivesTheResultOfThePlanInPiecesOfAnySize) {
  plan::for_each_plan(5, [](const plan::CollectivePlan& plan) {
    if (plan.root > 1) return;
    const PreparedPlan prepared(plan);
    for (const int64_t elements : {0, 3, 97}) {
      const auto tensors = random_tensors(plan.world_size, elements);
      const auto expected = plan::execute(plan, tensors);
      for (const int64_t piece_bytes : {1, 40, 1 << 20})
        ASSERT_EQ(run_by_threads(prepared, tensors, piece_bytes), expected)
            << plan.describe() << elements << " elements in pieces of " << piece_bytes << " bytes";
    }
  });
}

}  // namespace
}  // namespace trireme::comm::plan_runner_test
