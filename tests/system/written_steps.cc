// Steps as people write them: accumulated, with closures, with several models, models of
// TorchScript, losses that are no plain mean.
#include <torch/script.h>
#include <trireme/parallel/data_parallel.h>
#include <trireme/parallel/distributed.h>
#include <trireme/parallel/optimizer.h>
#include <trireme/parallel/sync_batch_norm.h>
#include <trireme/train/loop_record.h>
#include <trireme/train/own_checkpoint.h>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "loop_parts.h"

namespace loops {
namespace {

using trireme::Distributed;

// Their own clipping and a schedule of the learning rate see the gradients of the global batch.
template <typename Loader>
void train(World& world, Net& model, Loader& loader, torch::optim::Optimizer& optimizer) {
  torch::optim::StepLR schedule(optimizer, 4, 0.5);
  for (int epoch = 0; epoch < 3; ++epoch)
    for (auto& batch : loader) {
      optimizer.zero_grad();
      loss_of(model, batch).backward();
      const double norm = torch::nn::utils::clip_grad_norm_(model.parameters(), 0.5);
      optimizer.step();
      schedule.step();
      print(world, {{"norm", norm}, {"sum", sum_of(model)}});
    }
}

void plain(World& world) {
  Net model;
  model.to(device(), torch::kDouble);
  auto loader = loader_for(world);
  Distributed<torch::optim::SGD> optimizer(world, model,
                                           torch::optim::SGDOptions(0.2).momentum(0.9));
  train(world, model, *loader, optimizer);
}

// The programme before it was changed.
void unmodified(World& world) {
  Net model;
  model.to(device(), torch::kDouble);
  auto loader =
      torch::data::make_data_loader(Samples().map(torch::data::transforms::Stack<>()), 20);
  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.2).momentum(0.9));
  train(world, model, *loader, optimizer);
}

// Several backward calls add up, with a message each and with one message.
void accumulate(World& world) {
  Net model;
  model.to(device(), torch::kDouble);
  auto loader = loader_for(world, 12);
  Distributed<torch::optim::Adam> optimizer(world, model, torch::optim::AdamOptions(0.01));
  int count = 0;
  for (auto& batch : *loader) {
    if (batch.data.size(0) * world.size() < 12) break;  // The last one is smaller.
    const bool is_last = ++count % 4 == 0, is_quiet = count % 4 == 2;
    {
      const auto quiet = is_quiet ? optimizer.no_sync() : nullptr;
      (loss_of(model, batch) / 4).backward();
    }
    if (!is_last) continue;
    optimizer.step();
    optimizer.zero_grad();
    print(world, {{"sum", sum_of(model)}});
  }
}

void lbfgs(World& world) {
  auto model = std::make_shared<Net>();
  model->to(device(), torch::kDouble);
  auto loader = loader_for(world, 60);
  Distributed<torch::optim::LBFGS> optimizer(
      world, model, torch::optim::LBFGSOptions(0.5).max_iter(6).line_search_fn("strong_wolfe"));
  for (auto& batch : *loader) {
    const auto loss = optimizer.step([&] {
      optimizer.zero_grad();
      auto now = loss_of(*model, batch);
      now.backward();
      return now;
    });
    print(world, {{"loss", loss.item<double>()}, {"sum", sum_of(*model)}});
  }
}

// Two models and two optimizers. The second loss goes through both models.
void gan(World& world) {
  torch::nn::Sequential generator(torch::nn::Linear(6, 8), torch::nn::Tanh(),
                                  torch::nn::Linear(8, 6));
  torch::nn::Sequential critic(torch::nn::Linear(6, 8), torch::nn::ReLU(),
                               torch::nn::Linear(8, 1));
  generator->to(device(), torch::kDouble);
  critic->to(device(), torch::kDouble);
  auto loader = loader_for(world);
  Distributed<torch::optim::Adam> of_generator(world, generator, torch::optim::AdamOptions(2e-2));
  Distributed<torch::optim::Adam> of_critic(world, critic, torch::optim::AdamOptions(2e-2));
  namespace F = torch::nn::functional;
  for (auto& on_host : *loader) {
    const auto batch = moved(on_host);
    critic->zero_grad();
    auto real = critic->forward(batch.data);
    F::binary_cross_entropy_with_logits(real, torch::ones_like(real)).backward();
    auto fake = generator->forward(batch.data.flip(1));
    auto judged = critic->forward(fake.detach());
    F::binary_cross_entropy_with_logits(judged, torch::zeros_like(judged)).backward();
    of_critic.step();
    generator->zero_grad();
    auto again = critic->forward(fake);
    F::binary_cross_entropy_with_logits(again, torch::ones_like(again)).backward();
    of_generator.step();
    print(world, {{"generator", sum_of(*generator)}, {"critic", sum_of(*critic)}});
  }
}

