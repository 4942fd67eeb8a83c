// Gradients that go to servers while backward computes others: each push has the same values and
// counts once, whatever is lost in between.
#include "mortal_job.h"

// This header must come after those of torch.
#include <gmock/gmock.h>

#include <random>
#include <thread>

namespace trireme::early_gradients {
namespace {

using lost_servers::kBatch;
using lost_servers::Shape;
using plan::Consistency;
using tests::data_of;
using tests::Mlp;
using tests::MortalServers;
using tests::ServedNet;
using tests::soon;
using tests::thread_groups;

struct EarlyWorker {
  EarlyWorker(const MortalServers& servers, const Shape& shape, int64_t early_bytes,
              net::RequestPath path = net::RequestPath::tcp) {
    ServerClientOptions options{
        .placement = lost_servers::placement_of(state_of(net).parameters, shape),
        .is_lost = [&](int server, int which) { return servers.is_lost(server, which); },
        .look = [] {},
        .early_bytes = early_bytes};
    options.channel.path = path;
    client = std::make_unique<ServerClient>(servers.places(), servers.token, options,
                                            state_of(net).parameters, soon());
    client->initialise(soon());
    client->pull(soon());
  }
  void set_gradients(double value) {
    for (at::Tensor& each : net.parameters()) each.mutable_grad() = at::full_like(each, value);
  }
  // The last gradients of a backward come from the first layers.
  void tell_complete(int from = 0) {
    for (int i = static_cast<int>(net.parameters().size()) - 1; i >= from; --i)
      client->gradient_is_complete(i);
  }
  // A backward after which the gradients from this one on have gone.
  void leave_early(int from, bool together = false) {
    client->begin_early(together, Milliseconds(5000));
    tell_complete(from);
    client->end_early();
  }
  double moved() const {
    const ServedNet before;
    const auto now = net.parameters(), then = before.parameters();
    std::vector<double> all;
    for (size_t i = 0; i < now.size(); ++i) {
      all.push_back((now[i] - then[i]).min().item<double>());
      all.push_back((now[i] - then[i]).max().item<double>());
    }
    EXPECT_NEAR(*std::ranges::min_element(all), *std::ranges::max_element(all), 1e-9);
    return all.front();
  }
  ServedNet net;
  std::unique_ptr<ServerClient> client;
};

const std::vector<Shape> kShapes{{1, 1, 1}, {2, 1, 1}, {2, 2, 1}, {3, 2, 1}};

TEST(EarlyGradients, APushHasThoseThatWentBeforeAndTheOthers) {
  for (const Shape& shape : kShapes)
    for (const Consistency mode : {Consistency::async, Consistency::sync}) {
      MortalServers servers(shape.servers,
                            lost_servers::options_of<ServedNet>(shape, {mode}, SGD{.lr = 1}));
      EarlyWorker worker(servers, shape, /*early_bytes=*/1);
      for (int from = 0; from <= 4; ++from) {  // All, some, none.
        worker.set_gradients(-1);
        worker.leave_early(from);
        if (from % 2 == 0) {
          worker.client->push_pull(kBatch, soon());
        } else {
          worker.client->push(kBatch, soon());
          worker.client->pull(soon());
        }
        EXPECT_NEAR(worker.moved(), from + 1, 1e-9);
      }
      EXPECT_GT(worker.client->sent_early(), 0);
      int64_t early = 0;
      for (int i = 0; i < shape.servers; ++i) early += servers.at(i).facts().early_pieces;
      EXPECT_GT(early, 0);
    }
}

TEST(EarlyGradients, AHoldHasThemToo) {
  const Shape shape{3, 2, 1};
  MortalServers servers(3, lost_servers::options_of<ServedNet>(shape, {}, SGD{.lr = 1}));
  EarlyWorker worker(servers, shape, 1);
  for (int step = 1; step <= 4; ++step) {
    worker.set_gradients(-1);
    worker.leave_early(step % 3, /*together=*/true);
    worker.client->hold(kBatch, soon());
    worker.client->follow(worker.client->next_update(1), soon());
    EXPECT_NEAR(worker.moved(), step, 1e-9);
  }
  EXPECT_GT(worker.client->sent_early(), 0);
}

TEST(EarlyGradients, OneThatChangesAfterItWentGoesAgain) {
  const Shape shape{2, 2, 1};
  MortalServers servers(
      2, lost_servers::options_of<ServedNet>(shape, {Consistency::async}, SGD{.lr = 1}));
  EarlyWorker worker(servers, shape, 1);
  worker.set_gradients(-5);
  worker.client->begin_early(false, Milliseconds(5000));
  worker.tell_complete();
  worker.set_gradients(-1);
  worker.client->gradient_is_complete(2);
  worker.client->end_early();
  worker.client->push_pull(kBatch, soon());
  EXPECT_NEAR(worker.moved(), 1, 1e-9);
}

TEST(EarlyGradients, APushThatFailedIsMadeAgainWithAll) {
  const Shape shape{2, 1, 1};
  MortalServers servers(
      2, lost_servers::options_of<ServedNet>(shape, {Consistency::async}, SGD{.lr = 1}));
  EarlyWorker worker(servers, shape, 1);
  for (int step = 1; step <= 20; ++step) {
    worker.set_gradients(-1);
    worker.leave_early(1);
    try {  // It may reach one server, both, or none.
      worker.client->push(kBatch, Deadline::after(Milliseconds(0)));
    } catch (const Error&) {
      worker.client->push(kBatch, soon());
    }
    worker.client->pull(soon());
    EXPECT_NEAR(worker.moved(), step, 1e-9);
  }
}

TEST(EarlyGradients, ThoseOfAStepThatIsGivenUpDoNotCount) {
  const Shape shape{2, 1, 1};
  MortalServers servers(
      2, lost_servers::options_of<ServedNet>(shape, {Consistency::async}, SGD{.lr = 1}));
  EarlyWorker worker(servers, shape, 1);
  for (int given_up = 0; given_up < 2; ++given_up) {
    worker.set_gradients(-7);
    worker.leave_early(1);
  }
  worker.set_gradients(-1);
  worker.leave_early(2);
  worker.client->push_pull(kBatch, soon());
  EXPECT_NEAR(worker.moved(), 1, 1e-9);
  worker.client->push_pull(kBatch, soon());  // None goes early.
  EXPECT_NEAR(worker.moved(), 2, 1e-9);
}

// As when a loss is not finite, and the last pass of the next batch is empty.
TEST(EarlyGradients, AStepAfterOneThatWasGivenUpNeedNotSendAny) {
  const Shape shape{2, 1, 1};
  MortalServers servers(
      2, lost_servers::options_of<ServedNet>(shape, {Consistency::async}, SGD{.lr = 1}));
  EarlyWorker worker(servers, shape, 1);
  worker.set_gradients(-7);
  worker.leave_early(1);
  worker.client->forget_early();
  worker.set_gradients(-1);
  worker.client->push_pull(kBatch, soon());
  EXPECT_NEAR(worker.moved(), 1, 1e-9);
}

// On steps of engines: a batch with fewer samples than passes after one with a loss of NaN.
TEST(EarlyGradients, AnEmptyLastPassAfterALossOfNanHasNothingOfIt) {
  const Shape shape{1, 1, 1};
  std::vector<at::Tensor> results;
  for (const int64_t early_bytes : {0, 1}) {
    MortalServers servers(1, lost_servers::options_of<Mlp>(shape, {}, SGD{.lr = 0.1}));
    const auto groups = thread_groups(1);
    const auto net = std::make_shared<Mlp>();
    ServerAccess access = lost_servers::access_to(servers, shape, {});
    access.channel.path = net::RequestPath::tcp;
    access.early_bytes = early_bytes;
    const auto engine = lost_servers::engine_of(groups[0], net, access, SGD{.lr = 0.1});
    tests::take_step(*engine, data_of(kBatch, 0), 1);
    tests::Data bad = data_of(kBatch, 1);
    bad.x[3][0] = NAN;
    EXPECT_FALSE(tests::take_step(*engine, bad, 2).updated);
    EXPECT_TRUE(tests::take_step(*engine, data_of(3, 2), 2, /*passes=*/4).updated);
    results.push_back(net->parameters()[0].detach().clone());
  }
  EXPECT_TRUE(at::equal(results[0], results[1])) << results[1];
}

TEST(EarlyGradients, ALossOfAServerBeforeOrAfterThemCostsNothing) {
  const Shape shape{3, 2, 1};
  for (int victim = 0; victim < 3; ++victim)
    for (int moment = 0; moment < 3; ++moment) {
      MortalServers servers(
          3, lost_servers::options_of<ServedNet>(shape, {Consistency::async}, SGD{.lr = 1}));
      EarlyWorker worker(servers, shape, 1);
      for (int step = 1; step <= 4; ++step) {
        worker.set_gradients(-1);
        if (step == 2 && moment == 0) servers.kill(victim);
        worker.client->begin_early(false, Milliseconds(5000));
        worker.tell_complete(2);
        if (step == 2 && moment == 1) servers.kill(victim);
        worker.client->gradient_is_complete(1);
        worker.client->end_early();
        if (step == 2 && moment == 2) servers.kill(victim);
        worker.client->push_pull(kBatch, soon());
        EXPECT_NEAR(worker.moved(), step, 1e-9) << "server " << victim << ", moment " << moment;
      }
    }
}

TEST(EarlyGradients, InsideAHostNothingGoesEarly) {
  const Shape shape{2, 1, 1};
  MortalServers servers(
      2, lost_servers::options_of<ServedNet>(shape, {Consistency::async}, SGD{.lr = 1}));
  EarlyWorker worker(servers, shape, 1, net::RequestPath::automatic);
  worker.set_gradients(-1);
  worker.leave_early(0);
  worker.client->push_pull(kBatch, soon());
  EXPECT_NEAR(worker.moved(), 1, 1e-9);
  EXPECT_EQ(worker.client->sent_early(), 0);
}

// ---- Engines ----

std::vector<double> losses_of_engines(MortalServers& servers, const Shape& shape, int steps,
                                      double clip_norm, int64_t early_bytes) {
  std::vector<double> losses(static_cast<size_t>(steps));
  const auto groups = thread_groups(shape.workers);
  tests::on_ranks(groups, [&](Group& group) {
    const auto net = std::make_shared<Mlp>();
    ServerAccess access = lost_servers::access_to(servers, shape, {});
    access.channel.path = net::RequestPath::tcp;
    access.early_bytes = early_bytes;
    const auto engine =
        lost_servers::engine_of(groups[static_cast<size_t>(group.rank())], net, access,
                                SGD{.lr = 0.1, .momentum = 0.9}, clip_norm);
    for (int step = 0; step < steps; ++step) {
      const double loss =
          tests::take_step(*engine, data_of(kBatch, step), step + 1, 1 + step % 2).loss;
      if (group.rank() == 0) losses[static_cast<size_t>(step)] = loss;
    }
  });
  return losses;
}

TEST(EarlyGradients, StepsOfEnginesHaveTheSameLosses) {
  constexpr int kSteps = 30;
  std::mt19937 random(4);
  for (const Shape& shape : {Shape{1, 1, 2}, Shape{2, 2, 2}, Shape{3, 2, 1}})
    for (const double clip_norm : {0.0, 0.2}) {
      std::vector<std::vector<double>> losses;
      for (const int64_t early_bytes : {0, 1, 64}) {
        MortalServers servers(shape.servers, lost_servers::options_of<Mlp>(
                                                 shape, {}, SGD{.lr = 0.1, .momentum = 0.9}));
        std::jthread kills;
        if (shape.replication > 1 && early_bytes > 0)
          kills = std::jthread([&, wait = random() % 30000] {
            std::this_thread::sleep_for(std::chrono::microseconds(wait));
            servers.kill(static_cast<int>(wait % static_cast<unsigned>(shape.servers)));
          });
        losses.push_back(losses_of_engines(servers, shape, kSteps, clip_norm, early_bytes));
        if (kills.joinable()) kills.join();
        if (shape.replication > 1) continue;
        EXPECT_EQ(servers.at(0).facts().early_pieces > 0, early_bytes > 0);
      }
      for (size_t i = 0; i < losses[0].size(); ++i)
        for (const auto& each : losses) EXPECT_NEAR(each[i], losses[0][i], 1e-10) << "step " << i;
    }
}

}  // namespace
}  // namespace trireme::early_gradients
