// Stop and resume, and the facts that a checkpoint must fit.
#include "jobs.h"
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <fstream>
#include <span>

#include <trireme/checkpoint/folder.h>
#include <trireme/faults/full_disk.h>
#include <trireme/train/saver.h>

#include "../base/expect_error.h"

namespace trireme::saver_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::clouds;
using tests::fit;
using tests::Folder;
using tests::job;

TrainerOptions options_in(const Folder& folder, int64_t steps, int replicas = 1) {
  TrainerOptions options = tests::options(replicas);
  options.steps = steps;
  options.checkpoint.dir = folder.path();
  return options;
}

struct Kind {
  std::string name;
  OptimizerFactory optimizer;
};
class Resumed : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Optimizers, Resumed,
                         ::testing::Values(Kind{"SGD", SGD{.lr = 0.1, .momentum = 0.9}},
                                           Kind{"Adam", Adam{.lr = 0.01, .amsgrad = true}},
                                           Kind{"AdamW", AdamW{.lr = 0.01}},
                                           Kind{"RMSprop",
                                                RMSprop{.momentum = 0.5, .centered = true}},
                                           Kind{"Adagrad", Adagrad{}}),
                         [](const auto& each) { return each.param.name; });

// 90 samples in batches of 16 are 6 steps an epoch: step 4 is in the middle of the first epoch,
// and step 9 in the middle of the second.
TEST_P(Resumed, ContinuesBitForBit) {
  for (const int replicas : {1, 2}) {
    const auto the_job = job<tests::DropoutClassifier>(GetParam().optimizer);
    const Folder undisturbed, interrupted;
    const Report whole = fit(options_in(undisturbed, 12, replicas), the_job, clouds(90));
    fit(options_in(interrupted, 4, replicas), the_job, clouds(90));
    fit(options_in(interrupted, 9, replicas), the_job, clouds(90));
    const Report last = fit(options_in(interrupted, 12, replicas), the_job, clouds(90));
    EXPECT_EQ(last.resumed_from_step, 9);
    EXPECT_EQ(last.steps, 12);
    EXPECT_EQ(last.loss_history, whole.loss_history);
    EXPECT_EQ(last.parameters_sha256, whole.parameters_sha256);
  }
}

TEST_P(Resumed, ContinuesUnderAnotherStrategy) {
  const auto the_job = job(GetParam().optimizer);
  const Folder undisturbed, interrupted;
  const Report whole = fit(options_in(undisturbed, 12), the_job, clouds(90));
  fit(options_in(interrupted, 5, 3), the_job, clouds(90));
  tests::Workers workers(2);
  workers.on_each(
      [&](World& world) { Trainer(world, options_in(interrupted, 9)).fit(the_job, clouds(90)); });
  workers.leave();
  const Report last = fit(options_in(interrupted, 12), the_job, clouds(90));
  EXPECT_EQ(last.resumed_from_step, 9);
  EXPECT_LT(tests::difference(last.loss_history, whole.loss_history), 1e-10);
}

TEST(Saver, SavesAtItsIntervalAndKeepsTheNewest) {
  const Folder folder;
  TrainerOptions options = options_in(folder, 12);
  options.checkpoint.every_steps = 5;
  const Report report = fit(options, job(), clouds(90));
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    names.push_back(entry.path().filename().string());
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("step-000000010", "step-000000012"));
  EXPECT_THAT(report.checkpoint, ::testing::EndsWith("step-000000012"));
}

TEST(Saver, ARunOfNoStepsSavesTheInitialWeights) {
  const Folder folder;
  const Report report = fit(options_in(folder, 0), job(), clouds(90));
  EXPECT_EQ(report.steps, 0);
  EXPECT_TRUE(std::filesystem::exists(report.checkpoint));
}

TEST(Saver, RefusesDataOfAnotherSizeByBothNumbers) {
  for (const int replicas : {1, 2}) {
    const Folder folder;
    fit(options_in(folder, 2, replicas), job(), clouds(90));
    EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                           [&] { fit(options_in(folder, 4, replicas), job(), clouds(80)); }),
                AllOf(HasSubstr("90"), HasSubstr("80")));
  }
}

// Otherwise the launchers of other hosts would see only a lost worker 0, and try again.
TEST(Saver, AllRanksRefuseWhatRankZeroRefuses) {
  const Folder folder;
  fit(options_in(folder, 2), job(), clouds(90));
  tests::Workers workers(2);
  workers.on_each([&](World& world) {
    Trainer trainer(world, options_in(folder, 4));
    EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { trainer.fit(job(), clouds(80)); }),
                AllOf(HasSubstr("was trained on 90 samples, the data has 80; try: the same data"),
                      ::testing::Not(HasSubstr("[train] rank 0/2: [train]"))));
  });
  workers.leave();
}

TEST(Saver, RefusesAnotherOrderOfTheSamplesByBothValues) {
  for (const int replicas : {1, 2}) {
    const Folder folder;
    fit(options_in(folder, 2, replicas), job(), clouds(90));
    TrainerOptions other = options_in(folder, 4, replicas);
    other.shuffle = false;
    EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { fit(other, job(), clouds(90)); }),
                AllOf(HasSubstr("data.shuffle is false now and was true"), HasSubstr("--fresh")));
  }
}