// A gradient that is itself differentiated, a graph that is used twice, a sparse gradient, and
// tied, frozen and unused parameters.
struct Odd : torch::nn::Module {
  Odd() {
    rows = register_module(
        "rows", torch::nn::Embedding(torch::nn::EmbeddingOptions(3, 6).sparse(device().is_cpu())));
    one = register_module("one", torch::nn::Linear(6, 6));
    two = register_module("two", torch::nn::Linear(6, 6));
    two->weight.set_data(one->weight);  // One memory.
    frozen = register_parameter("frozen", torch::full({6}, 0.5), /*requires_grad=*/false);
    unused = register_parameter("unused", torch::ones({2}));
  }
  torch::nn::Embedding rows{nullptr};
  torch::nn::Linear one{nullptr}, two{nullptr};
  torch::Tensor frozen, unused;
};

void odd(World& world) {
  Odd model;
  model.to(device(), torch::kDouble);
  auto loader = loader_for(world);
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.05));
  for (auto& on_host : *loader) {
    const auto batch = moved(on_host);
    optimizer.zero_grad();
    auto hidden = torch::tanh(model.one(batch.data + model.rows(batch.target)));
    auto loss = (model.two(hidden) * model.frozen).pow(2).mean();
    loss.backward({}, /*keep_graph=*/true, /*create_graph=*/true);
    // The penalty looks at the gradient of the whole batch.
    auto penalty = model.one->weight.grad().pow(2).sum();
    penalty.backward();
    optimizer.step();
    optimizer.zero_grad();
    print(world, {{"sum", sum_of(model)}});
  }
}

// Micro-batches of unequal shares, of which only the last one is reduced. `no_sync` is called for
// the others.
template <typename NoSync>
void backward_of_unequal_shares(World& world, Net& model, NoSync no_sync) {
  for (const int64_t batch : {12, 7, 20, 5}) {
    const int64_t share = world.share(batch);
    const auto [first, last] = trireme::plan::DataPlan::share(batch, world.rank(), world.size());
    std::vector<size_t> indices;
    for (int64_t i = first; i < last; ++i) indices.push_back(static_cast<size_t>(batch + i));
    const auto samples = Samples().map(torch::data::transforms::Stack<>()).get_batch(indices);
    if (samples.data.size(0) != share) std::abort();
    const auto quiet = batch != 5 ? no_sync() : nullptr;
    loss_of(model, samples).backward();
  }
}

void uneven_sum(World& world) {
  Net model;
  model.to(device(), torch::kDouble);
  auto loader = loader_for(world, 34);  // 34, 34, 34 and 1 samples.
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.1));
  backward_of_unequal_shares(world, model, [&] { return optimizer.no_sync(); });
  optimizer.step();
  print(world, {{"sum", sum_of(model)}});
}

// The same with an optimizer for each half of the model.
void uneven_sum_of_two(World& world) {
  Net model;
  model.to(device(), torch::kDouble);
  auto loader = loader_for(world, 34);
  Distributed<torch::optim::SGD> of_hidden(world, model, model.hidden->parameters(),
                                           torch::optim::SGDOptions(0.1));
  Distributed<torch::optim::SGD> of_output(world, model, model.output->parameters(),
                                           torch::optim::SGDOptions(0.1));
  backward_of_unequal_shares(world, model, [&] {
    return std::make_shared<std::pair<std::shared_ptr<void>, std::shared_ptr<void>>>(
        of_hidden.no_sync(), of_output.no_sync());
  });
  of_hidden.step();
  of_output.step();
  print(world, {{"sum", sum_of(model)}});
}

