// Mistakes by which ranks differ: other options, batches, modes, or calls of all ranks on one.
#include <trireme/parallel/data_parallel.h>
#include <trireme/parallel/distributed.h>
#include <trireme/parallel/metrics.h>
#include <trireme/train/loop_record.h>
#include <trireme/train/own_checkpoint.h>
#include <memory>
#include <optional>
#include <vector>

#include "loop_parts.h"

namespace loops {
namespace {

using trireme::Distributed;

void other_rate(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.1));
  for (int step = 0; step < 8; ++step) {
    if (step == 5 && world.rank() == 1) optimizer.param_groups()[0].options().set_lr(0.2);
    optimizer.zero_grad();
    model.forward(samples()).sum().backward();
    optimizer.step();
  }
}

void uneven_values(World& world) {
  trireme::gather_for_metrics(world, torch::ones({2, 3 + world.rank()}));
}

// A layer is in another mode in step 3.
void mode_of_a_layer(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.1));
  for (int step = 1; step <= 5; ++step) {
    if (step == 3 && is_last(world)) model.output->eval();
    one_step(model, optimizer);
  }
}

// A sampler that has numbers of its own: the ranks read other batches.
void other_order(World& world) {
  class OwnOrder : public torch::data::samplers::SequentialSampler {
   public:
    OwnOrder(size_t size, size_t from) : SequentialSampler(size), from_(from), size_(size) {}
    std::optional<std::vector<size_t>> next(size_t count) override {
      auto batch = SequentialSampler::next(count);
      if (batch)
        for (size_t& index : *batch) index = (index + from_) % size_;
      return batch;
    }

   private:
    size_t from_, size_;
  };
  Net model;
  model.to(torch::kDouble);
  auto loader = trireme::make_data_loader(world, Samples().map(torch::data::transforms::Stack<>()),
                                          OwnOrder(103, is_last(world) ? 7 : 0),
                                          torch::data::DataLoaderOptions(20));
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.1));
  for (auto& batch : *loader) {
    optimizer.zero_grad();
    loss_of(model, batch).backward();
    optimizer.step();
  }
}

void loader_left_out(World& world) {
  Net model;
  model.to(torch::kDouble);
  auto loader = trireme::make_data_loader(world, Samples().map(torch::data::transforms::Stack<>()),
                                          torch::data::DataLoaderOptions(20));
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.1));
  trireme::Checkpoint checkpoint(world, model, optimizer, {.dir = "left_out"});
  for (auto& batch : *loader) {
    optimizer.zero_grad();
    loss_of(model, batch).backward();
    optimizer.step();
    checkpoint.commit();
  }
}

// Calls of all ranks on rank 0 alone.
void saved_on_one_rank(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  trireme::Checkpoint checkpoint(world, model, optimizer, {});
  for (int step = 1; step <= 5; ++step) {
    one_step(model, optimizer);
    if (step == 3 && world.rank() == 0) checkpoint.save(step);
  }
}

void evaluated_on_one_rank(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  for (int step = 1; step <= 5; ++step) {
    one_step(model, optimizer);
    if (step == 3 && world.rank() == 0) trireme::gather_for_metrics(world, torch::ones({2}));
  }
}

void epoch_on_one_rank(World& world) {
  Net model;
  model.to(torch::kDouble);
  auto loader = loader_for(world);
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  for (int epoch = 0; epoch < 2; ++epoch)
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      loss_of(model, batch).backward();
      optimizer.step();
      if (is_last(world)) break;
    }
}

void other_batches(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  for (int step = 1; step <= 5; ++step) {
    world.share(step < 4 || !is_last(world) ? 20 : 30);
    one_step(model, optimizer);
  }
}

void frozen_on_one_rank(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  for (int step = 1; step <= 5; ++step) {
    if (step == 4 && is_last(world)) model.hidden->weight.requires_grad_(false);
    one_step(model, optimizer);
  }
}

void too_few_rows(World& world) {
  trireme::evaluate(
      world, Samples().map(torch::data::transforms::Stack<>()), 8,
      [](const torch::data::Example<>& batch) { return batch.data.mean().view({1}); });
}

void more_scalars(World& world) {
  trireme::LoopRecord record(world, {.progress = false});
  record.scalar("critic", 1);
  if (world.rank() == 0) record.scalar("only here", 1);
  record.step(0.5);
}

void other_scalars(World& world) {
  trireme::LoopRecord record(world, {.progress = false});
  record.scalar(world.rank() == 0 ? "critic" : "critics", 1);
  record.step(0.5);
}

// Rank 1 trains another model than the others.
void other_turns(World& world) {
  Net one, two;
  Distributed<torch::optim::SGD> of_one({.joins = true}, world, one, 0.1);
  Distributed<torch::optim::SGD> of_two({.joins = true}, world, two, 0.1);
  (world.rank() == 1 ? two : one).forward(samples()).sum().backward();
}

// One rank has other options of the optimizer from step 3 on.
void other_momentum(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model,
                                           torch::optim::SGDOptions(0.1).momentum(0.9));
  auto& options =
      static_cast<torch::optim::SGDOptions&>(optimizer.param_groups().front().options());
  for (int step = 1; step <= 5; ++step) {
    if (step == 3 && is_last(world)) options.momentum(0.5);
    one_step(model, optimizer);
  }
}

void other_decay_with_data_parallel(World& world) {
  auto model = std::make_shared<Net>();
  trireme::DataParallel replica(world, model, trireme::Adam{.lr = 0.1}, replica_options());
  auto& options =
      static_cast<torch::optim::AdamOptions&>(replica.optimizer().param_groups()[0].options());
  for (int step = 1; step <= 5; ++step) {
    if (step == 3 && is_last(world)) options.weight_decay(0.1);
    replica.step(model->forward(samples()).sum(), 2);
  }
}

void synchronised_on_one_rank(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  for (int step = 1; step <= 5; ++step) {
    one_step(model, optimizer);
    if (step == 3 && is_last(world)) optimizer.sync();
  }
}

// Every rank reads all samples.
void same_samples(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  optimizer.zero_grad();
  model.forward(torch::ones({2, 6})).sum().backward();
}

void same_samples_as_meant(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer({.own_samples = true}, world, model, 0.1);
  optimizer.zero_grad();
  model.forward(torch::ones({2, 6})).sum().backward();
  optimizer.step();
}

}  // namespace

Loops mistakes_between_ranks() {
  return {{"mode_of_a_layer", mode_of_a_layer},
          {"other_order", other_order},
          {"loader_left_out", loader_left_out},
          {"other_rate", other_rate},
          {"uneven_values", uneven_values},
          {"saved_on_one_rank", saved_on_one_rank},
          {"evaluated_on_one_rank", evaluated_on_one_rank},
          {"epoch_on_one_rank", epoch_on_one_rank},
          {"other_batches", other_batches},
          {"frozen_on_one_rank", frozen_on_one_rank},
          {"too_few_rows", too_few_rows},
          {"more_scalars", more_scalars},
          {"other_scalars", other_scalars},
          {"other_turns", other_turns},
          {"other_momentum", other_momentum},
          {"other_decay_with_data_parallel", other_decay_with_data_parallel},
          {"synchronised_on_one_rank", synchronised_on_one_rank},
          {"same_samples", same_samples},
          {"same_samples_as_meant", same_samples_as_meant}};
}

}  // namespace loops
