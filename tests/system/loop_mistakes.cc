// Mistakes in the loops of written_loops.cc, on one rank or on all. `loop_mistakes MISTAKE` ends
// by the error that names it; test_loop_mistakes.py runs it with 1, 2 and 3 processes.
#include <trireme/parallel/data_parallel.h>
#include <trireme/parallel/distributed.h>
#include <trireme/parallel/metrics.h>
#include <trireme/train/loop_record.h>
#include <trireme/train/own_checkpoint.h>
#include <stdexcept>
#include <string>

#include "loop_parts.h"

namespace {

using namespace loops;
using trireme::Distributed;

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
    model.forward(torch::ones({2, 6})).sum().backward();
    optimizer.step();
  }
}

void closure_alone(World& world) {
  Net model;
  Distributed<torch::optim::LBFGS> optimizer(world, model, torch::optim::LBFGSOptions(0.5));
  const auto quiet = optimizer.no_sync();
  optimizer.step([&] {
    optimizer.zero_grad();
    auto loss = model.forward(torch::ones({2, 6})).sum();
    loss.backward();
    return loss;
  });
}

void drifted_behind_the_optimizer(World& world) {
  Net model;
  {
    Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.1));
    optimizer.zero_grad();
    model.forward(torch::ones({2, 6})).sum().backward();
    optimizer.step();
    if (world.rank() == 1) torch::nn::init::ones_(model.output->bias);
  }
  world.leave();
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
    model.forward(torch::ones({2, 6})).sum().backward();
  }
  optimizer.step();
}

void not_a_number(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.1));
  one_step(model, optimizer);
  one_step(model, optimizer, world.rank() == 1 ? std::nan("") : 1);
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
  if (world.rank() == 1) model.to(torch::kDouble);
  optimizer.zero_grad();
  model.forward(torch::ones({2, 6}, model.output->bias.options().requires_grad(false)))
      .sum()
      .backward();
  optimizer.step();
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
    auto loss = model.forward(torch::ones({2, 6})).sum();
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
      model.forward(torch::ones({2, 6})).sum().backward();
    optimizer.step();
  }
}

bool is_last(const World& world) { return world.size() > 1 && world.rank() == world.size() - 1; }

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
  trireme::DataParallel replica(world, model, trireme::SGD{.lr = 0.1});
  for (int step = 1; step <= (is_last(world) ? 3 : 5); ++step)
    replica.step(model->forward(torch::ones({2, 6})).sum(), 2);
}

// One replica writes its parameters in step 3.
void drifted_with_data_parallel(World& world) {
  auto model = std::make_shared<Net>();
  trireme::DataParallel replica(world, model, trireme::SGD{.lr = 0.1});
  for (int step = 1; step <= 65; ++step) {
    replica.step(model->forward(torch::ones({2, 6})).sum(), 2);
    if (step == 3 && is_last(world)) torch::nn::init::ones_(model->output->bias);
  }
}

void step_without_a_loss(World& world) {
  auto model = std::make_shared<Net>();
  trireme::DataParallel replica(world, model, trireme::SGD{.lr = 0.1});
  model->forward(torch::ones({2, 6})).sum().backward();
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
  record.step(world.rank() == 1 ? std::nan("") : 0.5);
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
  (world.rank() == 1 ? two : one).forward(torch::ones({2, 6})).sum().backward();
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
void other_decay_with_data_parallel(World& world, bool shares) {
  auto model = std::make_shared<Net>();
  trireme::DataParallel replica(world, model, trireme::Adam{.lr = 0.1},
                                {.share_parameters = shares});
  auto& options =
      static_cast<torch::optim::AdamOptions&>(replica.optimizer().param_groups()[0].options());
  for (int step = 1; step <= 5; ++step) {
    if (step == 3 && is_last(world)) options.weight_decay(0.1);
    replica.step(model->forward(torch::ones({2, 6})).sum(), 2);
  }
}
void other_decay_of_replicas(World& world) { other_decay_with_data_parallel(world, false); }
void other_decay_of_one_copy(World& world) { other_decay_with_data_parallel(world, true); }

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
    auto loss = model.forward(torch::ones({2, 6})).square().sum();
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
    model.forward(torch::ones({2, 6})).sum().backward();
    if (step == 3 && is_last(world)) model.to(torch::kDouble);
    optimizer.step();
  }
}

