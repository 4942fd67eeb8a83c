// The model of clicks, with its embeddings in the model and on table servers.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/optim/adagrad.h>

#include <trireme/base/error.h>
#include <trireme/models/build.h>
#include <trireme/models/dlrm.h>
#include <trireme/net/control.h>
#include <trireme/parallel/servers/tables/table_client.h>
#include <trireme/parallel/servers/tables/table_server.h>
#include <map>

#include "../base/expect_error.h"

namespace trireme::models::dlrm_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const ModelOptions kSmall{
    .name = "dlrm", .bottom = {6}, .top = {16, 8}, .rows = 97, .embedding_dim = 8};
const InputSpec kInput{{3}, 2, 5};

Batch batch_of(int64_t samples, uint64_t seed) {
  auto generator = at::detail::createCPUGenerator(seed);
  Batch batch;
  batch.data = at::rand({samples, 3}, generator);
  batch.more["categories"] = at::randint(6, {samples, 5}, generator, at::TensorOptions(at::kLong));
  // Clicked if two categories meet in one of some ways, which no category decides alone.
  const at::Tensor meet =
      batch.more["categories"].select(1, 0) + batch.more["categories"].select(1, 1);
  batch.target = meet.remainder(2).to(at::kLong);
  batch.indices.resize(static_cast<size_t>(samples));
  return batch;
}

TEST(Dlrm, HasAsManyParametersAsItsFormulaSays) {
  const auto linear = [](int64_t in, int64_t out) { return in * out + out; };
  const auto count = [](const ModelOptions& options, const InputSpec& input) {
    int64_t sum = 0;
    for (const plan::TensorSpec& spec : parameter_shapes(options, input)) sum += spec.elements();
    return sum;
  };
  // 5 tables; 3 -> 6 -> 8; 6 vectors have 15 pairs: 8 + 15 -> 16 -> 8 -> 2.
  EXPECT_EQ(count(kSmall, kInput), 5 * 97 * 8 + linear(3, 6) + linear(6, 8) + linear(23, 16) +
                                       linear(16, 8) + linear(8, 2));
  EXPECT_EQ(count({.name = "dlrm"}, default_input({.name = "dlrm"})),
            26 * 10'000 * 16 + linear(13, 512) + linear(512, 256) + linear(256, 64) +
                linear(64, 16) + linear(16 + 27 * 26 / 2, 512) + linear(512, 256) +
                linear(256, 2));
}

