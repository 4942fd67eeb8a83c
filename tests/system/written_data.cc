// Loops with unequal batches, samplers of their own, and evaluations; and on devices.
#include <trireme/parallel/distributed.h>
#include <trireme/parallel/metrics.h>
#include <trireme/train/loop_record.h>
#include <trireme/train/own_checkpoint.h>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "loop_parts.h"

namespace loops {
namespace {

using trireme::Distributed;

// Each rank has another number of batches: 2, 4, 6, or the other way round with TEST_REVERSED. A
// process alone has those of TEST_RANKS ranks. Undefined if there are none in this step.
torch::Tensor unequal_batches(const World& world, int step) {
  const int ranks = world.size() > 1 ? world.size() : number_in("TEST_RANKS");
  std::vector<torch::Tensor> all;
  for (int rank = 0; rank < ranks; ++rank) {
    const int place = number_in("TEST_REVERSED") == 1 ? ranks - 1 - rank : rank;
    if ((world.size() == 1 || rank == world.rank()) && step < 2 + 2 * place)
      all.push_back(
          torch::sin(0.3 * step + 0.7 * place + torch::arange(12, torch::kDouble)).view({2, 6}));
  }
  return all.empty() ? torch::Tensor() : torch::cat(all);
}

// Mistakes with devices.
void moved_later(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.1));
  one_step(model, optimizer);
  const bool moves = world.rank() == 1 || number_in("TEST_ALONE") != 1;
  if (moves) model.to(device());
  optimizer.zero_grad();
  model.forward(torch::ones({2, 6}, moves ? device() : torch::Device("cpu"))).sum().backward();
  optimizer.step();
}

void one_rank_on_a_device(World& world) {
  Net model;
  if (world.rank() == 1) model.to(device());
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.1));
}

void half_on_a_device(World& world) {
  Net model;
  model.output->to(device());
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.1));
}

// One tensor of the device is read as memory of the host, which the stand-in must not allow.
void read_by_the_host(World&) {
  std::cout << torch::ones({1}, device()).data_ptr<float>()[0] << std::endl;
}

void join(World& world) {
  Net model;
  model.to(device(), torch::kDouble);
  Distributed<torch::optim::Adam> optimizer(world, model, torch::optim::AdamOptions(0.01));
  for (int epoch = 0; epoch < 2; ++epoch) {
    int step = 0;
    for (auto batch = unequal_batches(world, step); batch.defined();
         batch = unequal_batches(world, ++step)) {
      optimizer.zero_grad();
      model.forward(batch.to(device())).square().mean().backward();
      optimizer.step();
    }
    optimizer.join();
    print(world, {{"sum", sum_of(model)}});
  }
}

// The loss is a sum over the samples of the ranks that have some.
void joined_sums(World& world) {
  Net model;
  model.to(torch::kDouble);
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.01));
  int step = 0;
  for (auto batch = unequal_batches(world, step); batch.defined();
       batch = unequal_batches(world, ++step)) {
    optimizer.zero_grad();
    world.weigh(1, 1);
    model.forward(batch).square().sum().backward();
    optimizer.step();
  }
  optimizer.join();
  print(world, {{"sum", sum_of(model)}});
}

