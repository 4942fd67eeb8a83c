// Embeddings on table servers, over real channels, beside torch::nn::Embedding on the same data.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/embedding.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
// These headers must come after those of torch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <trireme/net/control.h>
#include <trireme/parallel/nn/sharded_embedding.h>
#include <trireme/parallel/servers/tables/table_client.h>
#include <trireme/parallel/servers/tables/table_server.h>
#include <trireme/parallel/servers/tables/table_wire.h>
#include <limits>
#include <thread>

#include "../base/expect_error.h"

namespace trireme::sharded_embedding_test {
namespace {

using plan::Consistency;
using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::nn::EmbeddingOptions;

Deadline soon() { return Deadline::after(Milliseconds(20000)); }

const std::vector<plan::TableSpec> kTables = {{"ads", 40, 8}, {"words", 0, 3}};

// A job's servers, in this process.
struct Servers {
  Servers(int count, int workers, const plan::ConsistencyOptions& consistency,
          const TableOptions& table = {.optimizer = {.lr = 0.2}},
          const std::vector<plan::TableSpec>& tables = kTables,
          const std::function<void(TableServerOptions&)>& change = {})
      : plan(plan::plan_tables({.tables = tables, .servers = count})) {
    for (int i = 0; i < count; ++i) {
      TableServerOptions options{.plan = plan,
                                 .server = i,
                                 .tables = {table},
                                 .consistency = consistency,
                                 .workers = workers};
      if (change) change(options);
      all.push_back(std::make_unique<TableServer>(net::Endpoint{"127.0.0.1", 0}, token, options));
    }
  }
  std::shared_ptr<TableClient> client(int worker = 0) const {
    std::vector<net::Endpoint> endpoints;
    for (const auto& server : all) endpoints.push_back(server->endpoint());
    return std::make_shared<TableClient>(
        endpoints, token, TableClientOptions{.plan = plan, .worker = worker}, soon());
  }
  const std::string token = net::make_token();
  plan::TablePlan plan;
  std::vector<std::unique_ptr<TableServer>> all;
};

nn::ShardedEmbedding embedding_of(const std::shared_ptr<TableClient>& client,
                                  const std::string& table = "ads") {
  const plan::TableSpec& spec = client->tables()[static_cast<size_t>(client->find(table))];
  return nn::ShardedEmbedding(client, table, EmbeddingOptions(spec.rows, spec.width));
}

// torch's embedding with the values that the servers' rows begin with.
torch::nn::Embedding torch_embedding(const Servers& servers, EmbeddingOptions options) {
  torch::nn::Embedding embedding(options);
  const at::NoGradGuard no_grad;
  for (int64_t row = 0; row < 40; ++row)
    servers::initial_row(servers.all[0]->options().tables[0].init, servers::key_of_table("ads"),
                         row, embedding->weight[row].mutable_data_ptr<float>(), 8);
  return embedding;
}

at::Tensor indices_of(int64_t step, int64_t count = 24) {
  return at::randint(40, {count / 4, 4},
                     at::detail::createCPUGenerator(100 + static_cast<uint64_t>(step)),
                     at::TensorOptions(at::kLong));
}

// The loss of a batch: its mean over the samples, so that workers can share it.
at::Tensor loss_of(const at::Tensor& rows, int64_t step) {
  const at::Tensor weights =
      at::randn({4, 8}, at::detail::createCPUGenerator(static_cast<uint64_t>(step)), at::kFloat);
  return (rows.tanh() * weights).square().sum({1, 2}).mean();
}

at::Tensor all_rows(const std::shared_ptr<TableClient>& client) {
  const at::NoGradGuard no_grad;
  return embedding_of(client)(at::arange(40, at::kLong));
}

void expect_near(const at::Tensor& a, const at::Tensor& b, double most, const std::string& what) {
  EXPECT_LE((a - b).abs().max().item<double>(), most) << what;
}

TEST(ShardedEmbedding, TrainsAsTorchsSparseEmbeddingWithSgd) {
  for (const int count : {1, 2, 3}) {
    const Servers servers(count, 1, {Consistency::sync});
    const auto client = servers.client();
    nn::ShardedEmbedding ours = embedding_of(client);
    torch::nn::Embedding theirs = torch_embedding(servers, EmbeddingOptions(40, 8).sparse(true));
    torch::optim::SGD sgd({theirs->weight}, 0.2);
    for (int64_t step = 0; step < 20; ++step) {
      loss_of(ours(indices_of(step)), step).backward();
      EXPECT_EQ(client->push(6, soon()), step + 1);
      sgd.zero_grad();
      loss_of(theirs->forward(indices_of(step)), step).backward();
      sgd.step();
      expect_near(all_rows(client), theirs->weight, 1e-6, fmt::format("step {}", step));
    }
  }
}

TEST(ShardedEmbedding, TrainsAsTorchsWithAdagrad) {
  const Servers servers(2, 1, {Consistency::sync},
                        {.optimizer = {.rule = RowRule::adagrad, .lr = 0.1}});
  const auto client = servers.client();
  nn::ShardedEmbedding ours = embedding_of(client);
  torch::nn::Embedding theirs = torch_embedding(servers, EmbeddingOptions(40, 8).sparse(true));
  torch::optim::Adagrad adagrad({theirs->weight}, torch::optim::AdagradOptions(0.1));
  for (int64_t step = 0; step < 20; ++step) {
    loss_of(ours(indices_of(step)), step).backward();
    client->push(6, soon());
    adagrad.zero_grad();
    loss_of(theirs->forward(indices_of(step)), step).backward();
    adagrad.step();
    expect_near(all_rows(client), theirs->weight, 1e-6, fmt::format("step {}", step));
  }
}

// Lazy Adam is Adam where every row is in every batch.
TEST(ShardedEmbedding, TrainsAsTorchsWithAdamIfAllRowsAreUsed) {
  const Servers servers(2, 1, {Consistency::sync},
                        {.optimizer = {.rule = RowRule::adam, .lr = 0.01, .eps = 1e-8}});
  const auto client = servers.client();
  nn::ShardedEmbedding ours = embedding_of(client);
  torch::nn::Embedding theirs = torch_embedding(servers, EmbeddingOptions(40, 8));
  torch::optim::Adam adam({theirs->weight}, torch::optim::AdamOptions(0.01));
  for (int64_t step = 0; step < 20; ++step) {
    const at::Tensor indices =
        at::cat({at::arange(40, at::kLong), indices_of(step).flatten()}).view({-1, 4});
    loss_of(ours(indices), step).backward();
    client->push(16, soon());
    adam.zero_grad();
    loss_of(theirs->forward(indices), step).backward();
    adam.step();
    expect_near(all_rows(client), theirs->weight, 1e-6, fmt::format("step {}", step));
  }
}

TEST(ShardedEmbedding, WorkersThatShareABatchGiveTheResultOfOne) {
  for (const RowRule rule : {RowRule::sgd, RowRule::row_adagrad, RowRule::adam, RowRule::ftrl}) {
    std::vector<at::Tensor> results;
    for (const auto& [count, workers] : std::vector<std::pair<int, int>>{{1, 1}, {1, 3}, {2, 4}}) {
      const Servers servers(count, workers, {Consistency::sync},
                            {.optimizer = {.rule = rule, .lr = 0.05, .eps = 1e-4}});
      std::vector<std::jthread> threads;
      for (int w = 0; w < workers; ++w)
        threads.emplace_back([&, w, workers = workers] {
          const auto client = servers.client(w);
          nn::ShardedEmbedding embedding = embedding_of(client);
          for (int64_t step = 0; step < 12; ++step) {
            // Six samples: uneven shares for four workers.
            const at::Tensor mine =
                at::tensor_split(indices_of(step), workers)[static_cast<size_t>(w)];
            loss_of(embedding(mine), step).backward();
            client->push(mine.size(0), soon());
          }
          client->leave(soon());
        });
      threads.clear();
      for (const auto& server : servers.all) EXPECT_EQ(server->facts().updates, 12);
      results.push_back(all_rows(servers.client()));
    }
    for (const at::Tensor& result : results)
      expect_near(result, results[0], 2e-6, std::string(to_string(rule)));
  }
}

// docs/parameter_server.md has this as its example.
TEST(ShardedEmbedding, TrainsInALoopOfOnesOwn) {
  const auto deadline = soon;
  const std::string token = net::make_token();
  const plan::TablePlan plan = plan::plan_tables({.tables = {{"ads", 1'000'000, 64}}});
  const TableServer server({"127.0.0.1", 0}, token,
                           {.plan = plan,
                            .server = 0,
                            .tables = {{.optimizer = {.rule = RowRule::row_adagrad, .lr = 0.05}}},
                            .consistency = {Consistency::async},
                            .workers = 1});
  const std::vector<at::Tensor> batches(30, at::tensor({7, 999'999, 7}, at::kLong));
  std::vector<double> losses;
  const auto loss_of = [&](const at::Tensor& rows) {
    const at::Tensor loss = rows.square().mean();
    losses.push_back(loss.item<double>());
    return loss;
  };
  const auto tables =
      std::make_shared<TableClient>(std::vector<net::Endpoint>{server.endpoint()}, token,
                                    TableClientOptions{.plan = plan, .worker = 0}, deadline());
  nn::ShardedEmbedding ads(tables, "ads", EmbeddingOptions(1'000'000, 64));
  for (const at::Tensor& indices : batches) {
    loss_of(ads(indices)).backward();
    tables->push(indices.size(0), deadline());
  }
  tables->leave(deadline());  // Nobody waits for this worker any more.
  EXPECT_LT(losses.back(), losses.front() / 2);
}

TEST(ShardedEmbedding, AStepDoesNotBeginBeforeTheBoundAllows) {
  const Servers servers(2, 2, {Consistency::stale, 1}, {}, kTables,
                        [](TableServerOptions& options) { options.patience = Milliseconds(200); });
  const auto fast = servers.client(0), slow = servers.client(1);
  nn::ShardedEmbedding embedding = embedding_of(fast);
  for (int64_t step = 0; step < 2; ++step) {
    loss_of(embedding(indices_of(step)), step).backward();
    fast->push(6, soon());
  }
  EXPECT_THAT(message_of(ErrorCode::timeout, [&] { embedding(indices_of(2)); }),
              AllOf(HasSubstr("worker 0 could not begin its step 2"),
                    HasSubstr("waits for worker 1, which has not pushed its step 0")));
  fast->forget();
  all_rows(fast);  // An evaluation waits for nobody.
  slow->push(0, soon());
  loss_of(embedding(indices_of(2)), 2).backward();
  EXPECT_EQ(fast->push(6, soon()), 3);
}

TEST(ShardedEmbedding, AWorkerWithoutSamplesTakesItsStepsToo) {
  const Servers servers(2, 2, {Consistency::sync});
  std::vector<int64_t> steps(2);
  std::vector<std::jthread> threads;
  for (int w = 0; w < 2; ++w)
    threads.emplace_back([&, w] {
      const auto client = servers.client(w);
      nn::ShardedEmbedding embedding = embedding_of(client);
      for (int64_t step = 0; step < 5; ++step) {
        if (w == 0) loss_of(embedding(indices_of(step)), step).backward();
        steps[static_cast<size_t>(w)] = client->push(w == 0 ? 6 : 0, soon());
      }
      client->leave(soon());
    });
  threads.clear();
  EXPECT_EQ(steps, std::vector<int64_t>(2, 5));
  for (const auto& server : servers.all) EXPECT_EQ(server->facts().updates, 5);
}

TEST(ShardedEmbedding, PullsEachRowOnceAndPushesOneGradientForIt) {
  const Servers servers(1, 1, {Consistency::async}, {.optimizer = {.lr = 1}});
  const auto client = servers.client();
  nn::ShardedEmbedding embedding = embedding_of(client);
  const at::Tensor before = all_rows(client);
  const at::Tensor output = embedding(at::tensor({3, 5, 3, 3}, at::kLong));
  output.sum().backward();
  client->push(1, soon());
  const RowTableFacts facts = servers.all[0]->facts().tables[0];
  EXPECT_EQ(facts.pulled, 2);
  EXPECT_EQ(facts.pushed, 2);
  const at::Tensor moved = before - all_rows(client);
  expect_near(moved[3], at::full({8}, 3.0), 1e-6, "row 3 occurs three times");
  expect_near(moved[5], at::full({8}, 1.0), 1e-6, "row 5 occurs once");
  EXPECT_EQ(moved.abs().sum({1}).count_nonzero().item<int64_t>(), 2);
}

TEST(ShardedEmbedding, AddsUpTheGradientsOfSeveralPassesInAStep) {
  const Servers servers(2, 1, {Consistency::sync}, {.optimizer = {.lr = 1}});
  const auto client = servers.client();
  nn::ShardedEmbedding embedding = embedding_of(client);
  const at::Tensor before = all_rows(client);
  embedding(at::tensor({3, 5}, at::kLong)).sum().backward();
  embedding(at::tensor({5, 6}, at::kLong)).sum().backward();
  client->push(4, soon());
  const at::Tensor moved = (before - all_rows(client)).select(1, 0);
  for (const auto& [row, by] : std::map<int64_t, double>{{3, 1}, {5, 2}, {6, 1}, {7, 0}})
    EXPECT_NEAR(moved[row].item<double>(), by, 1e-6);
}

TEST(ShardedEmbedding, ThePaddingIndexGivesZerosAndGetsNoGradient) {
  const Servers servers(2, 1, {Consistency::async});
  const auto client = servers.client();
  nn::ShardedEmbedding embedding(client, "ads", EmbeddingOptions(40, 8).padding_idx(-1));
  const at::Tensor before = all_rows(client);
  const at::Tensor output = embedding(at::tensor({39, 1, 39, 1}, at::kLong).view({2, 2}));
  EXPECT_EQ(output.sizes().vec(), (std::vector<int64_t>{2, 2, 8}));
  EXPECT_EQ(output.select(1, 0).abs().sum().item<double>(), 0);
  EXPECT_TRUE(at::equal(output[0][1], before[1]));
  output.sum().backward();
  client->push(2, soon());
  EXPECT_TRUE(at::equal(all_rows(client)[39], before[39]));
  EXPECT_FALSE(at::equal(all_rows(client)[1], before[1]));
}

TEST(ShardedEmbedding, AnUnboundedTableTakesAnyNumber) {
  const Servers servers(3, 1, {Consistency::async});
  const auto client = servers.client();
  nn::ShardedEmbedding words = embedding_of(client, "words");
  const at::Tensor hashes =
      at::tensor({std::numeric_limits<int64_t>::min(), int64_t{-1}, int64_t{7}}, at::kLong);
  const at::Tensor before = words(hashes);
  before.sum().backward();
  client->push(1, soon());
  expect_near(before.detach() - words(hashes), at::full({3, 3}, 0.2), 1e-6, "one step of SGD");
  int64_t rows = 0;
  for (const auto& server : servers.all) rows += server->facts().tables[1].rows;
  EXPECT_EQ(rows, 3);
}

TEST(ShardedEmbedding, SeveralEmbeddingsNeedOnePull) {
  const Servers servers(2, 1, {Consistency::async});
  const auto client = servers.client();
  const nn::ShardedEmbedding ads = embedding_of(client), words = embedding_of(client, "words");
  const std::vector<at::Tensor> outputs = nn::forward_together(
      {ads, words}, {at::tensor({3, 4}, at::kLong), at::tensor({9}, at::kLong)});
  EXPECT_EQ(outputs[0].sizes().vec(), (std::vector<int64_t>{2, 8}));
  EXPECT_EQ(outputs[1].sizes().vec(), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(servers.all[0]->facts().pulls, 1);
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { nn::forward_together({ads}, {}); }),
              HasSubstr("1 embeddings together, with 0 tensors"));
}

TEST(ShardedEmbedding, NamesTheRowThatIsOutside) {
  const Servers servers(1, 3, {Consistency::async});
  const auto client = servers.client(2);
  nn::ShardedEmbedding embedding = embedding_of(client);
  for (const int64_t wrong : {int64_t{40}, int64_t{-1}})
    EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                           [&] { embedding(at::tensor({int64_t{1}, wrong}, at::kLong)); }),
                AllOf(HasSubstr(fmt::format("index {} at position 1 of worker 2's batch", wrong)),
                      HasSubstr("table 'ads', which has rows 0 to 39")));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [&] { client->pull({{0, at::tensor({40}, at::kLong)}}, soon()); }),
              AllOf(HasSubstr("row 40 at position 0 of worker 2's rows"), HasSubstr("'ads'")));
}

