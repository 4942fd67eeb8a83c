// State in files where each rank has a part of the model: the bits of a run without files.
#include "layouts.h"
#include "lost_parts.h"

#include <torch/optim/sgd.h>
// This header must come after those of torch.
#include <gmock/gmock.h>

#include "../base/expect_error.h"
#include "../checkpoint/file_size_limit.h"

namespace trireme::offloaded_parts_test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using tests::Chain;
using tests::clouds;
using tests::Divided;
using tests::Folder;
using tests::Layout;
using tests::options_of;
using tests::Tied;

const std::vector<std::string> kWhat = {"optimizer", "parameters"};

Job chain(const OptimizerFactory& optimizer = Adam{.lr = 0.01}) {
  return tests::job<Chain>(optimizer);
}

class OffloadedParts : public ::testing::Test {
 protected:
  TrainerOptions in_files(TrainerOptions options, const std::string& what) const {
    options.memory.offload = what;
    options.memory.swap_dir = folder_.path();
    return options;
  }
  static Report run(const TrainerOptions& options, const Job& job = chain()) {
    return tests::fit(options, job, clouds(90), clouds(31, 2));
  }
  static void expect_bits(const Report& report, const Report& reference, const std::string& what) {
    EXPECT_EQ(report.loss_history, reference.loss_history) << what;
    EXPECT_EQ(report.parameters_sha256, reference.parameters_sha256) << what;
    ASSERT_TRUE(report.eval) << what;
    EXPECT_EQ(report.eval->loss, reference.eval->loss) << what;
  }
  void expect_same_bits(const TrainerOptions& options, const Job& job,
                        const std::string& name) const {
    const Report plain = run(options, job);
    for (const std::string& what : kWhat)
      expect_bits(run(in_files(options, what), job), plain, name + ", " + what);
  }
  bool is_empty() const { return std::filesystem::is_empty(folder_.path()); }

  Folder folder_;
};

// In two micro-batches, and with the norm of all gradients.
TEST_F(OffloadedParts, GiveTheSameBitsInEachLayout) {
  for (const Layout& layout :
       {Layout{2, 0, 2}, Layout{2, 0, 2, 1, "zbh1"}, Layout{4, 0, 2, 1, "gpipe"},
        Layout{3, 0, 3, 1, "interleaved"}, Layout{2, 1}, Layout{3, 2}, Layout{3, 3},
        Layout{4, 1, 2}, Layout{4, 2, 2, 1, "zbh2"}, Layout{4, 3, 2}}) {
    TrainerOptions options = options_of(layout);
    options.clip_norm = 0.05;
    options.accumulate = 2;
    if (layout.schedule == "interleaved") options.division.pipeline.chunks = 2;
    expect_same_bits(options, chain(), layout.describe());
  }
  EXPECT_TRUE(is_empty());
}

TEST_F(OffloadedParts, GiveTheSameBitsWithDividedLayers) {
  const Job job = tests::job<Divided>(Adam{.lr = 0.01});
  for (const Layout& layout :
       {Layout{2, 0, 1, 2}, Layout{4, 0, 2, 2}, Layout{4, 1, 1, 2}, Layout{4, 3, 1, 2}})
    expect_same_bits(options_of(layout), job, layout.describe());
}

TEST_F(OffloadedParts, GiveTheSameBitsWithWeightsTiedOverStages) {
  for (const Layout& layout : {Layout{2, 0, 2}, Layout{4, 1, 2}, Layout{4, 3, 2}})
    expect_same_bits(options_of(layout), tests::job<Tied>(Adam{.lr = 0.01}), layout.describe());
}

TEST_F(OffloadedParts, GiveTheSameBitsWithEachOptimizer) {
  const std::vector<std::pair<std::string, OptimizerFactory>> optimizers = {
      {"SGD", SGD{.lr = 0.1, .momentum = 0.9}},
      {"AdamW", AdamW{.lr = 0.01, .amsgrad = true}},
      {"RMSprop", RMSprop{.lr = 0.01, .momentum = 0.5, .centered = true}},
      {"Adagrad", Adagrad{}},
      {"Lars", Lars{}},
      {"Lamb", Lamb{.lr = 0.01}}};
  for (const auto& [name, optimizer] : optimizers)
    for (const Layout& layout : {Layout{2, 0, 2}, Layout{3, 1}, Layout{3, 3}})
      expect_same_bits(options_of(layout), chain(optimizer), name + " on " + layout.describe());
}

TEST_F(OffloadedParts, GiveTheSameBitsWithMasters) {
  for (const Layout& layout : {Layout{2, 0, 2}, Layout{2, 1}, Layout{2, 2}, Layout{2, 3}}) {
    TrainerOptions options = options_of(layout);
    options.dtype = plan::DType::bfloat16;
    options.ema_decay = 0.8;
    expect_same_bits(options, chain(), layout.describe());
  }
}

