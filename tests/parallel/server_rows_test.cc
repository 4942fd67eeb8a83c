// Rows of embedding tables beside the other parameters on parameter servers: they follow the same
// decisions, so a push counts for both or for neither, whichever server is lost.
#include "mortal_job.h"

// This header must come after those of torch.
#include <gmock/gmock.h>

#include <fmt/format.h>
#include <trireme/checkpoint/file_system.h>
#include <trireme/checkpoint/parts.h>
#include <trireme/parallel/nn/sharded_embedding.h>
#include <trireme/parallel/servers/tables/model_tables.h>
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <random>
#include <thread>

#include <unistd.h>

#include "../base/expect_error.h"

namespace trireme::server_rows {
namespace {

using lost_servers::kBatch;
using lost_servers::Shape;
using plan::Consistency;
using tests::MortalServers;
using tests::ServedNet;
using tests::soon;

constexpr int64_t kRows = 20, kWidth = 3;

plan::TablePlan tables_of(const Shape& shape) {
  return plan::plan_tables({{{"ads", kRows, kWidth}, {"words", 0, 2}}, shape.servers});
}

// Rows begin with zeros, and a gradient of -1 moves them by 1.
MortalServers::Make options_with_rows(const Shape& shape, plan::ConsistencyOptions consistency,
                                      TableOptions table = {.optimizer = {.lr = 1},
                                                            .init = {RowStart::zeros}}) {
  return [=](int server) {
    ParameterServerOptions options =
        lost_servers::options_of<ServedNet>(shape, consistency, SGD{.lr = 1})(server);
    options.tables = tables_of(shape);
    options.table_options = {table};
    options.refuses_nonfinite = true;
    return options;
  };
}

struct RowWorker {
  RowWorker(const MortalServers& servers, const Shape& shape, int number, int generation = 0) {
    client = std::make_unique<ServerClient>(
        servers.places(), servers.token,
        ServerClientOptions{
            .placement = lost_servers::placement_of(state_of(net).parameters, shape),
            .worker = number,
            .generation = generation,
            .tables = tables_of(shape),
            .is_lost = [&](int server, int which) { return servers.is_lost(server, which); },
            .why_lost = [](int, int) { return "it was killed"; },
            .look = [] {}},
        state_of(net).parameters, soon());
  }
  // All rows of the first table, and some of the other.
  std::vector<RowsOfTable> all_rows() const {
    return {{0, at::arange(kRows, at::kLong)}, {1, at::tensor({int64_t{1} << 40, int64_t{-7}})}};
  }
  std::vector<at::Tensor> values() { return client->rows(all_rows(), /*peeks=*/true, soon()); }
  void expect_rows(double value) {
    for (const at::Tensor& each : values())
      EXPECT_TRUE(at::all(each == value).item<bool>()) << each << " instead of " << value;
  }
  void expect_parameters_moved(double by) {
    const ServedNet before;
    const auto now = net.parameters(), then = before.parameters();
    for (size_t i = 0; i < now.size(); ++i)
      EXPECT_TRUE(at::allclose(now[i] - then[i], at::full_like(now[i], by)));
  }
  // Gradients of -1 for everything.
  void move_all() {
    for (at::Tensor& each : net.parameters()) each.mutable_grad() = at::full_like(each, -1);
    std::vector<servers::RowValues> gradients;
    for (const RowsOfTable& each : all_rows())
      gradients.push_back({each.table, each.rows,
                           at::full({each.rows.numel(), each.table == 0 ? kWidth : 2}, -1.0f)});
    client->give_rows(gradients);
  }
  ServedNet net;
  std::unique_ptr<ServerClient> client;
};

constexpr plan::ConsistencyOptions kAsyncRows{Consistency::async};

TEST(ServerRows, APushMovesRowsAndParametersAlike) {
  for (const Shape shape : {Shape{1, 1, 1}, Shape{3, 1, 1}, Shape{3, 2, 1}}) {
    MortalServers servers(shape.servers, options_with_rows(shape, kAsyncRows));
    RowWorker worker(servers, shape, 0);
    worker.client->initialise(soon());
    worker.client->pull(soon());
    worker.expect_rows(0);
    for (int step = 1; step <= 5; ++step) {
      worker.move_all();
      worker.client->push_pull(kBatch, soon());
      worker.expect_rows(step);
      worker.expect_parameters_moved(step);
    }
    worker.client->push_pull(0, soon());  // The mean over no samples.
    worker.expect_rows(5);
  }
}

TEST(ServerRows, EachPushCountsOnceForRowsThatWereOnALostServer) {
  std::mt19937 random(3);
  for (const plan::ConsistencyOptions mode :
       {kAsyncRows, plan::ConsistencyOptions{Consistency::sync},
        plan::ConsistencyOptions{Consistency::stale, 1}}) {
    const Shape shape{3, 2, 3};
    for (int victim = 0; victim < shape.servers; ++victim) {
      MortalServers servers(shape.servers, options_with_rows(shape, mode));
      constexpr int kSteps = 30;
      std::vector<std::jthread> threads;
      std::atomic<int> begun = 0;
      for (int w = 0; w < shape.workers; ++w)
        threads.emplace_back([&, w] {
          RowWorker worker(servers, shape, w);
          if (w == 0) worker.client->initialise(soon());
          worker.client->pull(soon());
          ++begun;
          for (int i = 0; i < kSteps; ++i) {
            worker.move_all();
            worker.client->push_pull(kBatch, soon());
          }
        });
      while (begun < shape.workers) std::this_thread::sleep_for(Milliseconds(1));
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 8000));
      servers.kill(victim);
      threads.clear();
      RowWorker reader(servers, shape, 0);
      reader.client->pull(soon());
      // Synchronous workers make the mean of their pushes.
      const int each = mode.consistency == Consistency::sync ? 1 : shape.workers;
      reader.expect_rows(kSteps * each);
      reader.expect_parameters_moved(kSteps * each);
    }
  }
}

