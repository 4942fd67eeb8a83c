// Elastic jobs whose ranks have parts of a model, and lose some of them.
#pragma once
#include "jobs.h"
// This header must come after those of torch.
#include <gtest/gtest.h>

#include <trireme/membership/coordinator.h>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace trireme::tests {

using BeforeBlock = std::function<void()>;

// Four blocks. With `tied` the last one has the weight of the first one too, in place of its own.
struct PartedChain : torch::nn::Module {
  explicit PartedChain(BeforeBlock before = {}, bool is_tied = false)
      : before_block(std::move(before)), tied(is_tied) {}
  at::Tensor forward(const at::Tensor& x) { return output_of(blocks(), {x}); }
  std::vector<Block> blocks() {
    const auto block = [this](auto compute) {
      return [this, compute](const Tensors& x) {
        if (before_block) before_block();
        return Tensors{compute(x[0])};
      };
    };
    std::vector<std::shared_ptr<torch::nn::Module>> last = {back.ptr(), out.ptr()};
    if (tied) last.push_back(in.ptr());
    return {{"in", {in.ptr()}, block([this](const at::Tensor& x) { return at::tanh(in(x)); })},
            {"middle", {middle.ptr()}, block([this](const at::Tensor& x) {
               return at::tanh(middle(x));
             })},
            {"wide", {wide.ptr()}, block([this](const at::Tensor& x) { return wide(x); })},
            {"out", last, block([this](const at::Tensor& x) {
               const at::Tensor y = tied ? at::matmul(x, in->weight) : back(x);
               return out(at::tanh(y));
             })}};
  }
  BeforeBlock before_block;
  bool tied;
  torch::nn::Linear in = register_module("in", torch::nn::Linear(5, 9)),
                    middle = register_module("middle", torch::nn::Linear(9, 9)),
                    wide = register_module("wide", torch::nn::Linear(9, 9)),
                    back = register_module("back", torch::nn::Linear(9, 5)),
                    out = register_module("out", torch::nn::Linear(5, 3));
};

inline Job parted_job(BeforeBlock before = {}, bool tied = false) {
  Job what = job(Adam{.lr = 0.01});
  what.model = model_factory<PartedChain>(std::move(before), tied);
  return what;
}

// The end of a rank, in the middle of a step.
struct EndOfARank {
  int rank = 0;   // At that time.
  int calls = 0;  // Its process has run so many blocks.
};
struct PartedJob {
  int minimum = 1, workers = 1, unit = 1;
  // Processes that come when the others train: they make the job larger, or take the place of lost
  // ones.
  int newcomers = 0, replacements = 0;
  bool tied = false;
  std::vector<EndOfARank> ends = {};
  bool newcomers_end_at_once = false;  // While they make their first engine.
};
struct PartedResult {
  std::vector<Report> reports;      // From processes that trained to the end.
  std::vector<std::string> errors;  // From all others but those made to end.
  int dismissed = 0, ended = 0;
};

// Runs the processes of an elastic job as threads.
inline PartedResult train_parted(const TrainerOptions& options, const PartedJob& size) {
  constexpr int kCallsUntilOthersCome = 17;
  constexpr const char* kToken = "a token of this test";
  const int largest = size.workers + size.newcomers, processes = largest + size.replacements;
  membership::Coordinator coordinator(
      net::Endpoint{"127.0.0.1", 0}, kToken, {.workers = processes},
      membership::RosterOptions{.minimum = size.minimum,
                                .maximum = largest,
                                .target = largest,
                                .first_timeout = Milliseconds(size.newcomers > 0 ? 300 : 20000),
                                .unit = size.unit});
  std::mutex mutex;
  std::condition_variable changed;
  bool trains = false;
  std::vector<bool> has_ended(size.ends.size());
  PartedResult result;
  const auto call_newcomers = [&] {
    const std::lock_guard lock(mutex);
    trains = true;
    changed.notify_all();
  };
  const auto train = [&](int process) {
    if (process >= size.workers) {
      std::unique_lock lock(mutex);
      changed.wait_for(lock, std::chrono::seconds(20), [&] { return trains; });
    }
    World world =
        World::join(world_options(),
                    Environment({{"TRIREME_WORKER", std::to_string(process % largest)},
                                 {"TRIREME_WORKERS", std::to_string(largest)},
                                 {"TRIREME_ELASTIC", fmt::format("{}:{}", size.minimum, largest)},
                                 {"TRIREME_UNIT", std::to_string(size.unit)},
                                 {"TRIREME_PROCESS", std::to_string(process)},
                                 {"TRIREME_RENDEZVOUS", coordinator.endpoint().describe()},
                                 {"TRIREME_JOB_TOKEN", kToken}}));
    // Rank 0 runs all blocks once before training, to measure them. That does not count.
    constexpr int kBlocks = 4;
    std::optional<int> calls;
    const auto before_block = [&] {
      if (!calls) calls = options.division.mesh.pipeline > 1 && world.worker() == 0 ? -kBlocks : 0;
      if (++*calls == kCallsUntilOthersCome && process < size.workers && size.newcomers > 0) {
        call_newcomers();
        const Deadline deadline = Deadline::after(Milliseconds(20000));
        while (!world.regroup_wanted() && !deadline.expired()) std::this_thread::yield();
      }
      std::unique_lock lock(mutex);
      for (size_t i = 0; i < size.ends.size(); ++i)
        if (!has_ended[i] && world.worker() == size.ends[i].rank && *calls >= size.ends[i].calls) {
          has_ended[i] = trains = true;
          ++result.ended;
          changed.notify_all();
          // Ranks of the same call end together: the others would else meet again between two
          // ends, and have other ranks.
          changed.wait_for(lock, std::chrono::seconds(20), [&] {
            for (size_t other = 0; other < size.ends.size(); ++other)
              if (size.ends[other].calls == size.ends[i].calls && !has_ended[other]) return false;
            return true;
          });
          throw std::runtime_error("the end of this rank");
        }
    };
    try {
      Job what = parted_job(before_block, size.tied);
      if (process >= size.workers && size.newcomers_end_at_once)
        what.optimizer = [&](const auto&) -> std::shared_ptr<torch::optim::Optimizer> {
          const std::lock_guard lock(mutex);
          ++result.ended;
          throw std::runtime_error("the end of this rank");
        };
      Report report = Trainer(world, options).fit(what, clouds(90));
      world.leave();
      const std::lock_guard lock(mutex);
      if (report.dismissed)
        ++result.dismissed;
      else
        result.reports.push_back(std::move(report));
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex);
      if (std::string(error.what()) != "the end of this rank")
        result.errors.emplace_back(error.what());
    }
  };
  on_threads(processes, train);
  return result;
}

}  // namespace trireme::tests
