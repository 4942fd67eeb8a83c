// Engines whose optimizer state, and parameters, lie in files.
#include "engines.h"
#include "kept.h"

#include <sys/mman.h>
#include <torch/optim.h>
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <sys/stat.h>
#include <trireme/parallel/file_tensors.h>
#include <trireme/parallel/offloaded_model.h>
#include <trireme/parallel/shared/gradient_files.h>
#include <trireme/tensor/replica_random.h>
#include <unistd.h>
#include <algorithm>
#include <filesystem>

#include "../base/expect_error.h"
#include "../checkpoint/file_size_limit.h"

namespace trireme::offload_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::Data;
using tests::data_of;
using tests::on_ranks;
using tests::take_step;
using tests::thread_groups;

constexpr int64_t kBlocks = 8, kWidth = 512;

// A model of float32 in blocks of 1 MiB of parameters each.
struct Blocks : torch::nn::Module {
  Blocks() {
    for (int64_t i = 0; i < kBlocks; ++i)
      layers.push_back(
          register_module("layer" + std::to_string(i),
                          torch::nn::Linear(i == 0 ? 6 : kWidth, i + 1 == kBlocks ? 4 : kWidth)));
    const at::NoGradGuard no_grad;
    for (auto& parameter : parameters())
      parameter.copy_(at::randn(parameter.sizes(), at::detail::createCPUGenerator(5)) * 0.05);
  }
  std::vector<Block> blocks() {
    std::vector<Block> all;
    for (size_t i = 0; i < layers.size(); ++i)
      all.push_back({"layer" + std::to_string(i), {layers[i].ptr()}, [this, i](const Tensors& x) {
                       // The next block changes it in place.
                       const at::Tensor y = i % 2 == 1 ? x[0].tanh_() : x[0];
                       return Tensors{layers[i](y)};
                     }});
    return all;
  }
  at::Tensor forward(const at::Tensor& x) { return output_of(blocks(), {x}); }
  std::vector<torch::nn::Linear> layers;
};

class Offload : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "trireme-offload-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  MemoryOptions options(const std::string& what) const {
    MemoryOptions memory;
    memory.offload = what;
    memory.swap_dir = what == "none" ? "" : folder_;
    return memory;
  }
  EngineSetting setting(const std::shared_ptr<Group>& group, const std::shared_ptr<Blocks>& net,
                        const std::string& what, OptimizerFactory optimizer = Adam{}) {
    EngineSetting setting = tests::setting_of(group, net, std::move(optimizer));
    setting.model.blocks = net->blocks();
    setting.memory = options(what);
    return setting;
  }
  static Data data(int64_t step) { return data_of(24, step, at::kFloat); }

  // The hash of the parameters after some steps.
  std::string train(const std::string& what, int ranks, bool shares, double clip_norm = 0,
                    const OptimizerFactory& optimizer = Adam{}) {
    std::string hash;
    const auto groups = thread_groups(ranks);
    on_ranks(groups, [&](Group& group) {
      const auto net = std::make_shared<Blocks>();
      ReplicaRandom random(1);
      EngineSetting made =
          setting(groups[static_cast<size_t>(group.rank())], net, what, optimizer);
      made.options.share_parameters = shares;
      made.options.clip_norm = clip_norm;
      made.random = &random;
      const auto engine = find_strategy("mirrored").make(made);
      EXPECT_EQ(engine->shares_parameters(), shares && ranks > 1);
      for (int step = 0; step < 3; ++step) take_step(*engine, data(step), step + 1, 2);
      engine->prepare_to_read();
      if (group.rank() == 0) hash = sha256_of(state_of(*net).parameters);
    });
    return hash;
  }

  std::string folder_;
};

