// Strategies whose ranks have slices of the state: saved by some ranks, loaded by others.
#include "jobs.h"

#include "../parallel/all_reduced.h"
#include "lost_worker.h"
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <trireme/base/log.h>
#include <trireme/checkpoint/catalogue.h>
#include <trireme/train/saver.h>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>

#include "../base/expect_error.h"

namespace trireme::sliced_state_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::clouds;
using tests::fit;
using tests::Folder;
using tests::job;
namespace fs = std::filesystem;

constexpr const char* kWholeMoments = "sliced_state_test_whole";
constexpr const char* kRows = "sliced_state_test_rows";
constexpr const char* kDealt = "sliced_state_test_dealt";
constexpr const char* kModelRows = "sliced_state_test_model";

// The state of the ranks once they had loaded: [rank][name].
struct Loaded {
  std::mutex mutex;
  std::map<int, std::map<std::string, StateEntry>> of_ranks;
} loaded;

// Every rank has the whole model and the same moments, but shows of them only what is its own.
class SlicedMoments : public tests::AllReduced {
 public:
  explicit SlicedMoments(const EngineSetting& setting) : AllReduced(setting) {
    for (const auto& [name, tensor] : parameters()) moments_.push_back(at::zeros_like(tensor));
    const std::string& kind = setting.strategy;
    is_whole_ = kind == kWholeMoments;
    is_dealt_ = kind == kDealt;
    shows_rows_of_model_ = kind == kModelRows;
  }
  EngineState state() override {
    EngineState state = AllReduced::state();
    if (shows_rows_of_model_)
      for (StateEntry& entry : state.tensors)
        if (entry.kind == StateKind::parameter) entry = rows_of(entry);
    return state;
  }
  void begin_load(const IncomingState& incoming) override {
    // Each rank has read its rows.
    if (shows_rows_of_model_ && incoming.model_is_new)
      for (const StateEntry& entry : state().tensors)
        for (const auto& [name, tensor] : parameters()) {
          if (name != entry.slice.tensor) continue;
          const at::Tensor all = at::zeros_like(tensor);
          all.narrow(0, entry.slice.from[0], entry.slice.sizes[0]).copy_(entry.tensor);
          group().all_reduce(all);
          tensor.detach().copy_(all);
        }
    AllReduced::begin_load(incoming);
  }
  void end_load() override {
    AllReduced::end_load();
    const std::lock_guard lock(loaded.mutex);
    for (StateEntry& entry : state().tensors) {
      entry.tensor = entry.tensor.detach().clone();
      loaded.of_ranks[group().rank()].insert_or_assign(name_in_file(entry, 0), entry);
    }
  }

 protected:
  void update() override {
    for (size_t i = 0; i < moments_.size(); ++i)
      moments_[i].mul_(0.9).add_(parameters()[i].tensor.grad());
    AllReduced::update();
  }
  StateView own_state() override {
    StateView view;
    for (size_t i = 0; i < moments_.size(); ++i) {
      const StateEntry entry =
          whole("moment/" + parameters()[i].name, moments_[i], StateKind::common);
      const bool is_mine = static_cast<int>(i) % group().size() == group().rank();
      view.push_back(is_whole_    ? entry
                     : !is_dealt_ ? rows_of(entry)
                     : is_mine    ? entry
                                  : rows_of(entry, 0, 0));
    }
    return view;
  }

 private:
  static StateEntry rows_of(StateEntry entry, int64_t from, int64_t count) {
    entry.slice.from[0] = from;
    entry.slice.sizes[0] = count;
    entry.tensor = entry.tensor.detach().narrow(0, from, count);
    return entry;
  }
  StateEntry rows_of(const StateEntry& entry) const {
    const int64_t rows = entry.slice.shape[0], rank = group().rank(), ranks = group().size();
    const int64_t from = rows * rank / ranks;
    return rows_of(entry, from, rows * (rank + 1) / ranks - from);
  }

  std::vector<at::Tensor> moments_;
  bool is_whole_ = false, is_dealt_ = false, shows_rows_of_model_ = false;
};

