// The models whose layers a tensor axis divides, trained by its ranks and by one device.
#include "../parallel/divided_layers.h"
#include "cases.h"

#include <trireme/models/build.h>
#include <trireme/parallel/module_state.h>
#include <trireme/tensor/replica_random.h>

namespace trireme::models::tensor_parallel_test {
namespace {

using tests::Assembly;

Case gpt() {
  return {{.name = "gpt", .layers = 2, .width = 32, .heads = 4, .vocabulary = 51, .context = 16},
          {{16}, 51}};
}
Case tied_gpt() {
  Case c = gpt();
  c.options.tied = 1;
  return c;
}
// The last layer divides columns, rows, rows.
std::vector<Case> mlps() {
  return {{{.name = "mlp", .hidden = {16, 9}}, {{6}, 10}},
          {{.name = "mlp", .hidden = {8, 8, 11}}, {{6}, 7}},
          {{.name = "mlp", .hidden = {5}}, {{6}, 10}}};
}

Batch batch_of(const Case& c, int64_t step) {
  const auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(40 + step));
  std::vector<int64_t> shape = c.input.shape;
  shape.insert(shape.begin(), 4);
  Batch batch;
  const bool is_gpt = c.options.name == "gpt";
  batch.data = is_gpt ? at::randint(c.input.classes, shape, generator, at::kLong)
                      : at::randn(shape, generator, at::kDouble);
  batch.target = at::randint(c.input.classes, {is_gpt ? 4 * shape[1] : 4}, generator, at::kLong);
  return batch;
}

Model model_of(const Case& c, at::ScalarType type) {
  Model model = make_factory(c.options, c.input)();
  model.module->to(type);
  tests::fill(*model.module);
  return model;
}

struct Trained {
  std::vector<double> losses;
  tests::NamedTensors parameters;
};

// Trains as an engine does. `add_up` completes the gradients.
template <typename AddUp>
std::vector<double> train(const Model& model, const Case& c, at::ScalarType type, bool in_blocks,
                          AddUp add_up) {
  torch::optim::SGD optimizer(model.module->parameters(),
                              torch::optim::SGDOptions(0.1).momentum(0.9));
  std::vector<double> losses;
  for (int64_t step = 0; step < 5; ++step) {
    Batch batch = batch_of(c, step);
    if (batch.data.is_floating_point()) batch.data = batch.data.to(type);
    optimizer.zero_grad();
    const at::Tensor output =
        in_blocks ? output_of(model.blocks, {batch.data}) : output_of(model, batch);
    const at::Tensor loss = at::cross_entropy_loss(output, batch.target);
    loss.backward();
    add_up();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

Trained train_whole(const Case& c, at::ScalarType type) {
  const Model model = model_of(c, type);
  Trained trained{train(model, c, type, false, [] {}), {}};
  for (const auto& [name, tensor] : state_of(*model.module).parameters)
    trained.parameters[name] = tensor.detach();
  return trained;
}

void expect_parity(const Case& c, int size, at::ScalarType type, double tolerance,
                   bool in_blocks = false) {
  const std::string where = fmt::format("{} on {} ranks", c.options.name, size);
  const Trained expected = train_whole(c, type);
  Assembly assembly;
  tests::on_ranks(tests::thread_groups(size), [&](Group& group) {
    const Model model = model_of(c, type);
    const auto all = nn::divide_layers(*model.module, tests::shared(group));
    const auto parameters = model.module->named_parameters();
    const auto losses = train(model, c, type, in_blocks, [&] {
      for (const nn::ParameterParts& each : all)
        if (each.sums_gradients) group.all_reduce(parameters[each.name].grad());
    });
    for (size_t i = 0; i < losses.size(); ++i)
      EXPECT_NEAR(losses[i], expected.losses[i], tolerance) << where << " step " << i + 1;
    for (const nn::ParameterParts& each : all) assembly.add(each, parameters[each.name].detach());
  });
  tests::expect_close(assembly.whole(), expected.parameters, tolerance, where);
}

TEST(TensorParallel, TrainsAGptAsOneDeviceDoes) {
  for (const int size : {2, 4}) {
    expect_parity(gpt(), size, at::kDouble, 1e-9);
    expect_parity(gpt(), size, at::kFloat, 1e-4);
  }
}

TEST(TensorParallel, TrainsAGptWithTiedWeights) {
  for (const int size : {2, 4}) expect_parity(tied_gpt(), size, at::kDouble, 1e-9);
}

TEST(TensorParallel, TrainsAGptInBlocks) { expect_parity(gpt(), 2, at::kDouble, 1e-9, true); }

TEST(TensorParallel, TrainsAnMlpAsOneDeviceDoes) {
  for (const Case& c : mlps())
    for (const int size : {2, 4}) expect_parity(c, size, at::kDouble, 1e-9);
}

TEST(TensorParallel, GivesEachRankItsFractionOfAGpt) {
  const Model whole = model_of(gpt(), at::kFloat);
  const auto count = [](const torch::nn::Module& module) {
    int64_t elements = 0;
    for (const at::Tensor& tensor : module.parameters()) elements += tensor.numel();
    return elements;
  };
  tests::on_ranks(tests::thread_groups(4), [&](Group& group) {
    const Model model = model_of(gpt(), at::kFloat);
    nn::divide_layers(*model.module, tests::shared(group));
    // Positions, norms and the bias of rows are on every rank.
    EXPECT_LE(count(*model.module), count(*whole.module) / 4 + 16 * 32 + 2 * 6 * 32 + 5 * 32);
  });
}

TEST(TensorParallel, NamesHeadsThatDoNotDivide) {
  for (const auto& ending : tests::endings_of(tests::thread_groups(3), [&](Group& group) {
         const Model model = model_of(gpt(), at::kFloat);
         nn::divide_layers(*model.module, tests::shared(group));
       })) {
    EXPECT_EQ(ending.code, ErrorCode::invalid_argument);
    for (const char* word : {"model.heads", "blocks.0.qkv", "4 heads", "3 ranks"})
      EXPECT_NE(ending.what.find(word), std::string::npos) << ending.what;
  }
}

TEST(TensorParallel, IsRefusedForModelsOfOtherLayers) {
  for (const char* name : {"cnn", "resnet18"}) {
    const ModelOptions options{.name = name};
    const Model model = make_factory(options, default_input(options))();
    EXPECT_THROW(nn::require_layers_to_divide(*model.module, name), Error) << name;
  }
  for (const Case& c : {gpt(), mlps().front()})
    EXPECT_NO_THROW(nn::require_layers_to_divide(*model_of(c, at::kFloat).module, c.options.name));
}

// Two ranks drop different elements of their parts, and the same ones of what both have.
TEST(TensorParallel, DropsOutTheSameOnRanksThatHaveTheSame) {
  const Case c{{.name = "mlp", .hidden = {64}, .dropout = 0.5}, {{6}, 4}};
  std::vector<at::Tensor> outputs(2);
  tests::on_ranks(tests::thread_groups(2), [&](Group& group) {
    const Model model = model_of(c, at::kDouble);
    nn::divide_layers(*model.module, tests::shared(group));
    const ReplicaRandom random(3);
    outputs[static_cast<size_t>(group.rank())] = output_of(model, batch_of(c, 0));
    EXPECT_GT(tests::difference(outputs[static_cast<size_t>(group.rank())],
                                output_of(model, batch_of(c, 0))),
              0);
  });
  EXPECT_TRUE(at::equal(outputs[0], outputs[1]));
}

}  // namespace
}  // namespace trireme::models::tensor_parallel_test