// The bytes of the tensors that are in memory, and all of their bytes.
struct Residence {
  int64_t here = 0, all = 0;
};
Residence residence_of(const std::vector<at::Tensor>& tensors) {
  const auto page = static_cast<int64_t>(::sysconf(_SC_PAGESIZE));
  Residence residence;
  for (const at::Tensor& tensor : tensors) {
    const auto begin = reinterpret_cast<intptr_t>(tensor.const_data_ptr());
    const intptr_t first = begin / page * page;
    const auto bytes = begin + static_cast<int64_t>(tensor.nbytes()) - first;
    std::vector<unsigned char> pages(static_cast<size_t>((bytes + page - 1) / page));
    EXPECT_EQ(::mincore(reinterpret_cast<void*>(first), static_cast<size_t>(bytes), pages.data()),
              0);
    residence.here += page * std::ranges::count_if(pages, [](auto p) { return (p & 1) != 0; });
    residence.all += static_cast<int64_t>(tensor.nbytes());
  }
  return residence;
}

TEST_F(Offload, GivesTheSameBits) {
  for (const auto& [ranks, shares] : {std::pair{1, false}, {2, true}, {2, false}}) {
    const std::string plain = train("none", ranks, shares);
    for (const char* what : {"optimizer", "parameters"})
      EXPECT_EQ(train(what, ranks, shares), plain) << what << " on " << ranks << " " << shares;
  }
}

TEST_F(Offload, GivesTheSameBitsWithNormsAndWithLayers) {
  for (const OptimizerFactory& optimizer :
       {OptimizerFactory(SGD{.lr = 0.1, .momentum = 0.9}), OptimizerFactory(Lamb{})})
    for (const int ranks : {1, 2})
      EXPECT_EQ(train("parameters", ranks, true, 0.01, optimizer),
                train("none", ranks, true, 0.01, optimizer));
}

TEST_F(Offload, LeavesLittleInMemory) {
  const auto groups = thread_groups(1);
  const auto net = std::make_shared<Blocks>();
  ReplicaRandom random(1);
  EngineSetting made = setting(groups[0], net, "parameters");
  made.random = &random;
  const auto engine = find_strategy("one_device").make(made);
  const std::vector<at::Tensor> parameters = net->parameters();
  for (int step = 0; step < 2; ++step) {
    take_step(*engine, data(step), step + 1);
    std::vector<at::Tensor> all = parameters;
    for (const auto& [name, tensor] : tensors_of(engine->state().tensors, StateKind::optimizer))
      all.push_back(tensor);
    const Residence after = residence_of(all);
    EXPECT_EQ(after.all, 3 * residence_of(parameters).all);
    EXPECT_LT(after.here, after.all / 20);
  }
}

// The bytes on the disk of the files without names that this process has in a folder.
int64_t bytes_on_disk(const std::string& folder) {
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry, gone).string();
    struct stat facts {};
    if (target.starts_with(folder) && ::stat(entry.path().c_str(), &facts) == 0)
      bytes += facts.st_blocks * 512;
  }
  return bytes;
}

TEST_F(Offload, AModelIsMadeInAFileAndTakesItsSpaceOnce) {
  install_cpu_allocator();
  const auto plain = std::make_shared<Blocks>();
  std::shared_ptr<Blocks> net;
  {
    const AllocationScope scope(std::make_shared<FileTensors>(folder_));
    net = std::make_shared<Blocks>();
  }
  EXPECT_EQ(sha256_of(state_of(*net).parameters), sha256_of(state_of(*plain).parameters));
  const Residence large = residence_of(net->parameters());
  EXPECT_GT(bytes_on_disk(folder_), large.all * 9 / 10);
  EXPECT_LT(bytes_on_disk(folder_), large.all * 3 / 2);

  // An engine moves it to the file in which it stays; gradients have one, and the state another.
  const auto groups = thread_groups(1);
  ReplicaRandom random(1);
  EngineSetting made = setting(groups[0], net, "parameters");
  made.random = &random;
  auto engine = find_strategy("one_device").make(made);
  take_step(*engine, data(0), 1);
  EXPECT_LT(bytes_on_disk(folder_), large.all * 9 / 2);
  engine.reset();
  net.reset();
  made = {};
  EXPECT_EQ(bytes_on_disk(folder_), 0);
}