// Two optimizers, of which one makes a step with every second batch; a record, and checkpoints
// that are saved while some ranks have no batches any more.
void joined_gan(World& world) {
  torch::nn::Sequential generator(torch::nn::Linear(6, 8), torch::nn::Tanh(),
                                  torch::nn::Linear(8, 6));
  torch::nn::Sequential critic(torch::nn::Linear(6, 8), torch::nn::ReLU(),
                               torch::nn::Linear(8, 1));
  generator->to(torch::kDouble);
  critic->to(torch::kDouble);
  Distributed<torch::optim::Adam> of_generator({.joins = true}, world, generator,
                                               torch::optim::AdamOptions(2e-2));
  Distributed<torch::optim::Adam> of_critic({.joins = true}, world, critic,
                                            torch::optim::AdamOptions(2e-2));
  trireme::Checkpoint checkpoint(world, generator, of_generator,
                                 {.dir = text_in("TEST_FOLDER"), .every_steps = 3, .keep = 9});
  checkpoint.include("critic", critic, of_critic);
  trireme::LoopRecord record(world, {.dir = text_in("TEST_RECORD"), .progress = false});
  namespace F = torch::nn::functional;
  for (int epoch = 0; epoch < 2; ++epoch) {
    int step = 0;
    for (auto batch = unequal_batches(world, step); batch.defined();
         batch = unequal_batches(world, ++step)) {
      critic->zero_grad();
      auto real = critic->forward(batch);
      F::binary_cross_entropy_with_logits(real, torch::ones_like(real)).backward();
      auto fake = generator->forward(batch.flip(1));
      auto judged = critic->forward(fake.detach());
      auto loss = F::binary_cross_entropy_with_logits(judged, torch::zeros_like(judged));
      loss.backward();
      of_critic.step();
      if (step % 2 == 1) {
        generator->zero_grad();
        auto again = critic->forward(fake);
        F::binary_cross_entropy_with_logits(again, torch::ones_like(again)).backward();
        of_generator.step();
        record.scalar("generator", again.mean().item<double>());
      }
      record.scalar("critic", loss.item<double>());
      record.step(loss, of_critic);
      checkpoint.commit();
    }
    of_generator.join();
    print(world, {{"generator", sum_of(*generator)},
                  {"critic", sum_of(*critic)},
                  {"steps", checkpoint.step()}});
  }
  record.end();
}

void joined_closures(World& world) {
  auto model = std::make_shared<Net>();
  model->to(torch::kDouble);
  Distributed<torch::optim::LBFGS> optimizer({.joins = true}, world, model,
                                             torch::optim::LBFGSOptions(0.1).max_iter(3));
  int step = 0;
  for (auto batch = unequal_batches(world, step); batch.defined();
       batch = unequal_batches(world, ++step))
    optimizer.step([&] {
      optimizer.zero_grad();
      auto now = model->forward(batch).square().mean();
      now.backward();
      return now;
    });
  optimizer.join();
  print(world, {{"sum", sum_of(*model)}});
}

// Each sample counts once, whatever the number of ranks.
void evaluated(World& world) {
  const auto rows = trireme::evaluate(
      world, Samples().map(torch::data::transforms::Stack<>()), 8,
      [](const torch::data::Example<>& batch) { return batch.data.select(1, 0); });
  auto loader = trireme::make_data_loader<torch::data::samplers::SequentialSampler>(
      world, Samples().map(torch::data::transforms::Stack<>()), 20);
  for (auto& batch : *loader) {
    const auto targets = trireme::gather_for_metrics(world, batch.target);
    print(world, {{"targets", targets.size(0)},
                  {"sum", (targets * torch::arange(targets.size(0))).sum().item<int64_t>()}});
  }
  const auto places = torch::arange(rows.size(0)).to(torch::kDouble);
  print(world, {{"rows", rows.size(0)}, {"sum", (rows * places).sum().item<double>()}});
}

// Each epoch ends with an evaluation. The record, in TEST_RECORD, has its result, and the mean of
// the targets of each batch.
void recorded(World& world) {
  Net model;
  model.to(torch::kDouble);
  auto loader = loader_for(world);
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.2));
  trireme::LoopRecord record(
      world,
      {.name = "waves", .dir = text_in("TEST_RECORD"), .total_steps = 12, .steps_per_epoch = 6});
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      auto loss = loss_of(model, batch);
      loss.backward();
      optimizer.step();
      record.scalar("targets/mean", batch.target.to(torch::kDouble).mean().item<double>());
      record.step(loss, optimizer);
    }
    const auto rows = trireme::evaluate(
        world, Samples().map(torch::data::transforms::Stack<>()), 8,
        [&](const torch::data::Example<>& batch) {
          const auto logits = model.forward(batch.data);
          const auto losses = torch::nn::functional::cross_entropy(
              logits, batch.target,
              torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
          return torch::stack({losses, logits.argmax(1).eq(batch.target).to(torch::kDouble)}, 1);
        });
    const double loss = rows.mean(0)[0].item<double>(), right = rows.sum(0)[1].item<double>();
    const double accuracy = right / static_cast<double>(rows.size(0));
    record.evaluated(loss, accuracy, {{"right", right}});
    print(world,
          {{"step", record.steps()}, {"loss", loss}, {"accuracy", accuracy}, {"right", right}});
  }
  record.end();
}