TEST(ServerRows, AServerThatComesBackGetsItsRows) {
  const Shape shape{2, 2, 1};
  MortalServers servers(2, options_with_rows(shape, kAsyncRows));
  RowWorker worker(servers, shape, 0);
  worker.client->initialise(soon());
  worker.client->pull(soon());
  for (int step = 1; step <= 6; ++step) {
    const int victim = step % 2;
    servers.kill(victim);
    worker.move_all();
    worker.client->push_pull(kBatch, soon());
    servers.start(victim);
    worker.client->restore(victim, *servers.place(victim), soon());
    worker.expect_rows(step);
  }
}

// A worker that restores a server may be lost while the rows travel. Here its time ends, which
// leaves the server with the same part of them.
TEST(ServerRows, AServerThatGotAPartOfItsRowsHasNothing) {
  constexpr int64_t kMany = 400'000;
  const Shape shape{2, 2, 1};
  MortalServers servers(2, options_with_rows(shape, kAsyncRows));
  {
    RowWorker worker(servers, shape, 0);
    worker.client->initialise(soon());
    worker.client->pull(soon());
    worker.move_all();
    worker.client->give_rows({{1, at::arange(kMany, at::kLong), at::full({kMany, 2}, -1.0f)}});
    worker.client->push_pull(kBatch, soon());
  }
  servers.kill(1);
  servers.start(1);
  Milliseconds time{1};
  for (int generation = 1;; ++generation, time *= 2) {
    ASSERT_LT(time, Milliseconds(60000));
    RowWorker worker(servers, shape, 0, generation);
    if (worker.client->missing().empty()) break;  // It has all, as is checked below.
    try {
      worker.client->restore(1, *servers.place(1), Deadline::after(time));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
    }
  }
  servers.kill(0);
  RowWorker reader(servers, shape, 0, /*generation=*/100);
  const std::vector<RowsOfTable> all = {{1, at::arange(kMany, at::kLong)}};
  EXPECT_TRUE(at::all(reader.client->rows(all, /*peeks=*/true, soon())[0] == 1).item<bool>());
}

// The worker that brought an update about may be lost before the others know of it. They go on
// from the state before it, in which the servers that made it must have its rows.
TEST(ServerRows, RowsOfAnUpdateAreTakenBackAndMadeAgain) {
  for (const Shape shape : {Shape{2, 1, 1}, Shape{3, 2, 1}}) {
    MortalServers servers(shape.servers, options_with_rows(shape, {Consistency::sync}));
    std::vector<int64_t> before;
    const auto step_of = [&](RowWorker& worker) {
      worker.move_all();
      worker.client->hold(kBatch, soon());
      return worker.client->next_update(1);
    };
    {
      RowWorker worker(servers, shape, 0);
      worker.client->initialise(soon());
      worker.client->refresh(soon());
      worker.client->follow(step_of(worker), soon());
      before = worker.client->versions();
      worker.client->follow(step_of(worker), soon());
      worker.expect_rows(2);
    }
    RowWorker next(servers, shape, 0, /*generation=*/1);
    next.client->have_versions(before);
    EXPECT_FALSE(next.client->rows_are_of(7, soon()));
    next.expect_rows(2);
    for (int again = 0; again < 2; ++again) {  // A second loss while they agree.
      EXPECT_TRUE(next.client->rows_are_of(before[0], soon()));
      next.expect_rows(1);
    }
    next.client->tell_again_after(before[0]);
    EXPECT_FALSE(next.client->rows_are_of(before[0] - 1, soon())) << "one update alone is known";
    next.client->follow(step_of(next), soon());
    next.expect_rows(2);
    next.client->follow(step_of(next), soon());
    next.expect_rows(3);
    RowWorker reader(servers, shape, 0, /*generation=*/2);
    reader.client->refresh(soon());
    reader.expect_parameters_moved(3);
  }
}

