// Mistakes in the loops of written_loops.cc, on one rank or on all. `loop_mistakes MISTAKE` ends
// by the error that names it; test_loop_mistakes.py runs it with 1, 2 and 3 processes.
#include <trireme/parallel/data_parallel.h>
#include <trireme/parallel/distributed.h>
#include <trireme/parallel/metrics.h>
#include <trireme/train/loop_record.h>
#include <trireme/train/own_checkpoint.h>
#include <stdexcept>
#include <string>
#include <thread>

#include "loop_parts.h"

namespace {

using namespace loops;
using trireme::Distributed;

// The rank that makes the mistake, also if it is alone.
bool errs(const World& world) { return world.rank() == world.size() - 1; }

// With TEST_APART=1 each replica has parameters of its own.
trireme::DataParallelOptions replica_options() {
  return {.share_parameters = std::getenv("TEST_APART") == nullptr};
}

// Mistakes on one rank, or on all.
void foreign(World& world) {
  Net one, other;
  std::vector<torch::Tensor> both = one.parameters();
  for (const auto& parameter : other.parameters()) both.push_back(parameter);
  Distributed<torch::optim::SGD> optimizer(world, one, both, torch::optim::SGDOptions(0.1));
}

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

void closure_alone(World& world) {
  Net model;
  Distributed<torch::optim::LBFGS> optimizer(world, model, torch::optim::LBFGSOptions(0.5));
  const auto quiet = optimizer.no_sync();
  optimizer.step([&] {
    optimizer.zero_grad();
    auto loss = model.forward(samples()).sum();
    loss.backward();
    return loss;
  });
}

void drifted_behind_the_optimizer(World& world) {
  Net model;
  {
    Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.1));
    optimizer.zero_grad();
    model.forward(samples()).sum().backward();
    optimizer.step();
    if (world.rank() == 1) torch::nn::init::ones_(model.output->bias);
  }
}

void no_backward(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.1));
  optimizer.step();
}

void only_own(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.1));
  {
    const auto quiet = optimizer.no_sync();
    model.forward(samples()).sum().backward();
  }
  optimizer.step();
}

void not_a_number(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.1));
  one_step(model, optimizer);
  one_step(model, optimizer, errs(world) ? std::nan("") : 1);
}

// The loss is finite, and so are all gradients but the last one of backward.
void not_a_number_in_one_gradient(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.1));
  for (int step = 1; step <= 5; ++step) {
    optimizer.zero_grad();
    auto loss = model.forward(samples()).sum();
    if (step == 3 && errs(world)) loss = loss + (0 * model.hidden->weight).sqrt().sum();
    loss.backward();
    optimizer.step();
  }
}
// The loop that says so looks at its gradients itself.
void own_look_at_gradients(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer({.stop_on_nan = false}, world, model, 0.1);
  int updated = 0;
  for (int step = 1; step <= 5; ++step) {
    optimizer.zero_grad();
    (model.forward(samples()).sum() * (step == 3 && errs(world) ? std::nan("") : 1)).backward();
    if (!model.output->bias.grad().sum().isfinite().item<bool>()) continue;
    optimizer.step();
    ++updated;
  }
  print(world, {{"updated", updated}});
}

void drifted(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.1));
  if (world.rank() == 1) torch::nn::init::ones_(model.output->bias);
  one_step(model, optimizer);
}

void drifted_at_the_end(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.1));
  for (int step = 0; step < 3; ++step) one_step(model, optimizer);
  if (world.rank() == 1) torch::nn::init::ones_(model.output->bias);
  world.leave();
}

void another_type(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.1));
  one_step(model, optimizer);
  if (errs(world)) model.to(torch::kDouble);
  optimizer.zero_grad();
  model.forward(torch::rand({2, 6}, model.output->bias.options().requires_grad(false)))
      .sum()
      .backward();
  optimizer.step();
}

// A layer is replaced in step 3: the new one would not be trained.
void replaced_layer(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.1));
  for (int step = 1; step <= 5; ++step) {
    if (step == 3 && errs(world))
      model.output = model.replace_module("output", torch::nn::Linear(16, 3));
    one_step(model, optimizer);
  }
}

