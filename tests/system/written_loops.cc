// Training loops as people write them for one process, made data parallel by Distributed and
// make_data_loader. `written_loops SCENARIO` prints facts as lines of JSON; test_written_loops.py
// runs it with 1, 2 and 3 processes.
#include <torch/script.h>
#include <trireme/base/error.h>
#include <trireme/parallel/distributed.h>
#include <trireme/parallel/metrics.h>
#include <trireme/parallel/sync_batch_norm.h>
#include <trireme/train/loop_record.h>
#include <trireme/train/own_checkpoint.h>

#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>
#include <algorithm>
#include <csignal>
#include <limits>
#include <sstream>
#include <thread>

#include "loop_parts.h"

namespace {

using namespace loops;
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

// Micro-batches of unequal shares, of which only the last one is reduced.
void uneven_sum(World& world) {
  Net model;
  model.to(device(), torch::kDouble);
  auto loader = loader_for(world, 34);  // 34, 34, 34 and 1 samples.
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.1));
  for (const int64_t batch : {12, 7, 20, 5}) {
    const int64_t share = world.share(batch);
    const auto [first, last] = trireme::plan::DataPlan::share(batch, world.rank(), world.size());
    std::vector<size_t> indices;
    for (int64_t i = first; i < last; ++i) indices.push_back(static_cast<size_t>(batch + i));
    const auto samples = Samples().map(torch::data::transforms::Stack<>()).get_batch(indices);
    if (samples.data.size(0) != share) std::abort();
    const auto quiet = batch != 5 ? optimizer.no_sync() : nullptr;
    loss_of(model, samples).backward();
  }
  optimizer.step();
  print(world, {{"sum", sum_of(model)}});
}