class SlicedState : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    static std::once_flag once;
    std::call_once(once, [] {
      for (const char* const name : {kWholeMoments, kRows, kDealt, kModelRows})
        register_strategy(name, {make_engine<SlicedMoments>, {}});
    });
  }
  void SetUp() override { loaded.of_ranks.clear(); }

  static TrainerOptions options_in(const Folder& folder, int64_t steps, int replicas,
                                   const std::string& strategy) {
    TrainerOptions options = tests::options(replicas);
    options.strategy = strategy;
    options.steps = steps;
    options.checkpoint.dir = folder.path();
    return options;
  }

  static at::Tensor read_whole(const checkpoint::StoredTensor& stored) {
    std::vector<std::byte> memory;
    const auto bytes = checkpoint::assemble(stored, memory);
    at::Tensor tensor = at::empty(stored.spec.shape, at::kDouble);
    EXPECT_EQ(tensor.nbytes(), bytes.size());
    std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
    return tensor;
  }

  // All ranks have what the checkpoint holds.
  static void expect_loaded(const std::string& checkpoint, int ranks) {
    const checkpoint::Saved saved = checkpoint::open_checkpoint(checkpoint);
    ASSERT_EQ(loaded.of_ranks.size(), static_cast<size_t>(ranks));
    size_t compared = 0;
    for (const char* const kind : {checkpoint::kModelFile, checkpoint::kOptimizerFile})
      for (const auto& stored : checkpoint::catalogue_of(saved, kind)) {
        const at::Tensor whole = read_whole(stored);
        for (auto& [rank, entries] : loaded.of_ranks) {
          const auto found = entries.find(stored.spec.name);
          if (found == entries.end()) continue;
          at::Tensor expected = whole;
          const plan::TensorSlice& slice = found->second.slice;
          for (size_t d = 0; d < slice.from.size(); ++d)
            expected = expected.narrow(static_cast<int64_t>(d), slice.from[d], slice.sizes[d]);
          EXPECT_TRUE(expected.equal(found->second.tensor)) << stored.spec.name << " " << rank;
          ++compared;
        }
      }
    EXPECT_EQ(compared, static_cast<size_t>(ranks) * 12);  // Parameters, momenta, moments.
  }
};

struct Layout {
  std::string strategy;
  int ranks;
};
struct FromTo {
  Layout before, after;
};
class SlicedStateOnOtherRanks : public SlicedState,
                                public ::testing::WithParamInterface<FromTo> {};
INSTANTIATE_TEST_SUITE_P(
    Layouts, SlicedStateOnOtherRanks,
    ::testing::Values(FromTo{{kRows, 4}, {kRows, 3}}, FromTo{{kRows, 4}, {kRows, 4}},
                      FromTo{{kRows, 4}, {kRows, 1}}, FromTo{{kRows, 1}, {kRows, 4}},
                      FromTo{{kRows, 4}, {kWholeMoments, 2}},
                      FromTo{{kWholeMoments, 2}, {kRows, 3}}, FromTo{{kDealt, 3}, {kRows, 4}},
                      FromTo{{kRows, 2}, {kDealt, 3}}, FromTo{{kModelRows, 4}, {kModelRows, 3}},
                      FromTo{{kModelRows, 3}, {kWholeMoments, 2}},
                      FromTo{{kWholeMoments, 1}, {kModelRows, 4}}));

TEST_P(SlicedStateOnOtherRanks, TakesEveryElementOver) {
  const auto& [before, after] = GetParam();
  const Folder folder;
  const Report first =
      fit(options_in(folder, 5, before.ranks, before.strategy), job(), clouds(90));
  loaded.of_ranks.clear();
  // Nothing is left to train.
  const Report second = fit(options_in(folder, 5, after.ranks, after.strategy), job(), clouds(90));
  EXPECT_EQ(second.resumed_from_step, 5);
  EXPECT_EQ(second.loss_history, first.loss_history);
  EXPECT_EQ(second.parameters_sha256, first.parameters_sha256);
  expect_loaded(first.checkpoint, after.ranks);
  EXPECT_EQ(fit(options_in(folder, 12, after.ranks, after.strategy), job(), clouds(90)).steps, 12);
}

TEST_F(SlicedState, IsWrittenByTheRanksThatHaveIt) {
  const Folder folder;
  const Report report = fit(options_in(folder, 3, 4, kModelRows), job(), clouds(90));
  const checkpoint::Saved saved = checkpoint::open_checkpoint(report.checkpoint);
  for (const auto& stored : checkpoint::catalogue_of(saved, checkpoint::kModelFile)) {
    int64_t rows = 0;
    for (const auto& part : stored.parts) {
      rows += part.slice.sizes[0];
      const int rank = saved.manifest.writers.at(part.file);
      EXPECT_EQ(part.slice.from[0], stored.spec.shape[0] * rank / 4) << part.slice.describe();
    }
    EXPECT_EQ(rows, stored.spec.shape[0]);
  }
  // Whole state is in rank 0's file alone.
  EXPECT_NE(checkpoint::SafetensorsFile(fs::path(report.checkpoint) / "optimizer.safetensors")
                .find("momentum_buffer/in.weight"),
            nullptr);
}

TEST_F(SlicedState, DamageSendsAllRanksToAnOlderCheckpoint) {
  for (const char* const file : {"optimizer-2.safetensors", "model-1.safetensors"}) {
    const Folder folder;
    TrainerOptions options = options_in(folder, 6, 4, kModelRows);
    options.checkpoint.every_steps = 3;
    const Report first = fit(options, job(), clouds(90));
    {
      std::fstream damaged(fs::path(first.checkpoint) / file,
                           std::ios::in | std::ios::out | std::ios::binary);
      damaged.seekp(-1, std::ios::end);
      damaged.put(static_cast<char>(0x5a));
    }
    loaded.of_ranks.clear();
    ::testing::internal::CaptureStderr();
    const Report second = fit(options_in(folder, 3, 3, kModelRows), job(), clouds(90));
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                AllOf(HasSubstr("skipping"), HasSubstr(file)));
    EXPECT_EQ(second.resumed_from_step, 3);
    expect_loaded((fs::path(folder.path()) / "step-000000003").string(), 3);
  }
}