// ---- Engines ----

// A model whose layer has its rows on servers. They begin with zeros.
struct ServedClicks : torch::nn::Module {
  ServedClicks()
      : tables(std::make_shared<ModelTables>(
            std::vector<plan::TableSpec>{{"ads", kRows, kWidth}},
            TableOptions{.optimizer = {.lr = 0.5}, .init = {RowStart::zeros}})),
        ads(register_module(
            "ads",
            nn::ShardedEmbedding(tables, "ads", torch::nn::EmbeddingOptions(kRows, kWidth)))),
        out(register_module("out", torch::nn::Linear(kWidth, 2))) {
    const at::NoGradGuard no_grad;
    out->weight.copy_(at::linspace(-1, 1, 2 * kWidth).view({2, kWidth}));
    out->bias.zero_();
  }
  at::Tensor forward(const at::Tensor& rows) { return out(ads(rows)); }
  std::shared_ptr<ModelTables> tables;
  nn::ShardedEmbedding ads;
  torch::nn::Linear out;
};

// The losses of three steps of two ranks. With `again` the second one is lost with those that made
// it, and others make it again from the first one.
std::vector<double> losses_of_clicks(const Shape& shape, bool again) {
  MortalServers servers(shape.servers, [&](int server) {
    const ServedClicks net;
    return ParameterServerOptions{
        .placement = lost_servers::placement_of(state_of(net).parameters, shape),
        .server = server,
        .optimizer = SGD{.lr = 0.5},
        .workers = 2,
        .tables = plan::plan_tables({net.tables->tables(), shape.servers}),
        .table_options = net.tables->options(),
        .refuses_nonfinite = false};
  });
  std::vector<double> losses;
  const auto groups = tests::thread_groups(2);
  tests::on_ranks(groups, [&](Group& each) {
    const auto& group = groups[static_cast<size_t>(each.rank())];
    const auto net = std::make_shared<ServedClicks>();
    const auto engine_for = [&](int generation) {
      EngineSetting setting = tests::setting_of(group, net, SGD{.lr = 0.5});
      setting.strategy = "parameter_server";
      ServerAccess access = lost_servers::access_to(servers, shape, {});
      access.generation = generation;
      setting.servers = std::make_shared<ServerAccess>(access);
      setting.tables = net->tables;
      return make_server_engine(setting);
    };
    const auto step = [&](Engine& engine, int number) {
      const at::Tensor samples = at::arange(16, at::kLong);
      const tests::Data whole{(samples * (number + 2)) % kRows, samples % 2};
      return tests::take_step(engine, whole, number).loss;
    };
    std::vector<double> mine;
    auto engine = engine_for(0);
    mine.push_back(step(*engine, 1));
    const EngineState after_first = tests::copy_of(engine->state());
    if (again) {
      step(*engine, 2);
      engine.reset();
      const at::NoGradGuard no_grad;
      const auto now = net->parameters();
      for (size_t i = 0; i < now.size(); ++i) now[i].copy_(after_first.tensors[i].tensor);
      engine = engine_for(1);
      engine->begin_load({after_first.counters, {}, /*model_is_new=*/false});
      engine->end_load();
    }
    for (int number = 2; number <= 3; ++number) mine.push_back(step(*engine, number));
    if (group->rank() == 0) losses = mine;
  });
  return losses;
}

TEST(ServerRows, RanksThatMakeAStepAgainUseTheRowsBeforeIt) {
  for (const Shape shape : {Shape{1, 1, 2}, Shape{2, 2, 2}, Shape{3, 1, 2}}) {
    const auto without = losses_of_clicks(shape, false), with = losses_of_clicks(shape, true);
    ASSERT_EQ(without.size(), 3U);
    EXPECT_NE(without[1], without[2]);
    for (size_t i = 0; i < without.size(); ++i)
      EXPECT_NEAR(with[i], without[i], 1e-6) << shape.servers << " servers, step " << i + 1;
  }
}

// The checkpoints of servers.
struct RowFiles {
  ~RowFiles() { std::filesystem::remove_all(folder); }

  std::vector<std::filesystem::path> save(RowWorker& worker, int servers, int64_t step) const {
    checkpoint::Part part{0, 1 + servers, "test", {}};
    const auto unfinished = checkpoint::unfinished_path(folder, step, part);
    std::filesystem::create_directories(unfinished);
    worker.client->save_rows(folder, step, part, soon());
    checkpoint::Manifest manifest;
    checkpoint::collect_parts(checkpoint::disk(), unfinished, part, [] { return true; }, manifest);
    std::vector<std::filesystem::path> files;
    for (const std::string& name : checkpoint::files_of_parts(manifest, "tables.safetensors"))
      files.push_back(unfinished / name);
    EXPECT_EQ(std::ssize(files), servers);
    return files;
  }

  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / fmt::format("server-rows-{}", ::getpid());
};