TEST(Saver, RefusesOtherDataByItsConfiguration) {
  const Folder folder;
  TrainerOptions options = options_in(folder, 2);
  options.config = {{"data.content", "a"}, {"data.split_seed", "1"}};
  fit(options, job(), clouds(90));
  options.steps = 4;
  EXPECT_EQ(fit(options, job(), clouds(90)).resumed_from_step, 2);
  options.config["data.split_seed"] = "2";
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { fit(options, job(), clouds(90)); }),
              HasSubstr("data.split_seed is 2 now and was 1"));
}

TEST(Saver, RefusesAnotherModelByTheTensor) {
  const Folder folder;
  fit(options_in(folder, 2), job(), clouds(90));
  EXPECT_THAT(
      message_of(ErrorCode::invalid_argument,
                 [&] { fit(options_in(folder, 4), job<tests::NormClassifier>(), clouds(90)); }),
      HasSubstr("norm.weight"));
}

TEST(Saver, RefusesAnotherOptimizerByBothNames) {
  for (const int replicas : {1, 2}) {
    const Folder folder;
    fit(options_in(folder, 2, replicas), job(), clouds(90));
    EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                           [&] { fit(options_in(folder, 4, replicas), job(Adam{}), clouds(90)); }),
                AllOf(HasSubstr("SGD"), HasSubstr("Adam")));
  }
}

struct Masked : tests::Classifier {
  at::Tensor mask = register_buffer("mask", at::tensor({1, 0, 1}).to(at::kBool));
};
TEST(Saver, KeepsBoolBuffers) {
  const Folder folder;
  fit(options_in(folder, 2), job<Masked>(), clouds(90));
  const Report report = fit(options_in(folder, 4), job<Masked>(), clouds(90));
  EXPECT_EQ(report.resumed_from_step, 2);
  const checkpoint::Saved saved = checkpoint::open_checkpoint(report.checkpoint);
  EXPECT_EQ(saved.model->find("mask")->spec.describe(), "bool[3]");
}

// Early checkpoints stored bool buffers as bytes.
TEST(Saver, LoadsBoolBuffersFromBytes) {
  const Folder folder;
  const Report report = fit(options_in(folder, 2), job<Masked>(), clouds(90));
  {
    checkpoint::Saved saved = checkpoint::open_checkpoint(report.checkpoint);
    std::vector<checkpoint::TensorView> model = saved.model->tensors();
    for (auto& tensor : model)
      if (tensor.spec.name == "mask") tensor.spec.dtype = plan::DType::uint8;
    checkpoint::Folder(folder.path()).save(saved.manifest, model, saved.optimizer->tensors());
  }
  EXPECT_EQ(fit(options_in(folder, 4), job<Masked>(), clouds(90)).resumed_from_step, 2);
}

// Early checkpoints stored masks and counters in the type of training.
TEST(Saver, LoadsMasksThatWereStoredAsFloatingPoint) {
  const Folder folder;
  const Report report = fit(options_in(folder, 2), job<Masked>(), clouds(90));
  const std::vector<double> stored = {1, 0, 1};
  {
    checkpoint::Saved saved = checkpoint::open_checkpoint(report.checkpoint);
    std::vector<checkpoint::TensorView> model = saved.model->tensors();
    for (auto& tensor : model) {
      if (tensor.spec.name != "mask") continue;
      tensor.spec.dtype = plan::DType::float64;
      tensor.bytes = std::as_bytes(std::span(stored));
    }
    checkpoint::Folder(folder.path()).save(saved.manifest, model, saved.optimizer->tensors());
  }
  const Report rest = fit(options_in(folder, 4), job<Masked>(), clouds(90));
  EXPECT_EQ(rest.resumed_from_step, 2);
  const checkpoint::Saved saved = checkpoint::open_checkpoint(rest.checkpoint);
  const auto* const mask = saved.model->find("mask");
  EXPECT_EQ(mask->spec.describe(), "bool[3]");
  EXPECT_EQ(std::vector(mask->bytes.begin(), mask->bytes.end()),
            (std::vector<std::byte>{std::byte{1}, std::byte{0}, std::byte{1}}));
}

// The damage is found when the first bytes of the model are already in their places.
TEST(Saver, ADamagedNewestCheckpointIsSkippedWithoutATrace) {
  const Folder undisturbed, damaged;
  const Report whole = fit(options_in(undisturbed, 9), job(), clouds(90));
  TrainerOptions options = options_in(damaged, 6);
  options.checkpoint.every_steps = 3;
  const Report first = fit(options, job(), clouds(90));
  {
    std::fstream file(std::filesystem::path(first.checkpoint) / "model.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put(static_cast<char>(0x5a));
  }
  const Report last = fit(options_in(damaged, 9), job(), clouds(90));
  EXPECT_EQ(last.resumed_from_step, 3);
  EXPECT_EQ(last.parameters_sha256, whole.parameters_sha256);
}

std::vector<std::string> files_of(const std::string& checkpoint) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint))
    names.push_back(entry.path().filename().string());
  return names;
}