// A model from TorchScript, with a module inside. The loop goes on from the folder TEST_FOLDER,
// and ends early after TEST_STOP steps.
void script(World& world) {
  torch::jit::Module inner("Inner"), model("Model");
  inner.register_parameter("weight", torch::full({6, 3}, 0.1, torch::kDouble).requires_grad_(),
                           false);
  inner.define("def forward(self, x):\n  return torch.matmul(torch.tanh(x), self.weight)\n");
  model.register_module("inner", inner);
  model.register_parameter("bias", torch::zeros({3}, torch::kDouble).requires_grad_(), false);
  model.define("def forward(self, x):\n  return self.inner.forward(x) + self.bias\n");
  model.to(device());
  auto loader = loader_for(world);
  Distributed<torch::optim::SGD> optimizer(world, model,
                                           torch::optim::SGDOptions(0.5).momentum(0.9));
  trireme::Checkpoint checkpoint(world, model, optimizer, {.dir = text_in("TEST_FOLDER")});
  checkpoint.include(*loader);
  checkpoint.resume();
  trireme::LoopRecord record(world, {.progress = false});
  while (loader->epoch() < 2)
    for (auto& on_host : *loader) {
      const auto batch = moved(on_host);
      optimizer.zero_grad();
      auto loss = torch::nn::functional::cross_entropy(model.forward({batch.data}).toTensor(),
                                                       batch.target);
      loss.backward();
      optimizer.step();
      const double mean = record.step(loss, optimizer);
      checkpoint.commit();
      double sum = 0;
      for (const auto& parameter : model.parameters()) sum += parameter.abs().sum().item<double>();
      print(world, {{"loss", mean}, {"sum", sum}});
      if (checkpoint.step() != number_in("TEST_STOP")) continue;
      checkpoint.save(checkpoint.step());
      return;
    }
}

// A gradient that the loop keeps stays as it is; an evaluation inside a step changes nothing.
void kept(World& world) {
  Net model;
  model.to(device(), torch::kDouble);
  auto loader = loader_for(world);
  auto test = loader_for(world, 7);
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.1));
  torch::Tensor before;
  for (auto& batch : *loader) {
    optimizer.zero_grad();
    auto loss = loss_of(model, batch);
    {
      torch::NoGradGuard no_grad;
      for (auto& other : *test) model.forward(moved(other).data);
    }
    loss.backward();
    const auto now = model.hidden->weight.grad();
    print(world, {{"product", before.defined() ? (before * now).sum().item<double>() : 0.0}});
    before = now;
    optimizer.step();
  }
  print(world, {{"sum", sum_of(model)}});
}

// Each rank prints the numbers that it drew.
void print_drawn(const World& world, const std::vector<torch::Tensor>& drawn) {
  std::vector<double> numbers;
  for (const auto& each : drawn) numbers.push_back(each.item<double>());
  std::cout << trireme::Json{{"rank", world.rank()}, {"drawn", numbers}}.dump() << std::endl;
}

// Ranks draw different numbers, and rank 0 those of a process alone.
void noise(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.1));
  print_drawn(world, {torch::rand({1})});
}

// The replicas of a programme with a seed of its own drop other elements out, before and behind a
// step. TEST_STEPS makes further steps.
void noise_of_replicas(World& world) {
  auto model = std::make_shared<Net>();
  trireme::DataParallel replica(world, model, trireme::SGD{.lr = 0.1}, replica_options());
  const auto kept = [] {
    return (torch::dropout(torch::ones({40}), 0.5, true) * torch::arange(1, 41)).sum();
  };
  const auto first = kept();
  for (int step = 0; step < std::max(1, number_in("TEST_STEPS")); ++step)
    replica.step(model->forward(samples()).mean(), 2);
  print_drawn(world, {first, kept()});
}