TEST(ShardedEmbedding, NamesTheRowOfAGradientThatIsNotFinite) {
  const Servers servers(2, 1, {Consistency::async});
  const auto client = servers.client();
  nn::ShardedEmbedding embedding = embedding_of(client);
  const at::Tensor before = all_rows(client);
  const at::Tensor output = embedding(at::tensor({3, 5}, at::kLong));
  (output *
   at::tensor({1.0, std::numeric_limits<double>::quiet_NaN()}).view({2, 1}).to(at::kFloat))
      .sum()
      .backward();
  EXPECT_THAT(message_of(ErrorCode::corrupt, [&] { client->push(2, soon()); }),
              HasSubstr("row 5 of table 'ads'"));
  EXPECT_TRUE(at::equal(before, all_rows(client)));
}

TEST(ShardedEmbedding, ATableOverItsBudgetEndsThePullWithItsName) {
  const Servers servers(1, 1, {Consistency::async}, {.budget_bytes = 4096});
  const auto client = servers.client();
  nn::ShardedEmbedding words = embedding_of(client, "words");
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { words(at::arange(1000, at::kLong)); }),
              AllOf(HasSubstr("table 'words' has 0 rows of 16 bytes, and 1000 more do not fit"),
                    HasSubstr("budget of 4.1 KB"), HasSubstr("evict_unused")));
}