void uneven_values(World& world) {
  trireme::gather_for_metrics(world, torch::ones({2, 3 + world.rank()}));
}

// Rank 1 leaves out the backward() of step 3.
void one_without_backward(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.1));
  for (int step = 1; step <= 5; ++step) {
    optimizer.zero_grad();
    auto loss = model.forward(samples()).sum();
    if (step != 3 || world.rank() != 1) loss.backward();
    optimizer.step();
  }
}

// Each step has two backward() calls, and rank 1 leaves out one of step 2.
void one_with_fewer_backward(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.1));
  for (int step = 1; step <= 5; ++step) {
    optimizer.zero_grad();
    for (int part = 0; part < (step == 2 && world.rank() == 1 ? 1 : 2); ++part)
      model.forward(samples()).sum().backward();
    optimizer.step();
  }
}

bool is_last(const World& world) { return world.size() > 1 && world.rank() == world.size() - 1; }

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

void cleared_gradients(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.1));
  model.forward(samples()).sum().backward();
  optimizer.zero_grad();
  optimizer.step();
}

// A value that no loss depends on becomes NaN in step 3.
void not_a_number_in_a_corner(World& world) {
  struct Table : Net {
    Table() { table = register_module("table", torch::nn::Embedding(6, 2)); }
    torch::nn::Embedding table{nullptr};
  };
  Table model;
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.001));
  for (int step = 1; step <= 66; ++step) {
    if (step == 3) {
      const torch::NoGradGuard no_grad;
      model.table->weight[5][1] = std::nan("");
    }
    optimizer.zero_grad();
    (model.forward(samples()).sum() + model.table(torch::tensor({1, 2})).sum()).backward();
    optimizer.step();
  }
}

// A frozen parameter may be infinite, and a loop may leave out the update of a step.
void masked_as_meant(World& world) {
  struct Masked : Net {
    Masked() {
      mask = register_parameter("mask", torch::full({3}, -INFINITY), /*requires_grad=*/false);
    }
    torch::Tensor mask;
  };
  Masked model;
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.001));
  for (int step = 1; step <= 66; ++step) {
    optimizer.zero_grad();
    model.forward(samples()).sum().backward();
    if (step == 3) optimizer.zero_grad();
    optimizer.step();
  }
}