TEST_F(OffloadedParts, LoadTheCheckpointsOfAnyOther) {
  const Report whole = run(options_of({}));
  for (const Layout& first : {Layout{}, Layout{2, 0, 2}, Layout{3, 1}, Layout{3, 3}})
    for (const Layout& second : {Layout{}, Layout{4, 2, 2}, Layout{2, 3}})
      for (const bool comes_from_files : {true, false}) {
        const Folder checkpoints;
        TrainerOptions options = options_of(first);
        options.checkpoint.dir = checkpoints.path();
        options.epochs = 1;
        run(comes_from_files ? in_files(options, "parameters") : options);
        options = options_of(second);
        options.checkpoint.dir = checkpoints.path();
        const Report report =
            run(in_files(options, comes_from_files ? "optimizer" : "parameters"));
        EXPECT_GT(report.resumed_from_step, 0);
        EXPECT_LT(tests::difference(report.loss_history, whole.loss_history), 1e-10)
            << first.describe() << ", then " << second.describe();
      }
}

// Half a run with files and half of it without them are a run without them.
TEST_F(OffloadedParts, ContinueInTheSameLayoutWithTheSameBits) {
  for (const Layout& layout : {Layout{2, 0, 2}, Layout{3, 2}, Layout{3, 3}})
    for (const bool files_come_first : {true, false}) {
      const Folder checkpoints;
      const TrainerOptions plain = options_of(layout);
      TrainerOptions first = files_come_first ? in_files(plain, "parameters") : plain,
                     second = files_come_first ? plain : in_files(plain, "parameters");
      first.checkpoint.dir = second.checkpoint.dir = checkpoints.path();
      first.epochs = 1;
      run(first);
      expect_bits(run(second), run(plain), layout.describe());
    }
}

// Memory that a plan of the activations saves comes on top.
TEST_F(OffloadedParts, ComposeWithRecomputationAndSwapping) {
  for (const std::string policy : {"recompute", "swap"}) {
    TrainerOptions options = options_of({2, 0, 2, 1, "gpipe"});
    const Report plain = run(options);
    options = in_files(options, "parameters");
    options.memory.policy = policy;
    expect_bits(run(options), plain, policy);
  }
}

TEST_F(OffloadedParts, SurviveTheLossOfAStageInMemory) {
  for (const int rank : {0, 3}) {
    TrainerOptions options = tests::options();
    options.strategy = "pipeline";
    options.division.mesh.pipeline = 2;
    options.division.pipeline.microbatches = 2;
    const Report reference = tests::fit(tests::options(), tests::parted_job(), clouds(90));
    for (const int replacements : {0, 1}) {
      const tests::PartedResult result = tests::train_parted(
          in_files(options, "parameters"), {.minimum = 4 - 2 * (1 - replacements),
                                            .workers = 4,
                                            .unit = 2,
                                            .replacements = replacements,
                                            .ends = {{rank, 22}}});
      EXPECT_THAT(result.errors, IsEmpty());
      ASSERT_THAT(result.reports, SizeIs(replacements == 0 ? 2 : 4));
      for (const Report& report : result.reports)
        EXPECT_LT(tests::difference(report.loss_history, reference.loss_history), 1e-10);
    }
  }
  EXPECT_TRUE(is_empty());
}

TEST_F(OffloadedParts, GoBackToACheckpointWithoutALostShard) {
  const Report reference = tests::fit(tests::options(), tests::parted_job(), clouds(90));
  for (const int level : {1, 3})
    for (const int replacements : {0, 1}) {
      const Folder checkpoints;
      TrainerOptions options = tests::options();
      options.strategy = "sharded";
      options.division.shard.level = level;
      options.share_parameters = false;
      options.checkpoint.dir = checkpoints.path();
      options.checkpoint.every_steps = 2;
      const int least = 3 - (1 - replacements);
      const tests::PartedResult result = tests::train_parted(
          in_files(options, "parameters"),
          {.minimum = least, .workers = 3, .replacements = replacements, .ends = {{1, 30}}});
      EXPECT_THAT(result.errors, IsEmpty());
      ASSERT_THAT(result.reports, SizeIs(static_cast<size_t>(2 + replacements)));
      for (const Report& report : result.reports) {
        EXPECT_GT(report.resumed_from_step, 0);
        EXPECT_LT(tests::difference(report.loss_history, reference.loss_history), 1e-10);
      }
    }
}

TEST_F(OffloadedParts, AFullDiskIsAnErrorBeforeTheFirstStep) {
  Job large = chain();
  large.model = model_factory<tests::Divided>();
  for (const Layout& layout : {Layout{2, 0, 2}, Layout{2, 1}, Layout{2, 3}}) {
    const checkpoint::FileSizeLimit full(64);
    EXPECT_THAT(
        message_of(ErrorCode::io, [&] { run(in_files(options_of(layout), "optimizer"), large); }),
        AllOf(HasSubstr(folder_.path()), HasSubstr("optimizer state"), HasSubstr("free")))
        << layout.describe();
  }
}

TEST_F(OffloadedParts, AnOptimizerWithoutKnownStateIsRefused) {
  struct Own : torch::optim::SGD {
    using torch::optim::SGD::SGD;
  };
  Job own = chain();
  own.optimizer = [](const std::vector<NamedTensor>& parameters) {
    std::vector<at::Tensor> trainable;
    for (const auto& [name, tensor] : parameters)
      if (tensor.requires_grad()) trainable.push_back(tensor);
    return std::make_shared<Own>(trainable, torch::optim::SGDOptions(0.1));
  };
  for (const std::string& what : kWhat)
    EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                           [&] { run(in_files(options_of({2, 0, 2}), what), own); }),
                HasSubstr("memory.offload is " + what));
}

}  // namespace
}  // namespace trireme::offloaded_parts_test
