// An elastic job that loses a worker.
#pragma once
#include "jobs.h"
// This header must come after those of torch.
#include <gtest/gtest.h>

#include <trireme/membership/coordinator.h>
#include <stdexcept>
#include <string>
#include <vector>

namespace trireme::tests {

// By process: its report, or the code and the message of its error.
struct AfterALoss {
  std::vector<Report> reports;
  std::vector<std::string> errors;
};

// Three processes of an elastic job, as threads. The third is lost while it computes step 5.
inline AfterALoss train_with_a_loss(const TrainerOptions& options,
                                    const OptimizerFactory& optimizer = job().optimizer) {
  constexpr int kProcesses = 3, kLost = 2;
  constexpr const char* kToken = "a token of this test";
  membership::Coordinator coordinator(
      net::Endpoint{"127.0.0.1", 0}, kToken, {.workers = kProcesses},
      membership::RosterOptions{.minimum = 2, .maximum = kProcesses, .target = kProcesses});
  AfterALoss result{std::vector<Report>(kProcesses), std::vector<std::string>(kProcesses)};
  on_threads(kProcesses, [&](int process) {
    Job the_job = job(optimizer);
    if (process == kLost)
      the_job.loss = [step = int64_t{0}](const at::Tensor& output,
                                         const at::Tensor& target) mutable {
        if (++step == 5) throw std::runtime_error("out of memory");
        return at::cross_entropy_loss(output, target);
      };
    World world = World::join(
        world_options(), Environment({{"TRIREME_WORKER", std::to_string(process)},
                                      {"TRIREME_WORKERS", std::to_string(kProcesses)},
                                      {"TRIREME_ELASTIC", fmt::format("2:{}", kProcesses)},
                                      {"TRIREME_PROCESS", std::to_string(process)},
                                      {"TRIREME_RENDEZVOUS", coordinator.endpoint().describe()},
                                      {"TRIREME_JOB_TOKEN", kToken}}));
    const auto index = static_cast<size_t>(process);
    try {
      result.reports[index] = Trainer(world, options).fit(the_job, clouds(90));
      world.leave();
    } catch (const Error& error) {
      result.errors[index] = std::string(to_string(error.code())) + ": " + error.what();
    } catch (const std::exception& error) {
      result.errors[index] = error.what();  // The world says no goodbye.
    }
  });
  EXPECT_EQ(result.errors[kLost], "out of memory");
  return result;
}

}  // namespace trireme::tests