TEST_F(Offload, LargeTensorsLeaveMemoryWhileOthersAreMade) {
  install_cpu_allocator();
  std::vector<at::Tensor> tensors;
  const AllocationScope scope(std::make_shared<FileTensors>(folder_));
  for (int i = 0; i < 32; ++i) tensors.push_back(at::full({1 << 20}, i));
  const Residence made = residence_of(tensors);
  EXPECT_LT(made.here, made.all / 4);
  for (int i = 0; i < 32; ++i)
    EXPECT_TRUE(tensors[static_cast<size_t>(i)].eq(i).all().item<bool>());
  tensors.resize(16);
  EXPECT_LT(bytes_on_disk(folder_), made.all * 6 / 10);
}

TEST_F(Offload, GradientsLieInTheirFileAndLeaveMemoryInBackward) {
  const auto net = std::make_shared<Blocks>(), plain = std::make_shared<Blocks>();
  const std::vector<NamedTensor> parameters = state_of(*net).parameters;
  std::vector<size_t> offsets;
  size_t bytes = 64;
  for (const auto& [name, tensor] : parameters) {
    offsets.push_back(bytes);
    bytes += (tensor.nbytes() + 127) / 64 * 64;
  }
  auto file = std::make_shared<net::SharedMemory>(
      net::SharedMemory::create_in(folder_, bytes, "gradients"));
  file->reserve(0, bytes);
  shared::GradientFiles files(parameters, file, 0, offsets, 1);
  const auto backward = [](Blocks& model, int64_t step) {
    model.forward(data(step).x).pow(2).sum().backward();
  };
  for (int64_t step = 0; step < 2; ++step) {
    backward(*net, step);
    backward(*plain, step);
  }
  files.keep_all();
  std::vector<at::Tensor> gradients;
  const auto expected = plain->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    gradients.push_back(parameters[i].tensor.grad());
    EXPECT_EQ(static_cast<const std::byte*>(gradients[i].const_data_ptr()),
              file->data() + offsets[i]);
  }
  const Residence left = residence_of(gradients);
  EXPECT_LT(left.here, left.all / 8);
  for (size_t i = 0; i < parameters.size(); ++i)
    EXPECT_TRUE(at::equal(gradients[i], expected[i].grad())) << parameters[i].name;
}

// A part of a model: parameters, gradients and state between the steps, and gradients before the
// exchange. Level 0 is that of a stage without replicas.
TEST_F(Offload, LeavesLittleOfAPartInMemory) {
  for (const int level : {0, 1, 2, 3}) {
    const auto groups = thread_groups(level == 0 ? 1 : 2);
    on_ranks(groups, [&](Group& group) {
      ReplicaRandom random(1);
      tests::Kept<Blocks> kept(groups[static_cast<size_t>(group.rank())], level, Adam{},
                               std::make_shared<Blocks>(), {}, offload_of(options("parameters")));
      for (int64_t step = 0; step < 2; ++step) {
        kept.compute(data(step), 2);
        std::vector<at::Tensor> gradients;
        for (const auto& named :
             level == 1 ? state_of(*kept.net).parameters : kept.keeper->updated())
          if (named.tensor.grad().defined()) gradients.push_back(named.tensor.grad());
        const Residence computed = residence_of(gradients);
        EXPECT_GT(computed.all, (kBlocks - 3) * kWidth * kWidth * 4 / group.size());
        EXPECT_LT(computed.here, computed.all / 3) << level;
        kept.keeper->drop_gradients();

        kept.step(data(step), 2);
        std::vector<at::Tensor> all;
        for (const StateEntry& entry : kept.state().tensors) all.push_back(entry.tensor);
        const Residence after = residence_of(all);
        EXPECT_LT(after.here, after.all / 10) << level;
      }
    });
  }
}