// The last backward() of the last rank is under no_sync(), before or behind the one of all ranks.
void own_alone(World& world, bool comes_before) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  const auto backward = [&] { model.forward(torch::ones({2, 6})).sum().backward(); };
  for (int step = 1; step <= 5; ++step) {
    optimizer.zero_grad();
    if (step != 3 || !is_last(world) || !comes_before) backward();
    if (step == 3 && is_last(world)) {
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

void wrong_loss(World& world, int64_t samples, bool is_mean) {
  auto model = std::make_shared<Net>();
  trireme::DataParallel replica(world, model, trireme::SGD{.lr = 0.1});
  for (int step = 1; step <= 5; ++step) {
    const bool is_wrong = step == 3 && world.rank() == world.size() - 1;
    const auto output = model->forward(torch::ones({2, 6}));
    replica.step(is_wrong && !is_mean ? output : output.mean(), is_wrong ? samples : 2);
  }
}
void negative_samples(World& world) { wrong_loss(world, -3, true); }
void no_scalar(World& world) { wrong_loss(world, 2, false); }

void nan_with_data_parallel(World& world) {
  auto model = std::make_shared<Net>();
  trireme::DataParallel replica(world, model, trireme::SGD{.lr = 0.1});
  for (int step = 1; step <= 5; ++step) {
    const double factor = step == 3 && world.rank() == world.size() - 1 ? std::nan("") : 1;
    replica.step(model->forward(torch::ones({2, 6})).mean() * factor, 2);
  }
}
// A loop that has said so goes on.
void skipped_nan_with_data_parallel(World& world) {
  auto model = std::make_shared<Net>();
  trireme::DataParallel replica(world, model, trireme::SGD{.lr = 0.1}, {.skip_nonfinite = true});
  int updated = 0;
  for (int step = 1; step <= 5; ++step) {
    const double factor = step == 3 && world.rank() == world.size() - 1 ? std::nan("") : 1;
    updated += replica.step(model->forward(torch::ones({2, 6})).mean() * factor, 2).updated;
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
  trireme::DataParallel replica(world, model, trireme::SGD{.lr = 0.1});
  world.leave();
  replica.step(model->forward(torch::ones({2, 6})).mean(), 2);
}
void evaluated_behind_leave(World& world) {
  world.connect();
  world.leave();
  trireme::gather_for_metrics(world, torch::ones({2}));
}

// An exception of the programme's own, when steps have been finished.
void threw_in_step_3(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  for (int step = 1; step <= 5; ++step) {
    if (step == 3 && is_last(world)) throw std::out_of_range("no such word");
    one_step(model, optimizer);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_named(
      argc, argv,
      {{"foreign", foreign},
       {"other_rate", other_rate},
       {"closure_alone", closure_alone},
       {"drifted_behind_the_optimizer", drifted_behind_the_optimizer},
       {"no_backward", no_backward},
       {"only_own", only_own},
       {"not_a_number", not_a_number},
       {"drifted", drifted},
       {"drifted_at_the_end", drifted_at_the_end},
       {"another_type", another_type},
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
       {"other_decay_of_replicas", other_decay_of_replicas},
       {"other_decay_of_one_copy", other_decay_of_one_copy},
       {"moved_before_the_step", moved_before_the_step},
       {"own_instead_of_all", own_instead_of_all},
       {"own_behind_all", own_behind_all},
       {"synchronised_on_one_rank", synchronised_on_one_rank},
       {"negative_samples", negative_samples},
       {"no_scalar", no_scalar},
       {"nan_with_data_parallel", nan_with_data_parallel},
       {"skipped_nan_with_data_parallel", skipped_nan_with_data_parallel},
       {"went_on_behind_leave", went_on_behind_leave},
       {"went_on_behind_leave_with_data_parallel", went_on_behind_leave_with_data_parallel},
       {"evaluated_behind_leave", evaluated_behind_leave},
       {"threw_in_step_3", threw_in_step_3}});
}