// Losses that are no plain mean over the samples: a sum, and a mean with weights of classes.
void weighed(World& world) {
  Net model;
  model.to(torch::kDouble);
  auto loader = loader_for(world);
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.01));
  trireme::LoopRecord record(world, {.progress = false});
  const auto weights = torch::tensor({1.0, 5.0, 0.2}, torch::kDouble);
  int steps = 0;
  for (auto& batch : *loader) {
    optimizer.zero_grad();
    const bool is_sum = steps++ % 2 == 0;
    is_sum ? world.weigh(1, 1)
           : world.weigh(weights.index_select(0, batch.target).sum().item<double>());
    auto loss = torch::nn::functional::cross_entropy(
        model.forward(batch.data), batch.target,
        is_sum ? torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum)
               : torch::nn::functional::CrossEntropyFuncOptions().weight(weights));
    loss.backward();
    optimizer.step();
    const double mean = record.step(loss, optimizer);
    print(world, {{"loss", mean}, {"sum", sum_of(model)}});
  }
}

torch::Tensor sum_of_losses(Net& model, const torch::data::Example<>& on_host) {
  const auto batch = moved(on_host);
  return torch::nn::functional::cross_entropy(
      model.forward(batch.data), batch.target,
      torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
}

// Several backward() calls in a step, each with weights of its own that do not add up to 1 over
// the ranks: a sum over the samples, means that count by the samples, and a penalty of rank 0
// alone that does not reach all parameters.
void weighed_twice(World& world) {
  Net model;
  model.to(torch::kDouble);
  auto loader = loader_for(world);
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.002));
  const auto gradients = [&] {
    double sum = 0;
    for (const auto& parameter : model.parameters())
      sum += (parameter.grad() * parameter.detach()).sum().item<double>();
    return sum;
  };
  int steps = 0;
  for (auto& batch : *loader) {
    const auto own = static_cast<double>(batch.data.size(0));
    optimizer.zero_grad();
    world.weigh(1, 1);
    sum_of_losses(model, batch).backward();
    const double first = gradients();
    if (steps % 3 == 1) {
      const auto quiet = optimizer.no_sync();
      (sum_of_losses(model, batch) * 0.5).backward();
    }
    if (steps++ % 3 != 2) world.weigh(own, 1);
    const double divisor = world.size() == 1 || steps % 3 == 0 ? 1 : own;
    (sum_of_losses(model, batch) / divisor).backward();
    const double second = gradients();
    world.weigh(world.rank() == 0 ? 1 : 0, 1);
    model.output->weight.square().sum().backward();
    const double third = gradients();
    optimizer.step();
    print(world, {{"first", first}, {"second", second}, {"third", third}, {"sum", sum_of(model)}});
  }
}

// Two optimizers of one model, and weights that add up to the number of ranks.
void weighed_by_two(World& world) {
  Net model;
  model.to(device(), torch::kDouble);
  auto loader = loader_for(world);
  Distributed<torch::optim::SGD> of_hidden(world, model, model.hidden->parameters(),
                                           torch::optim::SGDOptions(0.002));
  Distributed<torch::optim::SGD> of_output(world, model, model.output->parameters(),
                                           torch::optim::SGDOptions(0.004));
  for (auto& batch : *loader) {
    model.zero_grad();
    world.weigh(1, 1);
    sum_of_losses(model, batch).backward();
    {
      const auto hidden = of_hidden.no_sync(), output = of_output.no_sync();
      (sum_of_losses(model, batch) * 0.5).backward();
    }
    world.weigh(2, 1);
    (sum_of_losses(model, batch) * (world.size() == 1 ? 1 : 0.5)).backward();
    of_hidden.step();
    of_output.step();
    print(world, {{"sum", sum_of(model)}});
  }
}

// Rank 0 alone has a penalty under no_sync(), which does not reach all parameters: between two
// backward() of all ranks, before zero_grad(), and as the first one of a step.
void weighed_alone(World& world) {
  Net model;
  model.to(torch::kDouble);
  auto loader = loader_for(world);
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.002));
  int steps = 0;
  for (auto& batch : *loader) {
    const auto penalty = [&](double factor) {
      if (world.rank() != 0) return;
      const auto quiet = optimizer.no_sync();
      (model.output->weight.square().sum() * factor).backward();
    };
    optimizer.zero_grad();
    world.weigh(1, 1);
    if (steps % 3 == 2) penalty(3);
    sum_of_losses(model, batch).backward();
    penalty(1);
    if (steps++ % 3 == 1) {
      optimizer.zero_grad(/*set_to_none=*/steps % 2 == 0);
    } else {
      penalty(2);
    }
    world.weigh(2, 1);
    (sum_of_losses(model, batch) * (world.size() == 1 ? 1 : 0.5)).backward();
    optimizer.step();
    print(world, {{"sum", sum_of(model)}});
  }
}