TEST_F(SlicedState, AMissingSliceIsNamedWithItsRankOnEveryRank) {
  const Folder folder;
  const Report first = fit(options_in(folder, 3, 4, kRows), job(), clouds(90));
  fs::remove(fs::path(first.checkpoint) / "optimizer-3.safetensors");
  set_log_level(LogLevel::error);
  tests::Workers workers(2);
  workers.on_each([&](World& world) {
    Trainer trainer(world, options_in(folder, 6, 1, kRows));
    EXPECT_THAT(message_of(ErrorCode::corrupt, [&] { trainer.fit(job(), clouds(90)); }),
                HasSubstr("optimizer-3.safetensors is missing; rank 3 wrote it"));
  });
  workers.leave();
  set_log_level(LogLevel::info);
}

struct Wider : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return out(at::tanh(in(x))); }
  torch::nn::Linear in = register_module("in", torch::nn::Linear(5, 9)),
                    out = register_module("out", torch::nn::Linear(9, 3));
};
TEST_F(SlicedState, OfAnotherShapeIsRefusedByBothShapes) {
  for (const char* const strategy : {kRows, kModelRows}) {
    const Folder folder;
    fit(options_in(folder, 3, 4, strategy), job(), clouds(90));
    EXPECT_THAT(
        message_of(ErrorCode::invalid_argument,
                   [&] { fit(options_in(folder, 6, 3, strategy), job<Wider>(), clouds(90)); }),
        AllOf(HasSubstr("'in.weight'"), HasSubstr("[8, 5]"), HasSubstr("[9, 5]")));
  }
}

struct Large : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return out(at::tanh(in(x))); }
  torch::nn::Linear in = register_module("in", torch::nn::Linear(5, 8)),
                    out = register_module("out", torch::nn::Linear(8, 3));
  at::Tensor table = register_parameter("table", at::zeros({4096, 128}));  // 4 MiB of float64.
};
// Rank 0 reads the optimizer's momenta too, which are whole here.
TEST_F(SlicedState, ARankReadsThePiecesOfItsOwnSlices) {
  const Folder folder;
  const Job large = job<Large>(SGD{.lr = 0.1});
  fit(options_in(folder, 2, 4, kModelRows), large, clouds(90));
  tests::Workers workers(3);
  workers.on_each([](World& world) { world.connect(); });
  const auto groups = workers.make_groups();
  tests::on_threads(3, [&](int rank) {
    EngineSetting setting;
    setting.strategy = kModelRows;
    setting.group = groups[static_cast<size_t>(rank)];
    setting.model = large.model();
    setting.model.module->to(at::kDouble);
    setting.optimizer = large.optimizer;
    const auto engine = find_strategy(kModelRows).make(setting);
    std::optional<checkpoint::Writer> writer;
    if (rank == 0) writer.emplace(checkpoint::Folder(folder.path()));
    RunFacts facts;
    facts.samples = 90;
    facts.batch = 16;
    facts.config = {{"data.shuffle", "true"}};
    Saver saver(writer ? &*writer : nullptr, {}, facts, *setting.group);
    const auto restored = saver.restore(*engine, {});
    ASSERT_TRUE(restored);
    EXPECT_EQ(restored->progress.step, 2);
    // A third of the table and of its moment: at most two files each, with a piece more at both
    // ends of each run, and the headers.
    const int64_t own = 2 * (4 << 20) / 3, piece = 256 << 10;
    EXPECT_GE(restored->bytes_read, own);
    EXPECT_LE(restored->bytes_read, own + 16 * piece);
  });
  workers.leave();
}

TEST_F(SlicedState, AfterALossAllGoBackToTheNewestCheckpoint) {
  const Folder folder;
  TrainerOptions options = options_in(folder, 12, 1, kRows);
  options.checkpoint.every_steps = 2;
  const tests::AfterALoss result = tests::train_with_a_loss(options);
  for (const size_t survivor : {0, 1}) {
    EXPECT_EQ(result.errors[survivor], "");
    const Report& report = result.reports[survivor];
    EXPECT_EQ(report.steps, 12);
    EXPECT_EQ(report.world_size, 2);
    EXPECT_THAT(report.resumed_from_step, ::testing::AnyOf(2, 4));
    EXPECT_TRUE(report.samples.exactly_once());
    EXPECT_EQ(report.parameters_sha256, result.reports[0].parameters_sha256);
  }
}

TEST_F(SlicedState, AfterALossWithoutACheckpointTheRunEndsAndSaysWhy) {
  TrainerOptions options = options_in(Folder(), 12, 1, kRows);
  options.checkpoint.dir.clear();
  const tests::AfterALoss result = tests::train_with_a_loss(options);
  for (const size_t survivor : {0, 1})
    EXPECT_THAT(result.errors[survivor],
                AllOf(HasSubstr("internal"), HasSubstr("its slices of the state are gone"),
                      HasSubstr("checkpoint.every")));
}

}  // namespace
}  // namespace trireme::sliced_state_test