TEST(Saver, EachRankMayWriteItsPart) {
  const Folder folder;
  TrainerOptions options = options_in(folder, 4, 3);
  options.checkpoint.writers = "ranks";
  // Each rank has its own errors of compression.
  options.compression.name = "int8";
  const Report saved = fit(options, job(Adam{}), clouds(90));
  EXPECT_THAT(files_of(saved.checkpoint),
              ::testing::UnorderedElementsAre(
                  "manifest.json", "history.safetensors", "model.safetensors",
                  "optimizer.safetensors", "optimizer-1.safetensors", "optimizer-2.safetensors",
                  "pieces.safetensors", "pieces-1.safetensors", "pieces-2.safetensors"));
  const checkpoint::SafetensorsFile second(std::filesystem::path(saved.checkpoint) /
                                           "optimizer-1.safetensors");
  for (const auto& tensor : second.tensors())
    EXPECT_THAT(tensor.spec.name, ::testing::AnyOf(::testing::StartsWith("exp_avg"),
                                                   ::testing::StartsWith("rank1/")));
  const checkpoint::Saved whole = checkpoint::open_checkpoint(saved.checkpoint);
  for (const char* name :
       {"exp_avg/in.weight", "exp_avg_sq/in.weight", "exp_avg/out.bias", "exp_avg_sq/out.bias"})
    EXPECT_NE(whole.optimizer->find(name), nullptr) << name;
}

TEST(Saver, TheFirstRankOfEachHostWritesAPart) {
  const auto the_job = job(Adam{});
  const Folder undisturbed, interrupted;
  const Report whole = fit(options_in(undisturbed, 12), the_job, clouds(90));
  std::string saved;
  for (const auto& [steps, hosts] : std::vector<std::pair<int64_t, std::vector<std::string>>>{
           {5, {"a", "a", "b", "b"}}, {9, {"a", "b"}}}) {
    tests::Workers workers(static_cast<int>(hosts.size()), tests::world_options(), hosts);
    workers.on_each([&, steps_now = steps](World& world) {
      const Report report =
          Trainer(world, options_in(interrupted, steps_now)).fit(the_job, clouds(90));
      if (world.worker() == 0) saved = report.checkpoint;
    });
    workers.leave();
    EXPECT_THAT(files_of(saved), ::testing::UnorderedElementsAre(
                                     "manifest.json", "history.safetensors", "model.safetensors",
                                     "optimizer.safetensors", "optimizer-1.safetensors",
                                     "pieces.safetensors", "pieces-1.safetensors"));
  }
  const Report last = fit(options_in(interrupted, 12), the_job, clouds(90));
  EXPECT_EQ(last.resumed_from_step, 9);
  EXPECT_LT(tests::difference(last.loss_history, whole.loss_history), 1e-10);
}

// Hosts without a common file system behave like this.
TEST(Saver, RankZeroWritesAloneWhereAnotherRankCannotWrite) {
  const Folder folder;
  class Elsewhere : public FullDisk {
   public:
    std::unique_ptr<File> create(const std::filesystem::path& file) override {
      throw Error(ErrorCode::io, "test", file.string() + " is on another host");
    }
  } elsewhere;
  FullDisk here;
  tests::Workers workers(2);
  workers.on_each([](World& world) { world.connect(); });
  const auto groups = workers.make_groups();
  for (const bool all_see_it : {false, true}) {
    tests::on_threads(2, [&](int rank) {
      checkpoint::FileSystem& files =
          rank == 1 && !all_see_it ? static_cast<checkpoint::FileSystem&>(elsewhere) : here;
      EXPECT_EQ(agree_on_parts(/*of_all_ranks=*/true, folder.path(), files,
                               *groups[static_cast<size_t>(rank)])
                    .has_value(),
                all_see_it);
    });
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  }
  workers.leave();
}

TEST(Saver, TheLastCheckpointHasItsEvaluationWhereTheBestAreKept) {
  for (const int64_t best : {0, 1}) {
    const Folder folder;
    TrainerOptions options = options_in(folder, 4);
    options.checkpoint.keep_best = best;
    const Report report = fit(options, job(), clouds(90), clouds(30));
    const auto loss =
        checkpoint::evaluated(checkpoint::open_checkpoint(report.checkpoint).manifest, "loss");
    EXPECT_EQ(loss.has_value(), best == 1);
    if (loss) {
      EXPECT_EQ(*loss, report.eval->loss);
    }
  }
}

struct Transposed : tests::Classifier {
  at::Tensor turned = register_parameter("turned", at::arange(12.0).view({3, 4}).t());
};
TEST(Saver, LoadsTensorsThatAreNotContiguous) {
  const Folder folder;
  const Report saved = fit(options_in(folder, 2), job<Transposed>(), clouds(90));
  const Report loaded = fit(options_in(folder, 2), job<Transposed>(), clouds(90));
  EXPECT_EQ(loaded.resumed_from_step, 2);
  EXPECT_EQ(loaded.parameters_sha256, saved.parameters_sha256);
}

}  // namespace
}  // namespace trireme::saver_test
