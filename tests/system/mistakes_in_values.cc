// Mistakes by which values, gradients or parameters are not what the loop takes them for: NaN,
// parameters that drift apart, or that another optimizer trains.
#include <trireme/parallel/data_parallel.h>
#include <trireme/parallel/distributed.h>
#include <trireme/train/loop_record.h>
#include <cmath>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "loop_parts.h"

namespace loops {
namespace {

using trireme::Distributed;

// Mistakes on one rank, or on all.
void foreign(World& world) {
  Net one, other;
  std::vector<torch::Tensor> both = one.parameters();
  for (const auto& parameter : other.parameters()) both.push_back(parameter);
  Distributed<torch::optim::SGD> optimizer(world, one, both, torch::optim::SGDOptions(0.1));
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

// One replica writes its parameters in step 3, and step 4 tells.
void drifted_with_data_parallel(World& world) {
  auto model = std::make_shared<Net>();
  trireme::DataParallel replica(world, model, trireme::SGD{.lr = 0.1}, replica_options());
  for (int step = 1; step <= 5; ++step) {
    replica.step(model->forward(samples()).sum(), 2);
    if (step == 3 && is_last(world)) torch::nn::init::ones_(model->output->bias);
  }
}

// The same behind the last step, for leave(). Memory that is loaded is the rank's own, also if
// the replicas shared theirs.
void drifted_at_the_end_with_data_parallel(World& world) {
  auto model = std::make_shared<Net>();
  trireme::DataParallel replica(world, model, trireme::SGD{.lr = 0.1}, replica_options());
  for (int step = 1; step <= 3; ++step) replica.step(model->forward(samples()).sum(), 2);
  if (is_last(world)) model->output->bias.set_data(torch::ones({3}));
  world.leave();
}

// The loop as it was, beside a DataParallel: each rank trains by itself.
void plain_loop_with_data_parallel(World& world) {
  auto model = std::make_shared<Net>();
  trireme::DataParallel replica(world, model, trireme::SGD{.lr = 0.1}, replica_options());
  torch::optim::SGD plain(model->parameters(), 0.001);
  for (int step = 1; step <= 40; ++step) one_step(*model, plain);
}

// It ends early, and may leave when the engine is gone.
void short_plain_loop(World& world, bool leaves_behind) {
  auto model = std::make_shared<Net>();
  const auto optimizer = std::make_shared<torch::optim::SGD>(model->parameters(), 0.001);
  trireme::DataParallel replica(world, model, optimizer, replica_options());
  for (int step = 1; step <= 3; ++step) one_step(*model, *optimizer);
  if (!leaves_behind) world.leave();
}

void short_plain_loop_with_data_parallel(World& world) { short_plain_loop(world, false); }

void plain_loop_of_an_engine_that_is_gone(World& world) { short_plain_loop(world, true); }

// One of two engines is forgotten, and its model is trained past it.
void one_of_two_replicas(World& world) {
  auto first = std::make_shared<Net>(), second = std::make_shared<Net>();
  trireme::DataParallel replica(world, first, trireme::SGD{.lr = 0.1}, replica_options());
  trireme::DataParallel forgotten(world, second, trireme::SGD{.lr = 0.1}, replica_options());
  torch::optim::SGD plain(second->parameters(), 0.001);
  for (int step = 1; step <= 40; ++step) {
    one_step(*second, plain);
    replica.step(first->forward(samples()).mean(), 2);
  }
}

// A GAN: the backward of the generator's engine goes through the critic.
void two_replicas_as_meant(World& world) {
  auto generator = std::make_shared<Net>(), critic = std::make_shared<Net>();
  trireme::DataParallel of_generator(world, generator, trireme::SGD{.lr = 0.01},
                                     replica_options());
  trireme::DataParallel of_critic(world, critic, trireme::SGD{.lr = 0.01}, replica_options());
  const auto made = [&] { return generator->forward(samples()).repeat({1, 2}); };
  for (int step = 1; step <= 40; ++step) {
    for (int pass = 0; pass < 2; ++pass)
      of_critic.backward(critic->forward(made().detach()).mean(), 2);
    of_critic.step();
    of_generator.step(-critic->forward(made()).mean(), 2);
    critic->zero_grad();
  }
  world.leave();
}

// A plain loop before the engine is made, and a step behind it; the loop's own backward() calls
// for samples that are hard to tell; weights that are loaded in the way that is documented.
void own_backward_as_meant(World& world) {
  auto model = std::make_shared<Net>();
  torch::optim::SGD plain(model->parameters(), 0.001);
  for (int step = 1; step <= 20; ++step) one_step(*model, plain);
  trireme::DataParallel replica(world, model, trireme::SGD{.lr = 0.01}, replica_options());
  for (int step = 1; step <= 40; ++step) {
    const auto hard = samples().requires_grad_();
    for (int pass = 0; pass < 3; ++pass) model->forward(hard).mean().backward();
    model->zero_grad();
    if (step > 20)
      replica.modify_parameters([&] { model->output->bias.copy_(torch::full({3}, step)); });
    else
      replica.step(model->forward(hard.detach() + 0.1 * hard.grad().sign()).mean(), 2);
  }
  world.leave();
}

// Parameters are written between two backward() of a step, and written back.
void written_back_as_meant(World& world) {
  auto model = std::make_shared<Net>();
  trireme::DataParallel replica(world, model, trireme::SGD{.lr = 0.01}, replica_options());
  for (int step = 1; step <= 20; ++step) {
    const auto data = samples();
    model->forward(data).mean().backward();
    const auto own = model->output->bias.detach().clone();
    model->output->bias.data().add_(model->output->bias.grad(), 0.05);
    model->zero_grad();
    replica.backward(model->forward(data).mean(), 2);
    model->output->bias.data().copy_(own);
    replica.step();
  }
  world.leave();
}

// A seed behind the engine gives all ranks the same dropout, unless it has the rank in it.
void reseeded(World& world, int part_of_rank) {
  Net model;
  Distributed<torch::optim::SGD> optimizer({.own_samples = true}, world, model, 0.1);
  torch::manual_seed(static_cast<uint64_t>(3 + part_of_rank));
  for (int step = 1; step <= 3; ++step) one_step(model, optimizer);
}

void same_dropout(World& world) { reseeded(world, 0); }

void other_dropout(World& world) { reseeded(world, world.rank()); }

void same_dropout_with_data_parallel(World& world) {
  auto model = std::make_shared<Net>();
  trireme::DataParallel replica(world, model, trireme::SGD{.lr = 0.1}, replica_options());
  torch::manual_seed(3);
  for (int step = 1; step <= 3; ++step) replica.step(model->forward(samples()).mean(), 2);
}

// The same order of samples on all ranks, from a seed for each epoch, and no draws in the steps.
void shuffled_alike(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.001);
  const auto all = torch::arange(72, torch::kFloat).view({12, 6}) / 72;
  for (int epoch = 0; epoch < 24; ++epoch) {
    torch::manual_seed(static_cast<uint64_t>(epoch));
    const auto order = torch::randperm(12, torch::kLong);
    for (int step = 0; step < 3; ++step) {
      const auto batch = order.narrow(0, 4 * step, 4);
      const int64_t count = world.share(4), first = world.rank() == 0 ? 0 : 4 - count;
      optimizer.zero_grad();
      model.forward(all.index_select(0, batch.narrow(0, first, count))).mean().backward();
      optimizer.step();
    }
  }
}

// The loss of rank 1 is NaN, and its gradients are not.
void loss_is_nan(World& world) {
  trireme::LoopRecord record(world, {.progress = false});
  record.step(0.5);
  record.step(errs(world) ? std::nan("") : 0.5);
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

void nan_with_data_parallel(World& world) {
  auto model = std::make_shared<Net>();
  trireme::DataParallel replica(world, model, trireme::SGD{.lr = 0.1}, replica_options());
  for (int step = 1; step <= 5; ++step) {
    const double factor = step == 3 && errs(world) ? std::nan("") : 1;
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
    const double factor = step == 3 && errs(world) ? std::nan("") : 1;
    updated += replica.step(model->forward(samples()).mean() * factor, 2).updated;
  }
  print(world, {{"updated", updated}});
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

}  // namespace

Loops mistakes_in_values() {
  return {{"foreign", foreign},
          {"not_a_number_in_a_corner", not_a_number_in_a_corner},
          {"masked_as_meant", masked_as_meant},
          {"one_of_two_in_a_thread", one_of_two_in_a_thread},
          {"drifted_behind_the_optimizer", drifted_behind_the_optimizer},
          {"not_a_number", not_a_number},
          {"drifted", drifted},
          {"drifted_at_the_end", drifted_at_the_end},
          {"another_type", another_type},
          {"replaced_layer", replaced_layer},
          {"drifted_with_data_parallel", drifted_with_data_parallel},
          {"drifted_at_the_end_with_data_parallel", drifted_at_the_end_with_data_parallel},
          {"plain_loop_with_data_parallel", plain_loop_with_data_parallel},
          {"short_plain_loop_with_data_parallel", short_plain_loop_with_data_parallel},
          {"plain_loop_of_an_engine_that_is_gone", plain_loop_of_an_engine_that_is_gone},
          {"one_of_two_replicas", one_of_two_replicas},
          {"two_replicas_as_meant", two_replicas_as_meant},
          {"own_backward_as_meant", own_backward_as_meant},
          {"written_back_as_meant", written_back_as_meant},
          {"same_dropout", same_dropout},
          {"other_dropout", other_dropout},
          {"same_dropout_with_data_parallel", same_dropout_with_data_parallel},
          {"shuffled_alike", shuffled_alike},
          {"loss_is_nan", loss_is_nan},
          {"moved_before_the_step", moved_before_the_step},
          {"nan_with_data_parallel", nan_with_data_parallel},
          {"skipped_nan_with_data_parallel", skipped_nan_with_data_parallel},
          {"not_a_number_in_one_gradient", not_a_number_in_one_gradient},
          {"own_look_at_gradients", own_look_at_gradients},
          {"one_of_two", one_of_two},
          {"one_of_two_in_one_loss", one_of_two_in_one_loss},
          {"one_of_two_as_meant", one_of_two_as_meant},
          {"gradients_of_others", gradients_of_others},
          {"plain_step", plain_step},
          {"plain_step_of_one_rank", plain_step_of_one_rank},
          {"loaded_on_one_rank", loaded_on_one_rank},
          {"swapped_on_one_rank", swapped_on_one_rank},
          {"drifted_first_rank", drifted_first_rank}};
}

}  // namespace loops