TEST(ServerRows, FilesOfAnyNumberOfServersGiveTheRowsBack) {
  const RowFiles of_servers;
  std::vector<std::filesystem::path> files;
  int64_t step = 0;
  for (const Shape shape : {Shape{2, 1, 1}, Shape{3, 2, 1}, Shape{1, 1, 1}}) {
    MortalServers servers(shape.servers, options_with_rows(shape, kAsyncRows));
    RowWorker worker(servers, shape, 0);
    worker.client->initialise(soon());
    worker.client->pull(soon());
    if (!files.empty()) worker.client->load_rows(files, soon());
    worker.expect_rows(static_cast<double>(step));
    worker.move_all();
    worker.client->push_pull(kBatch, soon());
    files = of_servers.save(worker, shape.servers, ++step);
    worker.move_all();
    worker.client->push_pull(kBatch, soon());
    worker.client->load_rows(files, soon());  // Those that are there go.
    worker.expect_rows(static_cast<double>(step));
  }
}

TEST(ServerRows, RowsOfACheckpointCountAsUsedWhenTheyCome) {
  const Shape shape{1, 1, 1};
  const RowFiles of_servers;
  MortalServers servers(
      1,
      options_with_rows(shape, kAsyncRows,
                        {.optimizer = {.lr = 1}, .init = {RowStart::zeros}, .evict_unused = 8}));
  RowWorker worker(servers, shape, 0);
  worker.client->initialise(soon());
  worker.client->pull(soon());
  for (int step = 0; step < 10; ++step) {
    worker.client->rows(worker.all_rows(), /*peeks=*/false, soon());
    worker.move_all();
    worker.client->push_pull(kBatch, soon());
  }
  worker.client->load_rows(of_servers.save(worker, 1, 10), soon());
  worker.client->give_rows({});  // The next update uses none of them.
  worker.client->push_pull(kBatch, soon());
  worker.expect_rows(10);
}

TEST(ServerRows, WrongRowsAndGradientsAreNamed) {
  const Shape shape{2, 1, 1};
  MortalServers servers(2, options_with_rows(shape, kAsyncRows));
  RowWorker worker(servers, shape, 0);
  worker.client->initialise(soon());
  worker.client->pull(soon());
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [&] {
                           worker.client->rows({{0, at::tensor({int64_t{3}, int64_t{20}})}}, false,
                                               soon());
                         }),
              ::testing::HasSubstr("row 20 at position 1 of worker 0's rows is outside table "
                                   "'ads', which has rows 0 to 19"));
  worker.move_all();
  worker.client->give_rows({{0, at::tensor({int64_t{4}}), at::full({1, kWidth}, NAN)}});
  EXPECT_THAT(
      message_of(ErrorCode::corrupt, [&] { worker.client->push(kBatch, soon()); }),
      ::testing::HasSubstr("worker 0's gradient of row 4 of table 'ads' has values that are NaN"));
  checkpoint::Part part{0, 3, "test", {}};
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [&] { worker.client->save_rows("/nowhere", 3, part, soon()); }),
              ::testing::AllOf(::testing::HasSubstr("does not see /nowhere/"),
                               ::testing::HasSubstr("a checkpoint.dir that all")));
}

TEST(ServerRows, TablesThatDifferOrHaveLimitsWithCopiesAreRefused) {
  const Shape shape{2, 2, 1};
  EXPECT_THAT(
      message_of(
          ErrorCode::invalid_argument,
          [&] { MortalServers(2, options_with_rows(shape, kAsyncRows, {.admit_after = 2})); }),
      ::testing::AllOf(::testing::HasSubstr("table 'ads' has admission"),
                       ::testing::HasSubstr("ps.replication=1")));
  MortalServers servers(2, options_with_rows(shape, kAsyncRows));
  EXPECT_THAT(
      message_of(ErrorCode::invalid_argument, [&] { lost_servers::Worker(servers, shape, 0); }),
      ::testing::HasSubstr("its embedding tables are null, and here"));
}

TEST(ServerRows, TablesOfAModelSayThatNoServersAreConnected) {
  ModelTables tables({{"ads", kRows, kWidth}}, {});
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [&] { tables.pull({{0, at::zeros({1}, at::kLong)}}, soon()); }),
              ::testing::AllOf(::testing::HasSubstr("no parameter servers are connected"),
                               ::testing::HasSubstr("Job::tables")));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [] { ModelTables({{"ads", kRows, kWidth}, {"ads", 1, 1}}, {}); }),
              ::testing::HasSubstr("ads"));
}

}  // namespace
}  // namespace trireme::server_rows
