// Servers that are lost at moments that random faults seldom meet: between two calls of one
// operation, before the first update, together with a worker, and twice in a row.
#include "mortal_job.h"

#include <trireme/net/requests/request_client.h>
#include <trireme/parallel/servers/compressed_push.h>
#include <trireme/parallel/servers/server_wire.h>
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <atomic>

#include "../base/expect_error.h"

namespace trireme::lost_servers {
namespace {

using plan::Consistency;
using servers::ServerCall;
using servers::ServerRequest;
using servers::ServerUpdate;
using tests::data_of;
using tests::Mlp;
using tests::thread_groups;

constexpr plan::ConsistencyOptions kAsync{Consistency::async};

// The next push of the worker moves each parameter by `by`, where the learning rate is 1.
void move_by(Worker& worker, double by) {
  for (at::Tensor& each : worker.net.parameters()) each.mutable_grad() = at::full_like(each, -by);
}

// The distance that all parameters of a worker have moved since the first values.
void expect_moved(Worker& worker, double by) {
  const ServedNet before;
  const auto now = worker.net.parameters(), then = before.parameters();
  for (size_t i = 0; i < now.size(); ++i) {
    const at::Tensor moved = now[i] - then[i];
    EXPECT_NEAR(moved.min().item<double>(), by, 1e-9) << "parameter " << i;
    EXPECT_NEAR(moved.max().item<double>(), by, 1e-9) << "parameter " << i;
  }
}

// A call that a worker makes beside its client, or that came late.
void call(const MortalServers& servers, int server, const ServerRequest& request,
          const Worker* gradients_of = nullptr) {
  net::RequestClient client(servers.place(server)->endpoint, servers.token, soon());
  net::Message message{encode(request), {}};
  if (gradients_of != nullptr) {
    const ServedNet& net = gradients_of->net;
    const auto placement = placement_of(state_of(net).parameters, {.servers = 2});
    const auto parameters = net.parameters();
    for (const plan::ServerPiece& piece : placement.pieces)
      if (piece.server == request.shard) {
        const at::Tensor& gradient = parameters[static_cast<size_t>(piece.tensor)].grad();
        message.tensors.push_back(
            {{"", "float64", {piece.count}, static_cast<uint64_t>(piece.count) * 8},
             gradient.const_data_ptr<double>() + piece.from});
      }
  }
  client.call(message, net::Places{}, soon());
}

// ---- The first values ----

TEST(LostServersAtAnyMoment, FirstValuesReachTheOthersIfAServerIsLostBetweenThem) {
  const Shape shape{3, 2, 1};
  MortalServers servers(3, options_of<ServedNet>(shape, {Consistency::sync}, SGD{.lr = 1}));
  std::atomic<bool> knows = false;
  Worker worker(servers, shape, 0,
                [&](int server, int which) { return knows && servers.is_lost(server, which); });
  // Server 0 judges the values before the worker hears that another one is lost.
  servers.kill(1);
  const std::jthread later([&] {
    std::this_thread::sleep_for(Milliseconds(200));
    knows = true;
  });
  worker.client->initialise(soon());
  worker.client->pull(Deadline::after(Milliseconds(3000)));
  move_by(worker, 1);
  worker.client->push_pull(kBatch, soon());
  expect_moved(worker, 1);
}

// The worker was lost too, so another generation begins.
TEST(LostServersAtAnyMoment, AServerThatComesBackBeforeTheFirstUpdateGetsTheFirstValues) {
  const Shape shape{2, 2, 1};
  MortalServers servers(2, options_of<Mlp>(shape, {Consistency::sync}, SGD{.lr = 0.1}));
  const auto groups = thread_groups(1);
  ServerAccess access = access_to(servers, shape, {});
  access.options.patience = Milliseconds(3000);
  const auto net = std::make_shared<Mlp>();
  auto engine = engine_of(groups[0], net, access, SGD{.lr = 0.1});
  tests::Data bad = data_of(kBatch, 0);
  bad.x = at::full_like(bad.x, NAN);
  EXPECT_FALSE(tests::take_step(*engine, bad).updated);
  const EngineState state = engine->state();
  EXPECT_EQ(state.counters.at("servers").at("versions"), Json({0, 0}));
  servers.kill(0);
  servers.start(0);
  ++access.generation;
  engine = engine_of(groups[0], net, access, SGD{.lr = 0.1});
  engine->begin_load({state.counters, {}, /*model_is_new=*/false});
  engine->end_load();
  EngineSetting alone = tests::setting_of(groups[0], std::make_shared<Mlp>(), SGD{.lr = 0.1});
  alone.strategy = "one_device";
  const auto one = find_strategy("one_device").make(alone);
  for (int step = 0; step < 3; ++step)
    EXPECT_NEAR(tests::take_step(*engine, data_of(kBatch, step), step + 1).loss,
                tests::take_step(*one, data_of(kBatch, step), step + 1).loss, 1e-10);
}

// ---- Pushes ----

TEST(LostServersAtAnyMoment, PushesWithoutAPullBetweenThemAllCount) {
  for (const int replication : {1, 2}) {
    const Shape shape{2, replication, 1};
    MortalServers servers(2, options_of<ServedNet>(shape, kAsync, SGD{.lr = 1}));
    Worker worker(servers, shape, 0);
    worker.client->initialise(soon());
    worker.client->pull(soon());
    move_by(worker, 1);
    for (int i = 0; i < 3; ++i) worker.client->push(kBatch, soon());
    worker.client->pull(soon());
    expect_moved(worker, 3);
  }
}

TEST(LostServersAtAnyMoment, ThePushOfAWorkerThatLeavesCountsIfTheClockIsLost) {
  const Shape shape{2, 2, 2};
  for (const bool before_it_leaves : {true, false}) {
    MortalServers servers(2, options_of<ServedNet>(shape, kAsync, SGD{.lr = 1}));
    Worker worker(servers, shape, 0);
    worker.client->initialise(soon());
    worker.client->pull(soon());
    move_by(worker, 1);
    worker.client->push(kBatch, soon());
    if (before_it_leaves) servers.kill(0);
    worker.client->leave(soon());
    if (!before_it_leaves) servers.kill(0);
    Worker other(servers, shape, 1);
    other.client->pull(soon());
    expect_moved(other, 1);
  }
}

// Its connection broke, and the worker has made the call again long ago.
TEST(LostServersAtAnyMoment, APushThatComesLateDoesNotReplaceTheNextOne) {
  const Shape shape{2, 1, 1};
  MortalServers servers(2, options_of<ServedNet>(shape, kAsync, SGD{.lr = 1}));
  Worker worker(servers, shape, 0);
  worker.client->initialise(soon());
  worker.client->pull(soon());
  move_by(worker, 1);
  worker.client->push_pull(kBatch, soon());
  worker.client->push(kBatch, soon());
  call(servers, 1, {.call = ServerCall::hold, .samples = kBatch, .shard = 1}, &worker);
  worker.client->pull(soon());
  expect_moved(worker, 2);
}

TEST(LostServersAtAnyMoment, APushOfNoSamplesKeepsWhatTheOneBeforeItLeftOut) {
  const std::vector<NamedTensor> parameters = state_of(ServedNet()).parameters;
  const auto placement = placement_of(parameters, {.servers = 1, .replication = 1});
  const plan::CompressionOptions options{.name = "topk", .ratio = 0.1};
  servers::CompressedPush with(options, placement), without(options, placement);
  std::vector<NamedTensor> given = parameters;
  for (int i = 0; i < 4; ++i) {
    for (NamedTensor& each : given)
      each.tensor.mutable_grad() =
          at::randn(each.tensor.sizes(), at::detail::createCPUGenerator(static_cast<uint64_t>(i)),
                    at::kDouble);
    for (servers::CompressedPush* const each : {&with, &without}) {
      each->encode(given);
      each->commit();
    }
    with.commit();  // A step without samples.
    for (size_t piece = 0; piece < placement.pieces.size(); ++piece)
      EXPECT_TRUE(std::ranges::equal(with.of(piece), without.of(piece))) << "step " << i;
  }
}

// A worker that is slow for a while is told of all that was decided meanwhile.
TEST(LostServersAtAnyMoment, AWorkerMayFallBehindByAnyNumberOfUpdates) {
  const Shape shape{2, 1, 5};
  MortalServers servers(2,
                        options_of<ServedNet>(shape, {Consistency::sync, 0, 1}, SGD{.lr = 1e-4}));
  std::vector<std::unique_ptr<Worker>> workers;
  for (int w = 0; w < shape.workers; ++w) {
    workers.push_back(std::make_unique<Worker>(servers, shape, w));
    if (w == 0) workers[0]->client->initialise(soon());
    workers.back()->client->open_round(1, 100'000, soon());
  }
  std::vector<ServerTurn> turns;
  for (const auto& worker : workers) turns.push_back(worker->client->first_turn({}, soon()));
  constexpr int kSteps = 4200;
  std::vector<std::jthread> threads;
  for (int w = 0; w + 1 < shape.workers; ++w)
    threads.emplace_back([&, w] {
      Worker& worker = *workers[static_cast<size_t>(w)];
      ServerTurn turn = turns[static_cast<size_t>(w)];
      TurnWish wish;
      for (int i = 0; i < kSteps; ++i) {
        move_by(worker, 1.0 / 3);
        turn = worker.client->next_turn({*turn.lease, 1.0 / 3, {1e-4 / 3}}, kBatch, wish, soon());
        wish.seen += std::ssize(turn.counted);
      }
    });
  threads.clear();
  move_by(*workers.back(), 1);
  const ServerTurn turn =
      workers.back()->client->next_turn({*turns.back().lease, 1, {1e-4}}, kBatch, {}, soon());
  EXPECT_TRUE(turn.lease);
  EXPECT_TRUE(turn.has_more);
}

// The worker that asked first has left the round without a stop.
TEST(LostServersAtAnyMoment, AStopThatComesBehindARoundIsForTheNextOne) {
  const Shape shape{1, 1, 2};
  MortalServers servers(1, options_of<ServedNet>(shape, kAsync, SGD{.lr = 1e-4}));
  Worker first(servers, shape, 0), second(servers, shape, 1);
  first.client->initialise(soon());
  for (Worker* const each : {&first, &second}) each->client->open_round(1, 1, soon());
  ServerTurn turn = first.client->first_turn({}, soon());
  ASSERT_TRUE(turn.lease);
  move_by(first, 1);
  turn = first.client->next_turn({*turn.lease, 1, {1e-4}}, kBatch, {}, soon());
  EXPECT_FALSE(turn.lease);
  EXPECT_FALSE(turn.stop);
  EXPECT_FALSE(second.client->first_turn({.stop = true}, soon()).stop);
  for (Worker* const each : {&first, &second}) each->client->open_round(2, 5, soon());
  EXPECT_TRUE(second.client->first_turn({.stop = true}, soon()).stop);
  EXPECT_TRUE(first.client->first_turn({}, soon()).stop);
}

// ---- Chains ----

// The first copy is the clock, and the second one has not heard of it. So a decision of the clock
// before it must not reach the second one alone.
TEST(LostServersAtAnyMoment, ADecisionThatNeverHappenedReachesNoCopy) {
  const Shape shape{3, 3, 2};
  MortalServers servers(3, options_of<ServedNet>(shape, kAsync, SGD{.lr = 1}));
  std::atomic<bool> second_knows = false;
  Worker first(servers, shape, 0), second(servers, shape, 1, [&](int server, int which) {
    return second_knows && servers.is_lost(server, which);
  });
  first.client->initialise(soon());
  for (Worker* const each : {&first, &second}) each->client->pull(soon());
  move_by(first, 1);
  move_by(second, 10);
  servers.declare_lost(0);
  first.client->push(kBatch, soon());
  std::jthread later([&] {
    std::this_thread::sleep_for(Milliseconds(300));
    second_knows = true;
  });
  second.client->push_pull(kBatch, soon());
  later.join();
  first.client->pull(soon());
  expect_moved(first, 11);
  servers.declare_lost(1);
  Worker reader(servers, shape, 0);
  reader.client->pull(soon());
  expect_moved(reader, 11);
}

// Both copies have become the clock without hearing of each other.
TEST(LostServersAtAnyMoment, TwoClocksInARowHaveDifferentTerms) {
  const Shape shape{3, 3, 2};
  MortalServers servers(3, options_of<ServedNet>(shape, kAsync, SGD{.lr = 1}));
  std::atomic<bool> first_knows = true;
  Worker first(servers, shape, 0, [&](int server, int which) {
    return (server == 0 || first_knows) && servers.is_lost(server, which);
  });
  Worker second(servers, shape, 1);
  first.client->initialise(soon());
  for (Worker* const each : {&first, &second}) each->client->pull(soon());
  move_by(first, 1);
  move_by(second, 10);
  servers.declare_lost(0);
  first.client->push(kBatch, soon());  // Server 1 decides.
  first_knows = false;
  servers.declare_lost(1);
  second.client->push(kBatch, soon());  // Server 2 decides.
  const std::jthread later([&] {
    std::this_thread::sleep_for(Milliseconds(300));
    first_knows = true;
  });
  first.client->pull(soon());
  second.client->pull(soon());
  first.client->pull(soon());
  for (Worker* const each : {&first, &second}) expect_moved(*each, 11);
}

// A worker was lost that had brought a decision to the copy of the clock alone.
TEST(LostServersAtAnyMoment, ARestoredServerHasTheDecisionsThatOthersLack) {
  const Shape shape{3, 2, 1};
  MortalServers servers(3, options_of<ServedNet>(shape, kAsync, SGD{.lr = 1}));
  {
    Worker lost(servers, shape, 0);
    lost.client->initialise(soon());
    lost.client->pull(soon());
    move_by(lost, 1);
    lost.client->push(kBatch, soon());
  }
  ServerUpdate update{.number = 1, .pushes = {{0, 0, 0}}};
  update.term = 0;
  const std::string text = Json{{"updates", to_json(std::vector{update})}}.dump();
  ServerRequest follow{.call = ServerCall::follow, .shard = 0, .to_copy = true};
  follow.text = text;
  call(servers, 1, follow);
  servers.kill(0);
  servers.start(0);
  Worker worker(servers, shape, 0, {}, /*generation=*/1);
  EXPECT_THAT(worker.client->missing(), ::testing::ElementsAre(0));
  worker.client->restore(0, *servers.place(0), soon());
  worker.client->pull(soon());
  expect_moved(worker, 1);
  move_by(worker, 1);
  worker.client->push_pull(kBatch, soon());
  expect_moved(worker, 2);
}

// ---- Engines ----

TEST(LostServersAtAnyMoment, AServerThatComesBackDuringARoundKnowsWhatIsDone) {
  for (int victim = 0; victim < 2; ++victim) {
    const Shape shape{2, 2, 1};
    MortalServers servers(2, options_of<Mlp>(shape, kAsync, SGD{.lr = 0.1}));
    const auto groups = thread_groups(1);
    ServerAccess access = access_to(servers, shape, kAsync);
    bool loses_a_worker = false;
    access.look = [&] {
      if (loses_a_worker) throw Error(ErrorCode::peer_lost, "test", "a worker was lost");
    };
    const auto net = std::make_shared<Mlp>();
    auto engine = engine_of(groups[0], net, access, SGD{.lr = 0.1});
    std::vector<int64_t> counted;
    RoundRequest request{.id = 7, .batches = 10};
    request.load = [&](int64_t number) { return tests::batch_of(data_of(kBatch, number), 0, 1); };
    request.rates = [] { return std::vector<double>{0.1}; };
    request.counted = [&](const CountedPass& pass) {
      counted.push_back(pass.number);
      loses_a_worker = pass.number == 3;
    };
    EXPECT_THAT(message_of(ErrorCode::peer_lost, [&] { engine->own_pace()->round(request); }),
                ::testing::HasSubstr("a worker was lost"));
    EXPECT_THAT(counted, ::testing::ElementsAre(0, 1, 2, 3));
    const EngineState state = engine->state();
    servers.kill(victim);
    servers.start(victim);
    loses_a_worker = false;
    counted.clear();
    ++access.generation;
    engine = engine_of(groups[0], net, access, SGD{.lr = 0.1});
    engine->begin_load({state.counters, {}, /*model_is_new=*/false});
    engine->end_load();
    request.counted = [&](const CountedPass& pass) { counted.push_back(pass.number); };
    EXPECT_EQ(engine->own_pace()->round(request).batches, 10);
    EXPECT_THAT(counted, ::testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
    EXPECT_EQ(engine->state().counters.at("servers").at("versions"), Json({10, 10}))
        << "server " << victim << ": each batch is one update";
  }
}

// The update of the step is made, so the step must not be taken again.
TEST(LostServersAtAnyMoment, AnErrorWhileAServerIsRestoredLeavesTheStepDone) {
  const OptimizerFactory optimizer = SGD{.lr = 0.1};
  const Shape shape{2, 2, 1};
  MortalServers servers(2, options_of<Mlp>(shape, {Consistency::sync}, optimizer));
  const auto groups = thread_groups(1);
  ServerAccess access = access_to(servers, shape, {});
  int looks = 0;
  access.find_again = [&](int server) {
    const auto place = servers.place(server);
    looks += place.has_value();
    if (looks == 2) throw Error(ErrorCode::peer_lost, "test", "a worker was lost");
    return place;
  };
  const auto engine = engine_of(groups[0], std::make_shared<Mlp>(), access, optimizer);
  tests::take_step(*engine, data_of(kBatch, 0), 1);
  servers.kill(1);
  tests::take_step(*engine, data_of(kBatch, 1), 2);
  servers.start(1);
  std::this_thread::sleep_for(Milliseconds(120));
  EXPECT_TRUE(tests::take_step(*engine, data_of(kBatch, 2), 3).updated);
  EXPECT_EQ(looks, 2) << "it was to be restored";
  EXPECT_THAT(
      message_of(ErrorCode::peer_lost, [&] { tests::take_step(*engine, data_of(kBatch, 3), 4); }),
      ::testing::HasSubstr("a worker was lost"));
}

}  // namespace
}  // namespace trireme::lost_servers
