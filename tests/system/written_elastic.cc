// Loops that continue: from a checkpoint, from files, or without a lost worker.
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>
#include <trireme/base/deadline.h>
#include <trireme/data/from_dataset.h>
#include <trireme/data/loader.h>
#include <trireme/parallel/data_parallel.h>
#include <trireme/parallel/distributed.h>
#include <trireme/train/loop_record.h>
#include <trireme/train/own_checkpoint.h>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loop_parts.h"

namespace loops {
namespace {

using trireme::Distributed;

void lose_one_and_throw(const World& world) {
  if (world.worker() == 1) std::raise(SIGKILL);
  if (world.worker() != 2) return;
  const auto deadline = trireme::Deadline::after(trireme::Milliseconds(20000));
  while (!world.lost_a_worker() && !deadline.expired())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (!world.lost_a_worker()) throw std::runtime_error("no loss was seen within 20 s");
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
        record.scalar("data/first", batch.data.select(1, 0).mean().item<double>());
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

// A loop with DataParallel that continues: two models, and a Loader. With TEST_HALF=1 the first one
// has masters. Worker TEST_LOST is killed between the steps of the models in step TEST_KILL of the
// first generation.
void continued_replicas(World& world) {
  const auto is_lost_in = [&](int64_t step) {
    return step == number_in("TEST_KILL") && world.worker() == number_in("TEST_LOST") &&
           world.identity().generation == 0;
  };
  const int stop_at = number_in("TEST_STOP"), pause = std::max(0, number_in("TEST_PAUSE"));
  const auto type = number_in("TEST_HALF") == 1 ? torch::kBFloat16 : torch::kDouble;
  auto model = std::make_shared<Net>(), critic = std::make_shared<Net>();
  model->to(type);
  critic->to(torch::kDouble);
  trireme::Loader loader(world, trireme::from_dataset(Samples()),
                         {.batch = 20, .seed = 3, .dtype = torch::kDouble});
  trireme::DataParallel replica(world, model, trireme::Adam{.lr = 0.01}, replica_options());
  trireme::DataParallel of_critic(world, critic, trireme::SGD{.lr = 0.1, .momentum = 0.9},
                                  replica_options());
  torch::optim::StepLR schedule(replica.optimizer(), 4, 0.5);
  trireme::Checkpoint checkpoint(world, replica,
                                 {.dir = text_in("TEST_FOLDER"), .every_steps = 4});
  checkpoint.include("critic", of_critic);
  checkpoint.include(schedule);
  checkpoint.include(loader);
  trireme::run_elastic(world, checkpoint, [&] {
    while (loader.position().epoch < 4)
      for (const trireme::Batch& batch : loader) {
        const auto guess = model->forward(batch.data.to(type)).to(torch::kDouble);
        replica.step(torch::nn::functional::cross_entropy(guess, batch.target), batch.size(),
                     batch.global_size);
        if (is_lost_in(checkpoint.step() + 1)) std::raise(SIGKILL);
        const auto judged = critic->forward(batch.data) + 0 * torch::rand({1}, torch::kDouble);
        of_critic.step(torch::mse_loss(judged, guess.detach()), batch.size());
        schedule.step();
        checkpoint.commit();
        if (checkpoint.step() == stop_at) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(pause));
      }
  });
  print(world, {{"steps", checkpoint.step()},
                {"epochs", loader.position().epoch},
                {"stopped", checkpoint.stopped()},
                {"ranks", world.size()},
                {"drawn", torch::rand({1}).item<double>()},
                {"rate", replica.optimizer().param_groups()[0].options().get_lr()},
                {"sum", sum_of(*model)},
                {"critic", sum_of(*critic)}});
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

// Each layer has a learning rate of its own. The last bias joins them in step 13, before the loop
// with TEST_JOINED=1, or as soon as it is missing with TEST_JOINED=2 (with its rate of then) or 3
// (with its first one). The loop goes on from the folder TEST_FOLDER, and ends early after
// TEST_STOP steps. Worker 1 is killed in step TEST_KILL.
template <typename Optimizer, typename Options>
void train_groups(World& world) {
  Net model;
  model.to(torch::kDouble);
  const auto group = [](std::vector<torch::Tensor> parameters, double rate) {
    return torch::optim::OptimizerParamGroup(std::move(parameters),
                                             std::make_unique<Options>(rate));
  };
  auto loader = loader_for(world);
  Distributed<Optimizer> optimizer(
      world, model,
      std::vector{group(model.hidden->parameters(), 0.02), group({model.output->weight}, 0.005)},
      Options(0.01));
  const auto joined = number_in("TEST_JOINED");
  const auto add_the_last = [&](double rate = 0.04) {
    optimizer.add_param_group(group({model.output->bias}, rate));
  };
  if (joined == 1) add_the_last();
  torch::optim::StepLR schedule(optimizer, 4, 0.5);
  trireme::Checkpoint checkpoint(world, model, optimizer, {.dir = text_in("TEST_FOLDER")});
  checkpoint.include(schedule);
  checkpoint.include(*loader);
  trireme::run_elastic(world, checkpoint, [&] {
    while (loader->epoch() < 4)
      for (auto& batch : *loader) {
        if ((checkpoint.step() == 12 || (checkpoint.step() > 12 && joined >= 2)) &&
            optimizer.param_groups().size() == 2)
          add_the_last(checkpoint.step() > 12 && joined == 2 ? 0.02 : 0.04);
        if (checkpoint.step() + 1 == number_in("TEST_KILL") && world.worker() == 1 &&
            world.identity().generation == 0)
          std::raise(SIGKILL);
        optimizer.zero_grad();
        loss_of(model, batch).backward();
        optimizer.step();
        schedule.step();
        checkpoint.commit();
        double rates = 0;
        for (const auto& each : optimizer.param_groups())
          rates = 10 * rates + each.options().get_lr();
        print(world, {{"step", checkpoint.step()}, {"rates", rates}, {"sum", sum_of(model)}});
        if (checkpoint.step() != number_in("TEST_STOP")) continue;
        checkpoint.save(checkpoint.step());
        return;
      }
  });
}

void grouped(World& world) { train_groups<torch::optim::Adam, torch::optim::AdamOptions>(world); }

void grouped_without_state(World& world) {
  train_groups<torch::optim::SGD, torch::optim::SGDOptions>(world);
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

Loops written_elastic() {
  return {{"continued", continued},
          {"continued_replicas", continued_replicas},
          {"replaced", replaced},
          {"left_an_elastic_loop", left_an_elastic_loop},
          {"grouped", grouped},
          {"grouped_without_state", grouped_without_state},
          {"loaded", loaded},
          {"plateau", plateau}};
}

}  // namespace loops
