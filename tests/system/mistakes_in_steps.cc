// Mistakes in the order of calls in a step: backward(), step(), no_sync(), leave(), and calls for
// all ranks on one of them.
#include <trireme/parallel/data_parallel.h>
#include <trireme/parallel/distributed.h>
#include <trireme/parallel/metrics.h>
#include <trireme/train/loop_record.h>
#include <cstdlib>
#include <exception>
#include <memory>
#include <stdexcept>
#include <thread>

#include "loop_parts.h"

namespace loops {
namespace {

using trireme::Distributed;

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

void cleared_gradients(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.1));
  model.forward(samples()).sum().backward();
  optimizer.zero_grad();
  optimizer.step();
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

// Backward calls that World::weigh() cannot add up.
void weighed_quiet_of_one_of_two(World& world) {
  Net model;
  model.to(device());
  Distributed<torch::optim::SGD> of_hidden(world, model, model.hidden->parameters(), 0.1);
  Distributed<torch::optim::SGD> of_output(world, model, model.output->parameters(), 0.1);
  world.weigh(1, 1);
  const auto quiet = of_output.no_sync();
  model.forward(samples().to(device())).sum().backward();
}

void weighed_and_written_by(World& world, const std::function<void(Net&)>& write) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  world.weigh(1, 1);
  const auto backward = [&] { model.forward(samples()).sum().backward(); };
  backward();
  {
    const auto quiet = optimizer.no_sync();
    backward();
  }
  write(model);
  backward();
}
void weighed_and_written(World& world) {
  weighed_and_written_by(world, [](Net& model) { model.hidden->bias.mutable_grad().mul_(0.5); });
}
// LibTorch's function writes through .data().
void weighed_and_clipped(World& world) {
  weighed_and_written_by(
      world, [](Net& model) { torch::nn::utils::clip_grad_norm_(model.parameters(), 0.01); });
}

void weighed_in_a_thread(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  world.weigh(1, 1);
  model.forward(samples()).sum().backward();
  std::exception_ptr error;
  std::thread([&] {
    try {
      model.forward(samples()).sum().backward();
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
}

// Recomputes its segment in backward, by a backward() of its own.
struct Segment : torch::autograd::Function<Segment> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, torch::Tensor input,
                               torch::nn::Linear layer) {
    context->save_for_backward({input});
    context->saved_data["layer"] = reinterpret_cast<int64_t>(layer.get());
    return layer->forward(input);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto input = context->get_saved_variables()[0].detach().requires_grad_();
    const torch::AutoGradMode with_graph(true);
    auto* const layer =
        reinterpret_cast<torch::nn::LinearImpl*>(context->saved_data["layer"].toInt());
    layer->forward(input).backward(gradients[0]);
    return {input.grad(), torch::Tensor()};
  }
};

void weighed_inside(World& world) {
  Net model;
  torch::nn::Linear middle(16, 16);
  model.register_module("middle", middle);
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  world.weigh(1, 1);
  model.output(Segment::apply(model.hidden(samples()), middle)).sum().backward();
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

void step_without_a_loss(World& world) {
  auto model = std::make_shared<Net>();
  trireme::DataParallel replica(world, model, trireme::SGD{.lr = 0.1}, replica_options());
  model->forward(samples()).sum().backward();
  replica.step();
}

void ended_by_exit(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, 0.1);
  for (int step = 1; step <= 5; ++step) {
    one_step(model, optimizer);
    if (step == 3 && is_last(world)) std::exit(3);
  }
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

void joined_in_an_elastic_job(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer({.joins = true}, world, model, 0.1);
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

void wrong_loss(World& world, int64_t count, bool is_mean) {
  auto model = std::make_shared<Net>();
  trireme::DataParallel replica(world, model, trireme::SGD{.lr = 0.1}, replica_options());
  for (int step = 1; step <= 5; ++step) {
    const bool is_wrong = step == 3 && errs(world);
    const auto output = model->forward(samples());
    replica.step(is_wrong && !is_mean ? output : output.mean(), is_wrong ? count : 2);
  }
}

void negative_samples(World& world) { wrong_loss(world, -3, true); }

void no_scalar(World& world) { wrong_loss(world, 2, false); }

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

Loops mistakes_in_steps() {
  return {{"cleared_gradients", cleared_gradients},
          {"weight_of_0_in_a_sum", weight_of_0_in_a_sum},
          {"weighed_quiet_of_one_of_two", weighed_quiet_of_one_of_two},
          {"weighed_and_written", weighed_and_written},
          {"weighed_and_clipped", weighed_and_clipped},
          {"weighed_in_a_thread", weighed_in_a_thread},
          {"weighed_inside", weighed_inside},
          {"closure_alone", closure_alone},
          {"no_backward", no_backward},
          {"only_own", only_own},
          {"one_without_backward", one_without_backward},
          {"one_with_fewer_backward", one_with_fewer_backward},
          {"skipped", skipped},
          {"left_early", left_early},
          {"left_early_with_data_parallel", left_early_with_data_parallel},
          {"step_without_a_loss", step_without_a_loss},
          {"ended_by_exit", ended_by_exit},
          {"left_twice", left_twice},
          {"joined_alone", joined_alone},
          {"joined_with_a_record", joined_with_a_record},
          {"joined_in_an_elastic_job", joined_in_an_elastic_job},
          {"left_in_evaluation", left_in_evaluation},
          {"closure_without_backward", closure_without_backward},
          {"own_instead_of_all", own_instead_of_all},
          {"own_behind_all", own_behind_all},
          {"negative_samples", negative_samples},
          {"no_scalar", no_scalar},
          {"equal_to_the_end", equal_to_the_end},
          {"ended_early", ended_early},
          {"went_on_behind_leave", went_on_behind_leave},
          {"went_on_behind_leave_with_data_parallel", went_on_behind_leave_with_data_parallel},
          {"evaluated_behind_leave", evaluated_behind_leave},
          {"threw_in_step_3", threw_in_step_3}};
}

}  // namespace loops