// The same rows, computed on a device and gathered there.
void evaluated_on_a_device(World& world) {
  const auto rows = trireme::evaluate(
      world, Samples().map(torch::data::transforms::Stack<>()), 8,
      [](const torch::data::Example<>& batch) { return moved(batch).data.select(1, 0); });
  const auto places = torch::arange(rows.size(0)).to(rows.device(), torch::kDouble);
  if (rows.device().type() != device().type()) std::abort();
  print(world, {{"rows", rows.size(0)}, {"sum", (rows * places).sum().item<double>()}});
}

// An evaluation that shares its own batches interrupts an epoch.
void evaluated_by_shares(World& world) {
  Net model;
  model.to(torch::kDouble);
  Samples samples;
  const auto all = [&](int64_t first, int64_t count) {
    std::vector<torch::Tensor> data, targets;
    for (int64_t i = first; i < first + count; ++i) {
      const auto one = samples.get(static_cast<size_t>(i));
      data.push_back(one.data), targets.push_back(one.target);
    }
    return torch::data::Example<>(torch::stack(data), torch::stack(targets));
  };
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.2));
  const int64_t own = world.share(10);
  const int64_t first = trireme::plan::DataPlan::share(10, world.rank(), world.size()).first;
  for (int step = 0; step < 6; ++step) {
    if (step == 3) {
      const torch::NoGradGuard no_grad;
      const int64_t count = world.share(31);
      model.forward(all(0, count).data);
    }
    optimizer.zero_grad();
    auto batch = all(10 * step + first, own);
    loss_of(model, batch).backward();
    optimizer.step();
    print(world, {{"sum", sum_of(model)}});
  }
}

// A sampler of their own: the indices from the last to the first, of which each rank takes its
// share of a batch.
class Backwards : public torch::data::samplers::Sampler<> {
 public:
  Backwards(World& world, size_t size, int64_t batch)
      : world_(world), size_(size), left_(size), batch_(batch) {}
  void reset(std::optional<size_t> size = std::nullopt) override { left_ = size.value_or(size_); }
  std::optional<std::vector<size_t>> next(size_t) override {
    const auto batch = std::min(batch_, static_cast<int64_t>(left_));
    if (batch < world_.size()) return std::nullopt;
    const auto [first, last] = trireme::plan::DataPlan::share(batch, world_.rank(), world_.size());
    std::vector<size_t> indices;
    for (int64_t i = first; i < last; ++i) indices.push_back(left_ - 1 - static_cast<size_t>(i));
    left_ -= static_cast<size_t>(batch);
    return indices;
  }
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}

 private:
  World& world_;
  size_t size_, left_;
  int64_t batch_;
};

void own_sampler(World& world) {
  Net model;
  model.to(torch::kDouble);
  auto loader =
      torch::data::make_data_loader(Samples().map(torch::data::transforms::Stack<>()),
                                    Backwards(world, 103, 20), torch::data::DataLoaderOptions(20));
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.2));
  for (int epoch = 0; epoch < 2; ++epoch) {
    int64_t left = 103;
    for (auto& batch : *loader) {
      world.share(std::min<int64_t>(20, left));
      left -= 20;
      optimizer.zero_grad();
      loss_of(model, batch).backward();
      optimizer.step();
      print(world, {{"sum", sum_of(model)}});
    }
  }
}

}  // namespace

Loops written_data() {
  return {{"join", join},
          {"joined_sums", joined_sums},
          {"evaluated", evaluated},
          {"recorded", recorded},
          {"evaluated_on_a_device", evaluated_on_a_device},
          {"joined_gan", joined_gan},
          {"joined_closures", joined_closures},
          {"evaluated_by_shares", evaluated_by_shares},
          {"own_sampler", own_sampler},
          {"moved_later", moved_later},
          {"one_rank_on_a_device", one_rank_on_a_device},
          {"half_on_a_device", half_on_a_device},
          {"read_by_the_host", read_by_the_host}};
}

}  // namespace loops
