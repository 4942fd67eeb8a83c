// An elastic job that loses a worker.
#pragma once
#include "jobs.h"
// This header must come after those of torch.
#include <gtest/gtest.h>

#include <trireme/membership/coordinator.h>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace trireme::tests {

// By process: its report, or the code and the message of its error.
struct AfterALoss {
  std::vector<Report> reports;
  std::vector<std::string> errors;
};

// Called by a process before it computes the loss of a step; counted are its own.
using BeforeLoss = std::function<void(int process, const World& world, int64_t step)>;

// Three processes of an elastic job, as threads. The third is lost while it computes step 5.
inline AfterALoss train_with_a_loss(const TrainerOptions& options,
                                    const OptimizerFactory& optimizer = job().optimizer,
                                    int minimum = 2, const BeforeLoss& before_loss = {}) {
  constexpr int kProcesses = 3, kLost = 2;
  constexpr const char* kToken = "a token of this test";
  membership::Coordinator coordinator(
      net::Endpoint{"127.0.0.1", 0}, kToken, {.workers = kProcesses},
      membership::RosterOptions{.minimum = minimum, .maximum = kProcesses, .target = kProcesses});
  AfterALoss result{std::vector<Report>(kProcesses), std::vector<std::string>(kProcesses)};
  on_threads(kProcesses, [&](int process) {
    World world =
        World::join(world_options(),
                    Environment({{"TRIREME_WORKER", std::to_string(process)},
                                 {"TRIREME_WORKERS", std::to_string(kProcesses)},
                                 {"TRIREME_ELASTIC", fmt::format("{}:{}", minimum, kProcesses)},
                                 {"TRIREME_PROCESS", std::to_string(process)},
                                 {"TRIREME_RENDEZVOUS", coordinator.endpoint().describe()},
                                 {"TRIREME_JOB_TOKEN", kToken}}));
    Job the_job = job(optimizer);
    the_job.loss = [&, step = int64_t{0}](const at::Tensor& output,
                                          const at::Tensor& target) mutable {
      if (++step == 5 && process == kLost) throw std::runtime_error("out of memory");
      if (before_loss) before_loss(process, world, step);
      return at::cross_entropy_loss(output, target);
    };
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