// The update reads masters, and 16-bit parameters are made of them.
TEST_F(Offload, LeavesLittleOfMastersInMemory) {
  for (const int level : {0, 1, 2, 3}) {
    const auto groups = thread_groups(level == 0 ? 1 : 2);
    on_ranks(groups, [&](Group& group) {
      ReplicaRandom random(1);
      const auto net = std::make_shared<Blocks>();
      net->to(at::kBFloat16);
      tests::Kept<Blocks> kept(groups[static_cast<size_t>(group.rank())], level, Adam{}, net, {},
                               offload_of(options("parameters")));
      for (int64_t step = 0; step < 2; ++step) {
        kept.step(data_of(24, step, at::kBFloat16), 2);
        std::vector<at::Tensor> masters;
        for (const StateEntry& entry : kept.state().tensors)
          if (entry.kind == StateKind::master) masters.push_back(entry.tensor);
        const Residence after = residence_of(masters);
        EXPECT_GT(after.all, (kBlocks - 3) * kWidth * kWidth * 4 / group.size());
        EXPECT_LT(after.here, after.all / 10) << level;
      }
    });
  }
}

// Rows of level 3 that are in files come and go with their blocks, and none of them stays.
TEST_F(Offload, RowsComeWithTheirBlocks) {
  const auto groups = thread_groups(2);
  on_ranks(groups, [&](Group& group) {
    ReplicaRandom random(1);
    tests::Kept<Blocks> kept(groups[static_cast<size_t>(group.rank())], 3, Adam{},
                             std::make_shared<Blocks>(), {}, offload_of(options("parameters")));
    std::vector<at::Tensor> rows;
    for (const auto& [name, tensor] : kept.keeper->updated()) rows.push_back(tensor);
    const at::Tensor output = kept.forward(data(0).x);
    const Residence after_forward = residence_of(rows);
    EXPECT_LT(after_forward.here, after_forward.all / 2);
    EXPECT_EQ(output.size(1), 4);
  });
}

TEST_F(Offload, LeavesNothingInItsFolder) {
  train("parameters", 2, true);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(Offload, ItsStateMovesBetweenEngines) {
  const auto groups = thread_groups(1);
  ReplicaRandom random(1);
  const auto run = [&](const std::vector<std::string>& places) {
    std::optional<EngineState> saved;
    std::string hash;
    int step = 0;
    for (const std::string& place : places) {
      const auto net = std::make_shared<Blocks>();
      EngineSetting made = setting(groups[0], net, place);
      made.random = &random;
      const auto engine = find_strategy("one_device").make(made);
      if (saved) tests::load(*engine, *saved, 0);
      for (int i = 0; i < 2; ++i, ++step) take_step(*engine, data(step), step + 1);
      saved = tests::copy_of(engine->state());
      hash = sha256_of(state_of(*net).parameters);
    }
    return hash;
  };
  const std::string plain = run({"none", "none"});
  EXPECT_EQ(run({"parameters", "parameters"}), plain);
  EXPECT_EQ(run({"parameters", "none"}), plain);
  EXPECT_EQ(run({"none", "optimizer"}), plain);
}

TEST_F(Offload, AFolderThatIsNotThereIsNamed) {
  folder_ += "/nowhere";
  for (const int ranks : {1, 2})
    EXPECT_THAT(message_of(ErrorCode::io, [&] { train("optimizer", ranks, true); }),
                AllOf(HasSubstr(folder_), HasSubstr("memory.swap_dir")));
}

TEST_F(Offload, AFullDiskIsAnErrorBeforeTheFirstStep) {
  const checkpoint::FileSizeLimit full(1 << 20);
  EXPECT_THAT(message_of(ErrorCode::io, [&] { train("optimizer", 1, false); }),
              AllOf(HasSubstr(folder_), HasSubstr("optimizer state"), HasSubstr("free")));
}

TEST_F(Offload, AnOptimizerWithoutKnownStateIsRefused) {
  const OptimizerFactory own = [](const std::vector<NamedTensor>& parameters) {
    return std::make_unique<tests::Recorder>(tests::trainable_of(parameters));
  };
  EXPECT_THAT(
      message_of(ErrorCode::invalid_argument, [&] { train("optimizer", 1, false, 0, own); }),
      HasSubstr("memory.offload is optimizer"));
}

TEST(MemoryOptions, OffloadNeedsAFolder) {
  MemoryOptions options;
  options.offload = "optimizer";
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { check(options); }),
              HasSubstr("memory.swap_dir"));
}

}  // namespace
}  // namespace trireme::offload_test