void weight_of_0_in_a_sum(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.1));
  const auto quiet = optimizer.no_sync();
  for (const double weight : {1.0, 0.0}) {
    world.weigh(weight, 2);
    model.forward(samples()).sum().backward();
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

// The last rank drops the batch of step 3, and so has made a step less at the end.
void skipped(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  for (int step = 1; step <= 5; ++step)
    if (step != 3 || !is_last(world)) one_step(model, optimizer);
}

// The last rank stops early.
void left_early(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  for (int step = 1; step <= (is_last(world) ? 3 : 5); ++step) one_step(model, optimizer);
}

void left_early_with_data_parallel(World& world) {
  auto model = std::make_shared<Net>();
  trireme::DataParallel replica(world, model, trireme::SGD{.lr = 0.1}, replica_options());
  for (int step = 1; step <= (is_last(world) ? 3 : 5); ++step)
    replica.step(model->forward(samples()).sum(), 2);
}

// One replica writes its parameters in step 3, and step 4 tells.
void drifted_with_data_parallel(World& world) {
  auto model = std::make_shared<Net>();
  trireme::DataParallel replica(world, model, trireme::SGD{.lr = 0.1}, replica_options());
  for (int step = 1; step <= 5; ++step) {
    replica.step(model->forward(samples()).sum(), 2);
    if (step == 3 && is_last(world)) torch::nn::init::ones_(model->output->bias);
  }
}

void step_without_a_loss(World& world) {
  auto model = std::make_shared<Net>();
  trireme::DataParallel replica(world, model, trireme::SGD{.lr = 0.1}, replica_options());
  model->forward(samples()).sum().backward();
  replica.step();
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

void ended_by_exit(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  for (int step = 1; step <= 5; ++step) {
    one_step(model, optimizer);
    if (step == 3 && is_last(world)) std::exit(3);
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

void equal_to_the_end(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  for (int step = 1; step <= 3; ++step) one_step(model, optimizer);
}

void ended_early(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  for (int step = 1; step <= (is_last(world) ? 3 : 5); ++step) one_step(model, optimizer);
}

void left_twice(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  one_step(model, optimizer);
  world.leave();
}

// The loss of rank 1 is NaN, and its gradients are not.
void loss_is_nan(World& world) {
  trireme::LoopRecord record(world, {.progress = false});
  record.step(0.5);
  record.step(errs(world) ? std::nan("") : 0.5);
}

void more_scalars(World& world) {
  trireme::LoopRecord record(world, {.progress = false});
  record.scalar("critic", 1);
  if (world.rank() == 0) record.scalar("only here", 1);
  record.step(0.5);
}

// The others do not call join() behind their last batch.
void joined_alone(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  for (int step = 1; step <= (is_last(world) ? 3 : 5); ++step) one_step(model, optimizer);
  if (is_last(world)) optimizer.join();
}

void joined_with_a_record(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  trireme::LoopRecord record(world, {.progress = false});
  optimizer.join();
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

void joined_in_an_elastic_job(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer({.joins = true}, world, model, 0.1);
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

// The last rank evaluates behind step 2, and forgets to go back.
void left_in_evaluation(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  for (int step = 1; step <= 5; ++step) {
    one_step(model, optimizer);
    if (step == 2 && is_last(world)) model.eval();
  }
}

void closure_without_backward(World& world) {
  Net model;
  Distributed<torch::optim::LBFGS> optimizer(world, model,
                                             torch::optim::LBFGSOptions(0.5).max_iter(3));
  int calls = 0;
  optimizer.step([&] {
    optimizer.zero_grad();
    auto loss = model.forward(samples()).square().sum();
    if (++calls < 2) loss.backward();
    return loss;
  });
}

// Between backward() and step(), when the others need nothing of this rank for their step.
void moved_before_the_step(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  for (int step = 1; step <= 5; ++step) {
    optimizer.zero_grad();
    model.forward(samples()).sum().backward();
    if (step == 3 && errs(world)) model.to(torch::kDouble);
    optimizer.step();
  }
}

// The last backward() of the last rank is under no_sync(), before or behind the one of all ranks.
void own_alone(World& world, bool comes_before) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  const auto backward = [&] { model.forward(samples()).sum().backward(); };
  for (int step = 1; step <= 5; ++step) {
    optimizer.zero_grad();
    if (step != 3 || !errs(world) || !comes_before) backward();
    if (step == 3 && errs(world)) {
      const auto quiet = optimizer.no_sync();
      backward();
    }
    optimizer.step();
  }
}
void own_instead_of_all(World& world) { own_alone(world, true); }
void own_behind_all(World& world) { own_alone(world, false); }

void synchronised_on_one_rank(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  for (int step = 1; step <= 5; ++step) {
    one_step(model, optimizer);
    if (step == 3 && is_last(world)) optimizer.sync();
  }
}

void wrong_loss(World& world, int64_t count, bool is_mean) {
  auto model = std::make_shared<Net>();
  trireme::DataParallel replica(world, model, trireme::SGD{.lr = 0.1}, replica_options());
  for (int step = 1; step <= 5; ++step) {
    const bool is_wrong = step == 3 && world.rank() == world.size() - 1;
    const auto output = model->forward(samples());
    replica.step(is_wrong && !is_mean ? output : output.mean(), is_wrong ? count : 2);
  }
}
void negative_samples(World& world) { wrong_loss(world, -3, true); }
void no_scalar(World& world) { wrong_loss(world, 2, false); }

void nan_with_data_parallel(World& world) {
  auto model = std::make_shared<Net>();
  trireme::DataParallel replica(world, model, trireme::SGD{.lr = 0.1}, replica_options());
  for (int step = 1; step <= 5; ++step) {
    const double factor = step == 3 && world.rank() == world.size() - 1 ? std::nan("") : 1;
    replica.step(model->forward(samples()).mean() * factor, 2);
  }
}
// A loop that has said so goes on.
void skipped_nan_with_data_parallel(World& world) {
  auto model = std::make_shared<Net>();
  auto options = replica_options();
  options.skip_nonfinite = true;
  trireme::DataParallel replica(world, model, trireme::SGD{.lr = 0.1}, options);
  int updated = 0;
  for (int step = 1; step <= 5; ++step) {
    const double factor = step == 3 && world.rank() == world.size() - 1 ? std::nan("") : 1;
    updated += replica.step(model->forward(samples()).mean() * factor, 2).updated;
  }
  print(world, {{"updated", updated}});
}

void went_on_behind_leave(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  one_step(model, optimizer);
  world.leave();
  one_step(model, optimizer);
}
void went_on_behind_leave_with_data_parallel(World& world) {
  auto model = std::make_shared<Net>();
  trireme::DataParallel replica(world, model, trireme::SGD{.lr = 0.1}, replica_options());
  world.leave();
  replica.step(model->forward(samples()).mean(), 2);
}
void evaluated_behind_leave(World& world) {
  world.connect();
  world.leave();
  trireme::gather_for_metrics(world, torch::ones({2}));
}

// Two models train beside each other, and one optimizer was not wrapped. With `is_passed` the loss
// of the wrapped one goes through the other.
void one_of_two_wrapped(World& world, bool is_passed, bool may) {
  Net first, second;
  auto plain = torch::optim::SGD(second.parameters(), 0.1);
  Distributed<torch::optim::SGD> optimizer({.trains_apart = may}, world, first, 0.1);
  for (int step = 1; step <= 6; ++step) {
    one_step(second, plain);
    optimizer.zero_grad();
    auto loss = first.forward(samples()).sum();
    if (is_passed) loss = loss * second.forward(samples()).sum();
    loss.backward();
    optimizer.step();
  }
}
// The loop runs in another thread than the one that made its engine.
void one_of_two_in_a_thread(World& world) {
  Net first, second;
  auto plain = torch::optim::SGD(second.parameters(), 0.1);
  Distributed<torch::optim::SGD> optimizer(world, first, 0.1);
  std::exception_ptr failure;
  std::thread([&] {
    try {
      for (int step = 1; step <= 6; ++step) {
        one_step(second, plain);
        one_step(first, optimizer);
      }
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) std::rethrow_exception(failure);
}
void one_of_two(World& world) { one_of_two_wrapped(world, false, false); }
void one_of_two_in_one_loss(World& world) { one_of_two_wrapped(world, true, false); }
void one_of_two_as_meant(World& world) { one_of_two_wrapped(world, false, true); }

// An input whose gradient is wanted, and a model that is not trained, are no mistakes.
void gradients_of_others(World& world) {
  Net model, teacher;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  for (int step = 1; step <= 6; ++step) {
    optimizer.zero_grad();
    const auto input = samples().requires_grad_();
    (model.forward(input).sum() + teacher.forward(input).sum()).backward();
    optimizer.step();
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

// The optimizer of before is still there, and makes the steps.
void plain_step(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  torch::optim::SGD plain(model.parameters(), 0.1);
  for (int step = 1; step <= 40; ++step) one_step(model, plain);
}
void plain_step_of_one_rank(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  torch::optim::SGD plain(model.parameters(), 0.1);
  for (int step = 1; step <= 12; ++step) {
    one_step(model, optimizer);
    if (step == 9 && errs(world)) plain.step();
  }
}
void loaded_on_one_rank(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  for (int step = 1; step <= 12; ++step) {
    one_step(model, optimizer);
    if (step == 9 && errs(world)) model.hidden->weight.set_data(torch::ones({16, 6}));
  }
}
// Rank 0 evaluates with other weights and puts its own back: no mistake.
void swapped_on_one_rank(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  for (int step = 1; step <= 12; ++step) {
    one_step(model, optimizer);
    if (step % 4 != 0 || world.rank() != 0) continue;
    const torch::NoGradGuard no_grad;
    const auto own = model.output->bias.clone();
    model.output->bias.zero_();
    model.forward(samples());
    model.output->bias.copy_(own);
  }
}
// Rank 1 of three has drifted before the end, or rank 0 has.
void drifted_first_rank(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  for (int step = 1; step <= 3; ++step) one_step(model, optimizer);
  if (world.rank() == 0) torch::nn::init::ones_(model.output->bias);
  world.leave();
}

// An exception of the programme's own, when steps have been finished.
void threw_in_step_3(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  for (int step = 1; step <= 5; ++step) {
    if (step == 3 && errs(world)) throw std::out_of_range("no such word");
    one_step(model, optimizer);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_named(
      argc, argv,
      {{"foreign", foreign},
       {"mode_of_a_layer", mode_of_a_layer},
       {"other_order", other_order},
       {"cleared_gradients", cleared_gradients},
       {"not_a_number_in_a_corner", not_a_number_in_a_corner},
       {"loader_left_out", loader_left_out},
       {"masked_as_meant", masked_as_meant},
       {"weight_of_0_in_a_sum", weight_of_0_in_a_sum},
       {"one_of_two_in_a_thread", one_of_two_in_a_thread},
       {"other_rate", other_rate},
       {"closure_alone", closure_alone},
       {"drifted_behind_the_optimizer", drifted_behind_the_optimizer},
       {"no_backward", no_backward},
       {"only_own", only_own},
       {"not_a_number", not_a_number},
       {"drifted", drifted},
       {"drifted_at_the_end", drifted_at_the_end},
       {"another_type", another_type},
       {"replaced_layer", replaced_layer},
       {"uneven_values", uneven_values},
       {"one_without_backward", one_without_backward},
       {"one_with_fewer_backward", one_with_fewer_backward},
       {"skipped", skipped},
       {"left_early", left_early},
       {"left_early_with_data_parallel", left_early_with_data_parallel},
       {"drifted_with_data_parallel", drifted_with_data_parallel},
       {"step_without_a_loss", step_without_a_loss},
       {"saved_on_one_rank", saved_on_one_rank},
       {"evaluated_on_one_rank", evaluated_on_one_rank},
       {"epoch_on_one_rank", epoch_on_one_rank},
       {"ended_by_exit", ended_by_exit},
       {"other_batches", other_batches},
       {"frozen_on_one_rank", frozen_on_one_rank},
       {"too_few_rows", too_few_rows},
       {"left_twice", left_twice},
       {"loss_is_nan", loss_is_nan},
       {"more_scalars", more_scalars},
       {"joined_alone", joined_alone},
       {"joined_with_a_record", joined_with_a_record},
       {"other_scalars", other_scalars},
       {"other_turns", other_turns},
       {"joined_in_an_elastic_job", joined_in_an_elastic_job},
       {"left_in_evaluation", left_in_evaluation},
       {"closure_without_backward", closure_without_backward},
       {"other_momentum", other_momentum},
       {"other_decay_with_data_parallel", other_decay_with_data_parallel},
       {"moved_before_the_step", moved_before_the_step},
       {"own_instead_of_all", own_instead_of_all},
       {"own_behind_all", own_behind_all},
       {"synchronised_on_one_rank", synchronised_on_one_rank},
       {"negative_samples", negative_samples},
       {"no_scalar", no_scalar},
       {"nan_with_data_parallel", nan_with_data_parallel},
       {"skipped_nan_with_data_parallel", skipped_nan_with_data_parallel},
       {"equal_to_the_end", equal_to_the_end},
       {"ended_early", ended_early},
       {"went_on_behind_leave", went_on_behind_leave},
       {"went_on_behind_leave_with_data_parallel", went_on_behind_leave_with_data_parallel},
       {"evaluated_behind_leave", evaluated_behind_leave},
       {"threw_in_step_3", threw_in_step_3},
       {"not_a_number_in_one_gradient", not_a_number_in_one_gradient},
       {"own_look_at_gradients", own_look_at_gradients},
       {"one_of_two", one_of_two},
       {"one_of_two_in_one_loss", one_of_two_in_one_loss},
       {"one_of_two_as_meant", one_of_two_as_meant},
       {"gradients_of_others", gradients_of_others},
       {"same_samples", same_samples},
       {"same_samples_as_meant", same_samples_as_meant},
       {"plain_step", plain_step},
       {"plain_step_of_one_rank", plain_step_of_one_rank},
       {"loaded_on_one_rank", loaded_on_one_rank},
       {"swapped_on_one_rank", swapped_on_one_rank},
       {"drifted_first_rank", drifted_first_rank}});
}