// A model from TorchScript, with a module inside.
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
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.5));
  for (auto& on_host : *loader) {
    const auto batch = moved(on_host);
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(model.forward({batch.data}).toTensor(), batch.target)
        .backward();
    optimizer.step();
    double sum = 0;
    for (const auto& parameter : model.parameters()) sum += parameter.abs().sum().item<double>();
    print(world, {{"sum", sum}});
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

int number_in(const char* name) {
  const char* const text = std::getenv(name);
  return text ? std::atoi(text) : -1;
}

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

std::string text_in(const char* name) {
  const char* const text = std::getenv(name);
  return text ? text : "";
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

// Ranks draw different numbers, and rank 0 those of a process alone.
void noise(World& world) {
  Net model;
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(0.1));
  std::cout
      << trireme::Json{{"rank", world.rank()}, {"drawn", torch::rand({1}).item<double>()}}.dump()
      << std::endl;
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

// The same rows, computed on a device and gathered there.
void evaluated_on_a_device(World& world) {
  const auto rows = trireme::evaluate(
      world, Samples().map(torch::data::transforms::Stack<>()), 8,
      [](const torch::data::Example<>& batch) { return moved(batch).data.select(1, 0); });
  const auto places = torch::arange(rows.size(0)).to(rows.device(), torch::kDouble);
  if (rows.device().type() != device().type()) std::abort();
  print(world, {{"rows", rows.size(0)}, {"sum", (rows * places).sum().item<double>()}});
}

void lose_one_and_throw(const World& world) {
  if (world.worker() == 1) std::raise(SIGKILL);
  if (world.worker() != 2) return;
  const auto deadline = trireme::Deadline::after(trireme::Milliseconds(20000));
  while (!world.lost_a_worker() && !deadline.expired())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  throw std::out_of_range("no such word");
}

// A loop that continues: from the folder TEST_FOLDER, and when a worker is lost. Worker 1 is
// killed in step TEST_KILL of the first generation. The loop ends early after TEST_STOP steps.
// Its record is in TEST_RECORD. With TEST_THROW=1 worker 2 throws when it has seen that loss.
void continued(World& world) {
  const int kill_at = number_in("TEST_KILL"), stop_at = number_in("TEST_STOP");
  const bool throws_behind_it = number_in("TEST_THROW") == 1;
  Net model;
  model.to(device(), torch::kDouble);
  // Threads read ahead, also behind the step in which a worker is lost.
  auto loader = trireme::make_data_loader(world, Samples().map(torch::data::transforms::Stack<>()),
                                          torch::data::DataLoaderOptions(20).workers(1));
  Distributed<torch::optim::Adam> optimizer(world, model, torch::optim::AdamOptions(0.01));
  torch::optim::StepLR schedule(optimizer, 4, 0.5);
  const char* const folder = std::getenv("TEST_FOLDER");
  trireme::Checkpoint checkpoint(world, model, optimizer,
                                 {.dir = folder ? folder : "", .every_steps = 4});
  checkpoint.include(schedule);
  checkpoint.include(*loader);
  const char* const records = std::getenv("TEST_RECORD");
  trireme::LoopRecord record(world, {.name = "waves",
                                     .dir = records ? records : "",
                                     .total_steps = 24,
                                     .steps_per_epoch = 6,
                                     .progress = records != nullptr});
  const bool records_twice = number_in("TEST_TWICE") == 1;
  if (records_twice) checkpoint.include(record);
  const bool stays = trireme::run_elastic(world, checkpoint, [&] {
    while (loader->epoch() < 4)
      for (auto& batch : *loader) {
        optimizer.zero_grad();
        auto loss = loss_of(model, batch) + 0 * torch::rand({1}, torch::kDouble).sum();
        const bool is_of_the_loss =
            checkpoint.step() + 1 == kill_at && world.identity().generation == 0;
        if (is_of_the_loss && throws_behind_it) lose_one_and_throw(world);
        loss.backward();
        if (is_of_the_loss && world.worker() == 1) std::raise(SIGKILL);
        optimizer.step();
        schedule.step();
        record.scalar("data/largest", batch.data.max().item<double>());
        record.step(loss, optimizer);
        if (records_twice) record.step(loss, optimizer);
        checkpoint.commit();
        if (checkpoint.step() == stop_at) return;
        if (number_in("TEST_PAUSE") > 0)
          std::this_thread::sleep_for(std::chrono::milliseconds(number_in("TEST_PAUSE")));
      }
  });
  if (!stays) return;  // The job continues without this process.
  record.end();
  print(world, {{"steps", checkpoint.step()},
                {"epochs", loader->epoch()},
                {"stopped", checkpoint.stopped()},
                {"ranks", world.size()},
                {"drawn", torch::rand({1}).item<double>()},
                {"sum", sum_of(model)}});
}

// The last rank leaves inside the loop of an elastic job (TEST_LEAVES: "leave"), ends its process
// ("exit"), or comes out of the loop, while the others go on.
void left_an_elastic_loop(World& world) {
  Net model;
  model.to(torch::kDouble);
  auto loader = loader_for(world);
  Distributed<torch::optim::Adam> optimizer(world, model, torch::optim::AdamOptions(0.01));
  trireme::Checkpoint checkpoint(world, model, optimizer, {});
  checkpoint.include(*loader);
  const std::string how = text_in("TEST_LEAVES");
  trireme::run_elastic(world, checkpoint, [&] {
    while (loader->epoch() < 4)
      for (auto& batch : *loader) {
        optimizer.zero_grad();
        loss_of(model, batch).backward();
        optimizer.step();
        checkpoint.commit();
        if (checkpoint.step() != 5 || world.rank() + 1 != world.size()) continue;
        if (how == "leave") world.leave();
        if (how == "exit") std::exit(0);
        return;
      }
  });
  print(world, {{"steps", checkpoint.step()}, {"ranks", world.size()}});
}

// A worker is lost, and the loop goes on until another process has taken its place.
void replaced(World& world) {
  Net model;
  model.to(torch::kDouble);
  auto loader = loader_for(world);
  Distributed<torch::optim::Adam> optimizer(world, model, torch::optim::AdamOptions(0.01));
  torch::optim::StepLR schedule(optimizer, 1, 0.95);
  trireme::Checkpoint checkpoint(world, model, optimizer, {});
  checkpoint.include(schedule);
  checkpoint.include(*loader);
  trireme::LoopRecord record(world, {.progress = false});
  int steps_of_three = 0;
  trireme::run_elastic(world, checkpoint, [&] {
    while (steps_of_three < 14)
      for (auto& batch : *loader) {
        optimizer.zero_grad();
        auto loss = loss_of(model, batch);
        loss.backward();
        if (checkpoint.step() == 2 && world.worker() == 1 && world.identity().generation == 0)
          std::raise(SIGKILL);
        optimizer.step();
        schedule.step();
        record.step(loss, optimizer);
        checkpoint.commit();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        if (world.identity().generation > 0 && world.size() == 3 && ++steps_of_three == 14) break;
      }
  });
  record.end();
  print(world, {{"ranks", world.size()}, {"sum", sum_of(model)}});
}

// Their schedule looks at the loss of the whole batch, which LoopRecord::step() returns. It goes
// on from the folder TEST_FOLDER, with the lowest loss and the number of steps, and may end early
// after TEST_STOP steps.
void plateau(World& world) {
  Net model;
  model.to(torch::kDouble);
  auto loader = loader_for(world);
  Distributed<torch::optim::SGD> optimizer(world, model, torch::optim::SGDOptions(1.5));
  torch::optim::ReduceLROnPlateauScheduler schedule(
      optimizer, torch::optim::ReduceLROnPlateauScheduler::min, 0.5F, /*patience=*/1);
  double lowest = std::numeric_limits<double>::infinity();
  int64_t seen = 0;
  trireme::LoopRecord record(world, {.progress = false});
  trireme::Checkpoint checkpoint(world, model, optimizer, {.dir = text_in("TEST_FOLDER")});
  checkpoint.include(schedule);
  checkpoint.include("lowest", lowest);
  checkpoint.include("seen", seen);
  checkpoint.include(*loader);
  if (checkpoint.resume() == 0) TORCH_CHECK(seen == 0);
  while (loader->epoch() < 2)
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      auto loss = loss_of(model, batch);
      loss.backward();
      optimizer.step();
      const double mean = record.step(loss, optimizer);
      schedule.step(static_cast<float>(mean));
      lowest = std::min(lowest, mean);
      print(world, {{"rate", optimizer.param_groups()[0].options().get_lr()},
                    {"lowest", lowest},
                    {"seen", ++seen},
                    {"sum", sum_of(model)}});
      if (seen == number_in("TEST_STOP")) {
        checkpoint.save(seen);
        return;
      }
    }
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

// Model and optimizer are loaded on all ranks, after Distributed was made.
void loaded(World& world) {
  Net model;
  model.to(torch::kDouble);
  auto loader = loader_for(world);
  Distributed<torch::optim::Adam> optimizer(world, model, torch::optim::AdamOptions(0.01));
  torch::serialize::OutputArchive saved;
  std::stringstream file, state;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      loss_of(model, batch).backward();
      optimizer.step();
      print(world, {{"sum", sum_of(model)}});
    }
    if (epoch > 0) break;
    model.save(saved);
    saved.save_to(file);
    torch::save(optimizer, state);
    torch::NoGradGuard no_grad;
    for (auto& parameter : model.parameters()) parameter.zero_();
    torch::serialize::InputArchive archive;
    archive.load_from(file);
    model.load(archive);
    torch::load(optimizer, state);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_named(argc, argv,
                   {{"plain", plain},
                    {"unmodified", unmodified},
                    {"accumulate", accumulate},
                    {"lbfgs", lbfgs},
                    {"gan", gan},
                    {"odd", odd},
                    {"join", join},
                    {"noise", noise},
                    {"continued", continued},
                    {"evaluated", evaluated},
                    {"evaluated_on_a_device", evaluated_on_a_device},
                    {"joined_gan", joined_gan},
                    {"joined_closures", joined_closures},
                    {"replaced", replaced},
                    {"left_an_elastic_loop", left_an_elastic_loop},
                    {"loaded", loaded},
                    {"weighed", weighed},
                    {"evaluated_by_shares", evaluated_by_shares},
                    {"plateau", plateau},
                    {"applied", applied},
                    {"norms_of_all", norms_of_all},
                    {"two_on_one_module", two_on_one_module},
                    {"own_sampler", own_sampler},
                    {"uneven_sum", uneven_sum},
                    {"kept", kept},
                    {"script", script},
                    {"moved_later", moved_later},
                    {"one_rank_on_a_device", one_rank_on_a_device},
                    {"half_on_a_device", half_on_a_device},
                    {"read_by_the_host", read_by_the_host}});
}