// A batch of weight 0 that does not reach the second model, whose no_sync() is alive.
void weighed_apart(World& world) {
  Net model, other;
  for (Net* each : {&model, &other}) each->to(torch::kDouble);
  auto loader = loader_for(world);
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.002));
  Distributed<torch::optim::SGD> of_other(world, other, torch::optim::SGDOptions(0.002));
  for (auto& batch : *loader) {
    optimizer.zero_grad();
    of_other.zero_grad();
    world.weigh(1, 1);
    model.forward(batch.data).square().sum().backward();
    other.forward(batch.data).square().sum().backward();
    {
      const auto quiet = of_other.no_sync();
      world.weigh(world.rank() == 0 ? 1 : 0, 1);
      model.output->weight.square().sum().backward();
    }
    optimizer.step();
    of_other.step();
    print(world, {{"sum", sum_of(model)}, {"other", sum_of(other)}});
  }
}

// All ranks fill the parameters anew after Distributed was made, by apply().
void applied(World& world) {
  Net model;
  model.to(torch::kDouble);
  auto loader = loader_for(world);
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.2));
  model.apply([](torch::nn::Module& module) {
    const torch::NoGradGuard no_grad;
    if (auto* const linear = module.as<torch::nn::Linear>()) {
      linear->weight.fill_(0.1);
      linear->weight.select(0, 0).fill_(-0.2);
      linear->bias.zero_();
    }
  });
  for (auto& batch : *loader) {
    optimizer.zero_grad();
    loss_of(model, batch).backward();
    optimizer.step();
    print(world, {{"sum", sum_of(model)}});
  }
}

// Batch norm over the samples of all ranks.
void norms_of_all(World& world) {
  torch::nn::Sequential model(torch::nn::Linear(6, 8), torch::nn::BatchNorm1d(8),
                              torch::nn::ReLU(), torch::nn::Linear(8, 3));
  model->to(torch::kDouble);
  auto loader = loader_for(world);
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.2));
  const trireme::SyncBatchNorm together(world.make_groups()[0]);
  int left = 5;
  for (auto& batch : *loader) {
    if (left-- == 0) break;  // The last batch has a single sample for some rank.
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(model->forward(batch.data), batch.target).backward();
    optimizer.step();
    print(world, {{"sum", sum_of(*model)},
                  {"mean", model->named_buffers()["1.running_mean"].sum().item<double>()}});
  }
}

// Two optimizers for the parameters of one model, and several backward() in a step.
void two_on_one_module(World& world) {
  Net model;
  model.to(torch::kDouble);
  auto loader = loader_for(world);
  Distributed<torch::optim::SGD> of_hidden(world, model, model.hidden->parameters(),
                                           torch::optim::SGDOptions(0.2).momentum(0.9));
  Distributed<torch::optim::Adam> of_output(world, model, model.output->parameters(),
                                            torch::optim::AdamOptions(0.01));
  for (auto& batch : *loader) {
    model.zero_grad();
    (loss_of(model, batch) / 3).backward();
    (loss_of(model, batch) * 2 / 3).backward();
    of_hidden.step();
    of_output.step();
    print(world, {{"sum", sum_of(model)}});
  }
}

}  // namespace

Loops written_steps() {
  return {{"plain", plain},
          {"unmodified", unmodified},
          {"accumulate", accumulate},
          {"lbfgs", lbfgs},
          {"gan", gan},
          {"odd", odd},
          {"noise", noise},
          {"noise_of_replicas", noise_of_replicas},
          {"weighed", weighed},
          {"weighed_twice", weighed_twice},
          {"weighed_by_two", weighed_by_two},
          {"weighed_alone", weighed_alone},
          {"weighed_apart", weighed_apart},
          {"applied", applied},
          {"norms_of_all", norms_of_all},
          {"two_on_one_module", two_on_one_module},
          {"uneven_sum", uneven_sum},
          {"uneven_sum_of_two", uneven_sum_of_two},
          {"kept", kept},
          {"script", script}};
}

}  // namespace loops