// The same by loops over pairs, from the parameters by their names.
TEST(Dlrm, ComputesThePairsOfAllVectors) {
  const Model model = make_factory(kSmall, kInput)();
  const Batch batch = batch_of(7, 1);
  std::map<std::string, at::Tensor> p;
  for (const auto& item : model.module->named_parameters()) p[item.key()] = item.value();
  const auto layer = [&](const std::string& name, const at::Tensor& x) {
    return at::linear(x, p.at(name + ".weight"), p.at(name + ".bias"));
  };
  std::vector<at::Tensor> vectors{layer("bottom.1", layer("bottom.0", batch.data).relu()).relu()};
  const at::Tensor rows = rows_of_categories(batch.tensor("categories"), 97);
  for (int64_t i = 0; i < 5; ++i)
    vectors.push_back(
        p.at("embeddings." + std::to_string(i) + ".weight").index_select(0, rows.select(1, i)));
  std::vector<at::Tensor> features{vectors[0]};
  for (size_t i = 0; i < vectors.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      features.push_back((vectors[i] * vectors[j]).sum(1, /*keepdim=*/true));
  at::Tensor x = at::cat(features, 1);
  x = layer("top.2", layer("top.1", layer("top.0", x).relu()).relu());
  EXPECT_TRUE(at::allclose(output_of(model, batch), x, 1e-5, 1e-6));
}

TEST(Dlrm, ItsBlocksComputeWhatItComputes) {
  const Model model = make_factory(kSmall, kInput)();
  check(model);
  const Batch batch = batch_of(5, 2);
  EXPECT_TRUE(at::equal(output_of(model, batch),
                        output_of(model.blocks, {batch.data, batch.tensor("categories")})));
  const std::vector<BlockSize> sizes = block_sizes(kSmall, kInput);
  ASSERT_EQ(sizes.size(), model.blocks.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    int64_t elements = 0;
    for (const auto& module : model.blocks[i].modules)
      for (const at::Tensor& parameter : module->parameters()) elements += parameter.numel();
    EXPECT_EQ(sizes[i].name, model.blocks[i].name);
    EXPECT_EQ(sizes[i].elements, elements) << sizes[i].name;
  }
}

TEST(Dlrm, ItsGradientsAreThoseOfDifferences) {
  const Model model = make_factory(kSmall, kInput)();
  model.module->to(at::kDouble);
  Batch batch = batch_of(6, 3);
  batch.data = batch.data.to(at::kDouble);
  const auto loss = [&] { return at::cross_entropy_loss(output_of(model, batch), batch.target); };
  {
    // Larger embeddings, so that the pairs matter.
    const at::NoGradGuard no_grad;
    for (const auto& item : model.module->named_parameters())
      if (item.key().starts_with("embeddings")) item.value().mul_(5);
  }
  loss().backward();
  const at::NoGradGuard no_grad;
  for (const auto& item : model.module->named_parameters()) {
    const at::Tensor flat = item.value().view({-1}), gradient = item.value().grad().view({-1});
    const int64_t largest = gradient.abs().argmax().item<int64_t>();
    const double before = flat[largest].item<double>();
    flat[largest] = before + 1e-5;
    const double above = loss().item<double>();
    flat[largest] = before - 1e-5;
    const double below = loss().item<double>();
    flat[largest] = before;
    EXPECT_NEAR(gradient[largest].item<double>(), (above - below) / 2e-5, 1e-6) << item.key();
  }
}

double accuracy_after(const Model& model, torch::optim::Optimizer& optimizer,
                      const std::function<void(int64_t)>& push) {
  for (int step = 0; step < 400; ++step) {
    const Batch batch = batch_of(64, 100 + static_cast<uint64_t>(step));
    optimizer.zero_grad();
    at::cross_entropy_loss(output_of(model, batch), batch.target).backward();
    optimizer.step();
    push(64);
  }
  model.module->eval();
  const at::NoGradGuard no_grad;
  const Batch test = batch_of(1000, 7);
  return output_of(model, test).argmax(1).eq(test.target).to(at::kDouble).mean().item<double>();
}

TEST(Dlrm, LearnsFromPairsOfCategories) {
  at::manual_seed(1);
  const Model model = make_factory(kSmall, kInput)();
  torch::optim::Adagrad optimizer(model.module->parameters(), torch::optim::AdagradOptions(0.05));
  EXPECT_GT(accuracy_after(model, optimizer, [](int64_t) {}), 0.9);  // By chance: 0.5.
}

TEST(Dlrm, LearnsWithItsTablesOnServers) {
  const ModelOptions options = resolve(kSmall);
  for (const bool unbounded : {false, true}) {
    const plan::TablePlan plan =
        plan::plan_tables({.tables = tables_of_dlrm(options, kInput, unbounded), .servers = 2});
    const std::string token = net::make_token();
    std::vector<std::unique_ptr<TableServer>> servers;
    std::vector<net::Endpoint> endpoints;
    for (int i = 0; i < 2; ++i) {
      servers.push_back(std::make_unique<TableServer>(
          net::Endpoint{"127.0.0.1", 0}, token,
          TableServerOptions{.plan = plan,
                             .server = i,
                             .tables = {{.optimizer = {.rule = RowRule::adagrad, .lr = 0.05},
                                         .init = {RowStart::uniform, 0.1, 1}}},
                             .consistency = {plan::Consistency::sync}}));
      endpoints.push_back(servers.back()->endpoint());
    }
    const auto soon = [] { return Deadline::after(Milliseconds(20000)); };
    const auto client =
        std::make_shared<TableClient>(endpoints, token, TableClientOptions{.plan = plan}, soon());
    at::manual_seed(1);
    const Model model = make_dlrm(options, kInput, client);
    for (const auto& item : model.module->named_parameters())
      EXPECT_THAT(item.key(), testing::Not(HasSubstr("embeddings")));
    torch::optim::Adagrad optimizer(model.module->parameters(),
                                    torch::optim::AdagradOptions(0.05));
    EXPECT_GT(
        accuracy_after(model, optimizer, [&](int64_t samples) { client->push(samples, soon()); }),
        0.9);
    int64_t rows = 0;
    for (const auto& server : servers)
      for (const RowTableFacts& table : server->facts().tables) rows += table.rows;
    EXPECT_LE(rows, 5 * 6);  // Six categories of each feature; two may meet in a bounded table.
  }
}

TEST(Dlrm, HashesEachFeatureByItself) {
  const at::Tensor rows = rows_of_categories(at::full({2, 5}, 9, at::kLong), 1000);
  EXPECT_TRUE(at::equal(rows[0], rows[1]));
  EXPECT_NE(rows[0][0].item<int64_t>(), rows[0][1].item<int64_t>());
  EXPECT_GE(rows.min().item<int64_t>(), 0);
  EXPECT_LT(rows.max().item<int64_t>(), 1000);
}

TEST(Dlrm, RefusesInputsAndOptionsThatDoNotFit) {
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { make_factory(kSmall, {{3}, 2}); }),
              AllOf(HasSubstr("categorical features"), HasSubstr("data.name=criteo")));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [] { resolve({.name = "dlrm", .embedding_dim = 0}); }),
              HasSubstr("model.embedding_dim is 0"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { resolve({.name = "mlp", .rows = 3}); }),
              HasSubstr("model.rows is an option of dlrm"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [] { rows_of_categories(at::zeros({3}, at::kLong), 4); }),
              HasSubstr("int64 [batch, features]"));
}

}  // namespace
}  // namespace trireme::models::dlrm_test