TEST(ShardedEmbedding, RefusesWhatTheServersDoNotHave) {
  const Servers servers(1, 1, {Consistency::async});
  const auto client = servers.client();
  const auto refusal = [&](const std::string& table, const EmbeddingOptions& options) {
    return message_of(ErrorCode::invalid_argument,
                      [&] { nn::ShardedEmbedding(client, table, options); });
  };
  EXPECT_THAT(refusal("adds", EmbeddingOptions(40, 8)),
              AllOf(HasSubstr("no table 'adds'"), HasSubstr("ads [40, 8], words [unbounded, 3]")));
  EXPECT_THAT(refusal("ads", EmbeddingOptions(41, 8)), HasSubstr("EmbeddingOptions(40, 8)"));
  EXPECT_THAT(refusal("ads", EmbeddingOptions(40, 8).padding_idx(40)),
              HasSubstr("padding_idx 40"));
  EXPECT_THAT(
      message_of(
          ErrorCode::unsupported,
          [&] { nn::ShardedEmbedding(client, "ads", EmbeddingOptions(40, 8).max_norm(1)); }),
      HasSubstr("max_norm"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [&] { embedding_of(client)(at::ones({2}, at::kFloat)); }),
              HasSubstr("int64 or int32"));
}

TEST(TableServers, RefuseAWorkerWithOtherTables) {
  const Servers servers(1, 1, {Consistency::async});
  Servers other(1, 1, {Consistency::async}, {}, {{"ads", 40, 8}, {"words", 0, 4}});
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [&] {
                           const TableClient client({servers.all[0]->endpoint()}, servers.token,
                                                    {.plan = other.plan}, soon());
                         }),
              AllOf(HasSubstr("worker 0 has other tables than server 0"), HasSubstr("table 1")));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { servers.client(1); }),
              HasSubstr("worker 1 of a job with 1 workers"));
}

