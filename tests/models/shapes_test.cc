#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <trireme/base/error.h>
#include <trireme/config/table.h>
#include <trireme/models/family.h>
#include <trireme/models/shapes.h>

namespace trireme::models::shapes_test {
namespace {

using testing::HasSubstr;

int64_t parameters_of(const ModelOptions& options) {
  int64_t total = 0;
  for (const plan::TensorSpec& spec : parameter_shapes(options, default_input(options)))
    total += spec.elements();
  return total;
}

int64_t parameters_of(const std::string& name) {
  return parameters_of(ModelOptions{.name = name});
}

std::string message_of(const ModelOptions& options, const InputSpec& input = {{1, 8, 8}, 10}) {
  try {
    parameter_shapes(options, input);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "no error";
}

TEST(ModelFamilies, HaveEveryKeyOfTheTableAndNoOthers) {
  const config::Table& table = config::table_of<ModelOptions>();
  for (const config::Row& row : table.rows())
    EXPECT_NE(row.name == "model.name", !names_with_key(row.name).empty()) << row.name;
  for (const Family& family : families())
    for (const auto* keys : {&family.keys, &family.preset_keys})
      for (const std::string_view key : *keys) EXPECT_NE(table.find(key), nullptr) << key;
}

TEST(ModelShapes, CountTheParametersOfTheSuite) {
  EXPECT_EQ(parameters_of("tiny"), 266'890);
  EXPECT_EQ(parameters_of("mlp"), 2'913'290);
  EXPECT_EQ(parameters_of("mlpbig"), 25'214'986);
  EXPECT_EQ(parameters_of("chain"), 8'407'050);
  EXPECT_EQ(parameters_of("cnn"), 576'170);
  EXPECT_EQ(parameters_of("gpt"), 8'966'144);
  // The counts of torchvision.
  EXPECT_EQ(parameters_of("resnet18"), 11'689'512);
  EXPECT_EQ(parameters_of("resnet34"), 21'797'672);
  EXPECT_EQ(parameters_of("resnet50"), 25'557'032);
  EXPECT_EQ(parameters_of("resnet101"), 44'549'160);
  EXPECT_EQ(parameters_of("resnet152"), 60'192'808);
}

// The counts of the weights that OpenAI published. The paper's table 2 has 117 M to 1,542 M, which
// the authors later corrected.
TEST(ModelShapes, CountTheParametersOfGpt2) {
  EXPECT_EQ(parameters_of("gptdeep"), 12'931'584);
  EXPECT_EQ(parameters_of("gpt2"), 124'439'808);
  EXPECT_EQ(parameters_of("gpt2-medium"), 354'823'168);
  EXPECT_EQ(parameters_of("gpt2-large"), 774'030'080);
  EXPECT_EQ(parameters_of("gpt2-xl"), 1'557'611'200);
}

// The counts differ from GPipe's table 1 by up to 0.7 percent (1.8 B has two digits only). They
// are those that torchgpipe's benchmark gives for its reproduction of the table: 81.5 M, 319.0 M,
// 542.7 M, 1.06 B and 1.84 B.
TEST(ModelShapes, CountTheParametersOfAmoebanetAsTheGpipePaperDoes) {
  struct Entry {
    int64_t layers, width, parameters;
    double paper, paper_digit;
  };
  for (const Entry& entry : {Entry{18, 208, 81'505'540, 82e6, 0},
                             {18, 416, 319'024'120, 318e6, 0},
                             {18, 544, 542'734'840, 542e6, 0},
                             {36, 544, 1'055'832'376, 1.05e9, 0},
                             {72, 512, 1'844'858'344, 1.8e9, 0.05e9}}) {
    const int64_t count = parameters_of(
        ModelOptions{.name = "amoebanet", .layers = entry.layers, .width = entry.width});
    EXPECT_EQ(count, entry.parameters);
    EXPECT_NEAR(static_cast<double>(count), entry.paper, 0.007 * entry.paper + entry.paper_digit);
  }
  EXPECT_EQ(parameters_of("amoebanet"), 122'470'120);  // (18, 256)
}

TEST(ModelShapes, GiveTheParametersOfEachBlock) {
  const ModelOptions options{.name = "gpt",
                             .layers = 1,
                             .width = 4,
                             .heads = 2,
                             .vocabulary = 10,
                             .context = 3,
                             .tied = 1};
  const auto blocks = block_sizes(options, {{3}, 10});
  ASSERT_EQ(blocks.size(), 3U);
  EXPECT_EQ(blocks[0].name, "embedding");
  EXPECT_EQ(blocks[0].elements, 10 * 4 + 3 * 4);
  EXPECT_EQ(blocks[1].elements, 12 * 4 * 4 + 13 * 4);
  // The tied tensor is in two blocks, but once among the parameters.
  EXPECT_THAT(blocks[2].parameters, testing::ElementsAre("final_norm.weight", "final_norm.bias",
                                                         "token_embedding.weight"));
  EXPECT_EQ(blocks[2].elements, 4 + 4 + 10 * 4);
  EXPECT_EQ(parameters_of(options), blocks[0].elements + blocks[1].elements + 8);
}

TEST(ModelShapes, NameTheParametersOfAResnetAsTorchvisionDoes) {
  const auto names_of = [](const std::string& name) {
    std::vector<std::string> names;
    for (const auto& spec : parameter_shapes({.name = name}, {{3, 224, 224}, 1000}))
      names.push_back(spec.name);
    return names;
  };
  const auto small = names_of("resnet18"), large = names_of("resnet50");
  EXPECT_EQ(small.size(), 62u);
  EXPECT_EQ(large.size(), 161u);
  EXPECT_THAT(
      std::vector(small.begin(), small.begin() + 9),
      testing::ElementsAre("conv1.weight", "bn1.weight", "bn1.bias", "layer1.0.conv1.weight",
                           "layer1.0.bn1.weight", "layer1.0.bn1.bias", "layer1.0.conv2.weight",
                           "layer1.0.bn2.weight", "layer1.0.bn2.bias"));
  EXPECT_THAT(small,
              testing::IsSupersetOf({"layer2.0.downsample.0.weight", "layer4.0.downsample.1.bias",
                                     "fc.weight", "fc.bias"}));
  EXPECT_THAT(small, testing::Not(testing::Contains("layer1.0.downsample.0.weight")));
  EXPECT_THAT(large, testing::IsSupersetOf({"layer1.0.downsample.0.weight",
                                            "layer3.5.conv3.weight", "layer4.2.bn3.bias"}));
}

TEST(ModelShapes, KnowTheBatchPerRankOfTheSuite) {
  EXPECT_EQ(default_batch({.name = "tiny"}), 32);
  EXPECT_EQ(default_batch({.name = "mlp"}), 128);
  EXPECT_EQ(default_batch({.name = "mlpbig"}), 64);
  EXPECT_EQ(default_batch({.name = "chain"}), 128);
  EXPECT_EQ(default_batch({.name = "cnn"}), 32);
  EXPECT_EQ(default_batch({.name = "gpt"}), 8);
  EXPECT_EQ(default_batch({.name = "resnet50"}), 8);
}

TEST(ModelShapes, NameTensorsAsAPythonSequentialDoes) {
  const auto specs =
      parameter_shapes({.name = "mlp", .hidden = {32, 16}, .dropout = 0.5}, {{1, 8, 8}, 10});
  std::vector<std::string> names;
  for (const auto& spec : specs) names.push_back(spec.name);
  EXPECT_THAT(names, testing::ElementsAre("0.weight", "0.bias", "2.weight", "2.bias", "5.weight",
                                          "5.bias"));
  EXPECT_EQ(specs[0].shape, (std::vector<int64_t>{32, 64}));
}

TEST(ModelShapes, GiveConvolutionsABiasOnlyWithoutBatchNorm) {
  const auto with = parameter_shapes({.name = "cnn", .channels = {4}}, {{1, 8, 8}, 10});
  const auto without =
      parameter_shapes({.name = "cnn", .channels = {4}, .batch_norm = 0}, {{1, 8, 8}, 10});
  EXPECT_EQ(with[1].name, "features.1.weight");
  EXPECT_EQ(without[1].name, "features.0.bias");
}

TEST(ModelShapes, HaveTheRequestedDtype) {
  const auto specs = parameter_shapes({.name = "mlp"}, {{4}, 2}, plan::DType::float64);
  EXPECT_EQ(specs[0].dtype, plan::DType::float64);
}

TEST(ModelOptionsResolution, ChangesNothingTheSecondTime) {
  for (const std::string name : {"mlp", "cnn", "gpt", "resnet18", "resnet50", "amoebanet", "tiny",
                                 "mlpbig", "chain", "gpt2"}) {
    const ModelOptions once = resolve({.name = name}), twice = resolve(once);
    EXPECT_EQ(once.hidden, twice.hidden) << name;
    EXPECT_EQ(once.channels, twice.channels) << name;
    EXPECT_EQ(once.strides, twice.strides) << name;
    EXPECT_EQ(once.batch_norm, twice.batch_norm) << name;
    EXPECT_EQ(once.context, twice.context) << name;
    EXPECT_EQ(once.layers, twice.layers) << name;
    EXPECT_EQ(once.tied, twice.tied) << name;
  }
}

TEST(ModelOptionsResolution, GivesChannelsWithoutStridesAStrideOfOne) {
  EXPECT_EQ(resolve({.name = "cnn", .channels = {8, 16}}).strides, (std::vector<int64_t>{1, 1}));
}

TEST(ModelOptionsResolution, NamesTheNearestModel) {
  EXPECT_THAT(message_of({.name = "cmn"}), AllOf(HasSubstr("\"cmn\""), HasSubstr("try: cnn")));
}

TEST(ModelOptionsResolution, RefusesOptionsOfAnotherModel) {
  EXPECT_THAT(message_of({.name = "mlp", .channels = {4}}),
              HasSubstr("model.channels is an option of cnn, but model.name is mlp"));
  EXPECT_THAT(message_of({.name = "cnn", .hidden = {4}}),
              HasSubstr("model.hidden is an option of mlp"));
  EXPECT_THAT(message_of({.name = "cnn", .width = 4}),
              HasSubstr("model.width is an option of gpt"));
  EXPECT_THAT(message_of({.name = "gpt", .dropout = 0.1}),
              HasSubstr("model.dropout is an option of mlp and cnn"));
  EXPECT_THAT(message_of({.name = "resnet50", .dropout = 0.1}),
              HasSubstr("model.dropout is an option of mlp and cnn"));
  EXPECT_THAT(message_of({.name = "cnn", .zero_init = 1}),
              HasSubstr("model.zero_init is an option of resnet18 and resnet34 and resnet50"));
  EXPECT_THAT(message_of({.name = "amoebanet", .tied = 1}),
              HasSubstr("model.tied is an option of gpt"));
  EXPECT_THAT(message_of({.name = "tiny", .hidden = {4}}), HasSubstr("preset tiny"));
  EXPECT_THAT(message_of({.name = "gpt2", .layers = 6}, {{8}, 10}),
              AllOf(HasSubstr("model.layers is 6, but the preset gpt2 has 12"),
                    HasSubstr("model.name=gpt")));
  EXPECT_THAT(message_of({.name = "gpt2", .tied = 0}, {{8}, 10}), HasSubstr("preset gpt2"));
}

TEST(ModelOptionsResolution, TakesANegativeNumberAsNotGiven) {
  EXPECT_NO_THROW(resolve({.name = "mlp", .batch_norm = -2, .layers = -3}));
}

TEST(ModelOptionsResolution, RefusesValuesOutOfRange) {
  EXPECT_THAT(message_of({.name = "cnn", .channels = {8, 0}}),
              HasSubstr("model.channels is [8, 0]"));
  EXPECT_THAT(message_of({.name = "cnn", .channels = {8, 8}, .strides = {1}}),
              HasSubstr("model.strides has 1 entries"));
  EXPECT_THAT(message_of({.name = "mlp", .dropout = 1}), HasSubstr("model.dropout is 1"));
  EXPECT_THAT(message_of({.name = "gpt", .width = 100, .heads = 8}),
              AllOf(HasSubstr("model.width is 100"), HasSubstr("model.width=104")));
  EXPECT_THAT(message_of({.name = "amoebanet", .layers = 4}),
              AllOf(HasSubstr("model.layers is 4"), HasSubstr("model.layers=6")));
  EXPECT_THAT(message_of({.name = "amoebanet", .width = 20}),
              AllOf(HasSubstr("model.width is 20"), HasSubstr("model.width=24")));
  EXPECT_THAT(message_of({.name = "amoebanet", .width = 0}), HasSubstr("at least 1"));
}

TEST(ModelOptionsResolution, RefusesInputThatDoesNotFit) {
  EXPECT_THAT(message_of({.name = "cnn"}, {{64}, 10}),
              AllOf(HasSubstr("[64]"), HasSubstr("[channels, height, width]")));
  EXPECT_THAT(message_of({.name = "gpt"}, {{1, 8, 8}, 10}), HasSubstr("a row of tokens"));
  EXPECT_THAT(message_of({.name = "resnet18"}, {{64}, 10}),
              HasSubstr("[channels, height, width]"));
  EXPECT_THAT(message_of({.name = "gpt"}, {{129}, 10}), HasSubstr("model.context=129"));
  EXPECT_THAT(message_of({.name = "gpt2"}, {{1025}, 10}), HasSubstr("data.block=1024"));
  EXPECT_THAT(message_of({.name = "amoebanet"}, {{64}, 10}),
              HasSubstr("[channels, height, width]"));
  EXPECT_THAT(message_of({.name = "gpt", .vocabulary = 50}, {{64}, 65}),
              testing::AllOf(HasSubstr("model.vocabulary is 50"), HasSubstr("65 different tokens"),
                             HasSubstr("model.vocabulary=65")));
  EXPECT_THAT(message_of({.name = "mlp"}, {{4}, 0}), HasSubstr("data.classes is 0"));
}

}  // namespace
}  // namespace trireme::models::shapes_test