TEST(TableServers, RefuseOptionsThatDoNotFit) {
  EXPECT_THAT(
      message_of(ErrorCode::unsupported, [] { Servers(1, 1, {Consistency::delay_compensated}); }),
      HasSubstr("delay_compensated"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [] { Servers(1, 1, {Consistency::async}, {.evict_unused = -1}); }),
              HasSubstr("evict_unused of table 'ads'"));
}

TEST(TableServers, CountAPushOnceThatIsSentAgain) {
  const Servers servers(1, 1, {Consistency::async}, {.optimizer = {.lr = 1}});
  const auto client = servers.client();
  const at::Tensor before = all_rows(client);
  client->pull({{0, at::tensor({3}, at::kLong)}}, soon());  // The row gets memory.
  net::ChannelOptions channel;
  channel.service = "tables";
  net::RequestClient again(servers.all[0]->endpoint(), servers.token, soon(), channel);
  const int64_t row = 3;
  const std::vector<float> ones(8, 1);
  const servers::TableRequest push{
      .call = servers::TableCall::push, .worker = 0, .clock = 0, .samples = 1, .tables = {0}};
  const net::Message message{encode(push),
                             {{{"", "int64", {1}, sizeof row}, &row},
                              {{"", "float32", {1, 8}, 8 * sizeof(float)}, ones.data()}}};
  for (int i = 0; i < 3; ++i) again.call(message, net::Places{}, soon(), "push");
  const TableServerFacts facts = servers.all[0]->facts();
  EXPECT_EQ(facts.updates, 1);
  EXPECT_EQ(facts.pushes, 3);
  EXPECT_EQ(facts.repeated_pushes, 2);
  expect_near((before - all_rows(client))[3], at::ones({8}), 1e-6, "once");
}

TEST(TableServers, CountWhatTheyDo) {
  const Servers servers(1, 1, {Consistency::async});
  const auto client = servers.client();
  embedding_of(client)(at::tensor({3, 5}, at::kLong)).sum().backward();
  client->push(2, soon());
  const Json json = servers.all[0]->facts().to_json();
  EXPECT_EQ(json["pushes"], 1);
  EXPECT_EQ(json["updates"], 1);
  EXPECT_EQ(json["tables"][0]["rows"], 2);
  EXPECT_GT(json["tables"][0]["bytes"], 0);
}

}  // namespace
}  // namespace trireme::sharded_embedding_test
