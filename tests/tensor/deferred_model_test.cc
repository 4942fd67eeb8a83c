#include <ATen/ATen.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformerlayer.h>
// These headers must come after torch.h.
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>

#include <trireme/base/error.h>
#include <trireme/tensor/cpu_allocator.h>
#include <trireme/tensor/deferred_model.h>
#include <trireme/tensor/hollow.h>
#include <trireme/tensor/replica_random.h>
#include <cstdlib>
#include <functional>
#include <map>
#include <thread>

#include "counted_memory.h"

namespace trireme::deferred_model_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using tests::CountingSource;
using Tensors = std::map<std::string, at::Tensor>;

// A module without code of its own, to which a test gives tensors.
struct Bag : torch::nn::Module {
  at::Tensor parameter(const std::string& name, const at::Tensor& value) {
    return register_parameter(name, value);
  }
  at::Tensor buffer(const std::string& name, const at::Tensor& value) {
    return register_buffer(name, value);
  }
  std::vector<at::Tensor> unregistered;
};

DeferredModel::Make bag(std::function<void(Bag&)> fill) {
  return [fill = std::move(fill)] {
    auto made = std::make_shared<Bag>();
    fill(*made);
    return made;
  };
}
DeferredModel::Make sequence(const std::function<torch::nn::Sequential()>& make) {
  return [make] { return make().ptr(); };
}

Tensors tensors_of(const torch::nn::Module& module) {
  Tensors tensors;
  for (const auto& all : {module.named_parameters(), module.named_buffers()})
    for (const auto& each : all)
      if (each.value().defined()) tensors.emplace(each.key(), each.value());
  return tensors;
}

at::Tensor truncated_normal(at::Tensor weight) {
  const at::NoGradGuard no_grad;
  // The inverse of the distribution function, as PyTorch's trunc_normal_ does it.
  return weight.uniform_(-0.95, 0.95).erfinv_().mul_(0.02 * std::sqrt(2.0)).clamp_(-2, 2);
}

const std::map<std::string, DeferredModel::Make>& models() {
  using namespace torch::nn;
  static const at::Tensor pretrained = at::full({40, 60}, 0.5);
  static const std::map<std::string, DeferredModel::Make> all{
      {"linears",
       sequence([] { return Sequential(Linear(70, 90), Linear(90, 80), Linear(80, 1)); })},
      {"norms_and_convolutions", sequence([] {
         return Sequential(Conv2d(Conv2dOptions(3, 20, 3)), BatchNorm2d(20),
                           Conv2d(Conv2dOptions(20, 8, 3).bias(false)), BatchNorm2d(8));
       })},
      {"embedding_and_norm", sequence([] {
         return Sequential(Embedding(EmbeddingOptions(300, 17).padding_idx(3)),
                           LayerNorm(LayerNormOptions({17})), Linear(17, 300));
       })},
      {"lstm", [] { return LSTM(LSTMOptions(30, 40).num_layers(2)).ptr(); }},
      {"transformer_layer",
       [] { return TransformerEncoderLayer(TransformerEncoderLayerOptions(64, 4)).ptr(); }},
      {"scaled_randn", bag([](Bag& b) {
         for (const int64_t size : {3, 15, 16, 17, 33, 65'540, 70'001, 131'088})
           b.parameter("w" + std::to_string(size), at::randn({size}) * 0.02);
       })},
      {"normal_of_all_types", bag([](Bag& b) {
         for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
           const std::string name(c10::toString(type));
           b.parameter(name, at::empty({70'003}, type).normal_(1, 2));
           b.parameter(name + "_uniform", at::empty({70'003}, type).uniform_(-1, 2));
           b.parameter(name + "_rand", at::rand({5, 7}, type));
         }
         b.parameter("complex", at::randn({301}, at::kComplexFloat));
       })},
      {"strided_draws", bag([](Bag& b) {
         const at::Tensor weight = at::empty({50, 70}), wide = at::empty({50, 70});
         weight.t().normal_();
         wide.narrow(1, 3, 30).uniform_();
         wide.narrow(1, 33, 37).normal_();
         b.parameter("transposed", weight);
         b.parameter("wide", wide.slice(1, 3, 70));
       })},
      {"other_distributions", bag([](Bag& b) {
         b.parameter("exponential", at::empty({2000}).exponential_());
         b.parameter("cauchy", at::empty({2000}).cauchy_());
         b.parameter("log_normal", at::empty({2000}).log_normal_());
         b.buffer("geometric", at::empty({2000}).geometric_(0.3));
         b.buffer("mask", at::empty({2000}).bernoulli_(0.3));
         b.buffer("order", at::randperm(2000));
         b.buffer("numbers", at::randint(10, {2000}));
         b.buffer("large_numbers", at::empty({2000}, at::kLong).random_());
         b.parameter("last", at::rand({2000}));
       })},
      {"draws_that_depend_on_values", bag([](Bag& b) {
         const at::Tensor first = b.parameter("first", at::rand({2000}));
         b.buffer("normal", at::normal(first.detach(), 1.0));
         b.buffer("mask", at::empty({2000}).bernoulli_(first.detach()));
         b.parameter("last", at::rand({2000}));
       })},
      {"truncated_normal", bag([](Bag& b) {
         for (int i = 0; i < 3; ++i)
           truncated_normal(b.parameter("w" + std::to_string(i), at::empty({40, 60})));
       })},
      {"init_functions", bag([](Bag& b) {
         auto next = [&, n = 0](at::IntArrayRef size) mutable {
           return b.parameter("w" + std::to_string(n++), at::empty(size));
         };
         init::xavier_uniform_(next({40, 60}));
         init::xavier_normal_(next({40, 60}));
         init::kaiming_normal_(next({40, 60}));
         init::orthogonal_(next({40, 60}));
         init::orthogonal_(next({60, 40}));
         init::eye_(next({40, 60}));
         init::dirac_(next({8, 40, 3}));
         init::sparse_(next({40, 60}), 0.3);
         init::constant_(next({40, 60}), 3);
         init::normal_(next({40, 60}), 1, 3);
       })},
      {"tied", bag([](Bag& b) {
         const at::Tensor embedding = b.parameter("embedding", at::randn({50, 30}));
         b.parameter("middle", at::randn({40, 30}));
         b.parameter("head", embedding);
         b.parameter("rows", embedding.detach().narrow(0, 3, 20));
       })},
      {"copies", bag([](Bag& b) {
         const at::NoGradGuard no_grad;
         const at::Tensor first = b.parameter("first", at::randn({50, 30}));
         const at::Tensor second = b.parameter("second", at::empty({50, 30}));
         second.copy_(first);
         first.mul_(2);
         b.buffer("sum", first + second);
         b.buffer("means", first.mean(1));
         second.index_put_({at::arange(3)}, at::zeros({30}));
         first[0].zero_();
         first.select(1, 3).fill_(7);
       })},
      {"buffers", bag([](Bag& b) {
         b.buffer("mask", at::ones({60, 60}).tril());
         b.buffer("places", at::arange(5000));
         b.buffer("frequencies", at::pow(10000.0, at::arange(0, 200, 2) / 200.0));
         b.buffer("both",
                  at::cat({at::linspace(0, 1, 2000).sin(), at::linspace(0, 1, 2000).cos()}));
         b.buffer("count", at::zeros({}, at::kLong));
         b.buffer("stacked", at::stack({at::eye(40), at::zeros({40, 40})}));
         b.buffer("empty", at::empty({0}));
         b.parameter("w", at::rand({30}));
       })},
      {"rates_from_tensors", bag([](Bag& b) {
         const at::Tensor rates = at::linspace(0, 0.5, 4);
         for (int i = 0; i < 4; ++i)
           b.parameter("w" + std::to_string(i), at::rand({3000}) * rates[i].item<double>());
       })},
      {"another_type",
       [] {
         auto made = torch::nn::Sequential(Linear(70, 90), BatchNorm1d(90), Linear(90, 80));
         made->to(at::kBFloat16);
         return made.ptr();
       }},
      {"clone",
       [] {
         auto made = torch::nn::Sequential(Linear(70, 90));
         made->push_back(std::dynamic_pointer_cast<LinearImpl>(made->ptr(0)->clone()));
         return made.ptr();
       }},
      {"pretrained", bag([](Bag& b) {
         b.parameter("copy", pretrained.clone());
         b.parameter("own", at::empty({40, 60})).detach().copy_(pretrained).mul_(2);
         b.parameter("last", at::rand({40}));
       })},
      {"frozen", bag([](Bag& b) {
         b.parameter("w", at::rand({3000})).set_requires_grad(false);
         b.parameter("last", at::rand({40}));
       })},
  };
  return all;
}

bool share_storage(const at::Tensor& one, const at::Tensor& other) {
  return one.storage().unsafeGetStorageImpl() == other.storage().unsafeGetStorageImpl();
}

struct Ordinary {
  Tensors tensors;
  at::Tensor generator;
};
Ordinary made_ordinarily(const DeferredModel::Make& make) {
  const ReplicaRandom random(7);
  const auto module = make();
  return {tensors_of(*module), random.mark()};
}

std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const auto& [name, make] : models()) names.push_back(name);
  return names;
}

class DeferredModelOf : public ::testing::TestWithParam<std::string> {
 protected:
  const DeferredModel::Make& make() const { return models().at(GetParam()); }
  const Ordinary expected_ = made_ordinarily(make());
};
INSTANTIATE_TEST_SUITE_P(Models, DeferredModelOf, ::testing::ValuesIn(names()),
                         [](const auto& each) { return each.param; });

TEST_P(DeferredModelOf, IsHollowWithTheFormsOfTheOrdinaryOne) {
  const ReplicaRandom random(7);
  const at::Tensor before = random.mark();
  const DeferredModel model(make());
  EXPECT_THAT(model.obstacle(), IsEmpty());
  EXPECT_TRUE(at::equal(random.mark(), before));
  const Tensors tensors = tensors_of(*model.module());
  ASSERT_EQ(tensors.size(), expected_.tensors.size());
  for (const auto& [name, tensor] : expected_.tensors) {
    const at::Tensor& hollow = tensors.at(name);
    EXPECT_EQ(is_hollow(hollow), tensor.numel() > 0) << name;
    EXPECT_EQ(hollow.sizes(), tensor.sizes()) << name;
    EXPECT_EQ(hollow.strides(), tensor.strides()) << name;
    EXPECT_EQ(hollow.storage_offset(), tensor.storage_offset()) << name;
    EXPECT_EQ(hollow.storage().nbytes(), tensor.storage().nbytes()) << name;
    EXPECT_EQ(hollow.dtype(), tensor.dtype()) << name;
    EXPECT_EQ(hollow.requires_grad(), tensor.requires_grad()) << name;
    EXPECT_EQ(hollow.is_leaf(), tensor.is_leaf()) << name;
  }
}

TEST_P(DeferredModelOf, AnyTensorAloneHasItsOrdinaryValues) {
  for (const auto& [own, expected] : expected_.tensors) {
    const ReplicaRandom random(7);
    DeferredModel model(make());
    model.materialise({own});
    EXPECT_THAT(model.obstacle(), IsEmpty());
    const Tensors tensors = tensors_of(*model.module());
    ASSERT_FALSE(is_hollow(tensors.at(own))) << own;
    EXPECT_TRUE(at::equal(tensors.at(own), expected)) << own;
    EXPECT_TRUE(at::equal(random.mark(), expected_.generator)) << own;
    for (const auto& [name, tensor] : tensors)
      EXPECT_EQ(is_hollow(tensor), tensor.numel() > 0 && !share_storage(tensor, tensors.at(own)))
          << name << " beside " << own;
  }
}

TEST_P(DeferredModelOf, AllTensorsTogetherHaveTheirOrdinaryValues) {
  const ReplicaRandom random(7);
  DeferredModel model(make());
  std::set<std::string> all;
  for (const auto& [name, tensor] : expected_.tensors) all.insert(name);
  model.materialise(all);
  for (const auto& [name, tensor] : tensors_of(*model.module()))
    EXPECT_TRUE(at::equal(tensor, expected_.tensors.at(name))) << name;
  EXPECT_TRUE(at::equal(random.mark(), expected_.generator));
}

TEST_P(DeferredModelOf, TensorsMayComeOneAfterTheOther) {
  const ReplicaRandom random(7);
  DeferredModel model(make());
  model.materialise({});
  at::rand({5});
  const at::Tensor later = random.mark();
  for (const auto& [name, tensor] : expected_.tensors) model.materialise({name});
  EXPECT_TRUE(at::equal(random.mark(), later)) << "only the first call draws";
  for (const auto& [name, tensor] : tensors_of(*model.module()))
    EXPECT_TRUE(at::equal(tensor, expected_.tensors.at(name))) << name;
}

// Models that cannot be made without their memory.
const std::map<std::string, std::pair<DeferredModel::Make, std::string>>& obstacles() {
  static const at::Tensor elsewhere = at::zeros({3});
  static const std::map<std::string, std::pair<DeferredModel::Make, std::string>> all{
      {"a_drawn_number",
       {bag([](Bag& b) {
          const double scale = at::rand({1}).item<double>();
          b.parameter("w", at::rand({3000}) * scale);
          b.parameter("last", at::rand({30}));
        }),
        "_local_scalar_dense"}},
      {"a_loop_until_it_fits",
       {bag([](Bag& b) {
          at::Tensor weight = at::randn({3000});
          while ((weight > 3).any().item<bool>())
            weight = at::where(weight > 3, at::randn({3000}), weight);
          b.parameter("w", weight);
          b.parameter("last", at::rand({30}));
        }),
        "_local_scalar_dense"}},
      {"a_pointer",
       {bag([](Bag& b) {
          const at::Tensor weight = b.parameter("w", at::empty({3000}));
          for (int i = 0; i < 3000; ++i) weight.data_ptr<float>()[i] = static_cast<float>(i);
          b.parameter("last", at::rand({30}));
        }),
        "hollow"}},
      {"a_size_that_depends_on_values",
       {bag([](Bag& b) {
          const at::Tensor weight = b.parameter("w", at::rand({3000}));
          b.buffer("places", at::nonzero(weight.detach() > 0.5));
        }),
        "nonzero"}},
      {"a_change_of_another_tensor",
       {bag([](Bag& b) {
          elsewhere.fill_(4);
          b.parameter("w", at::rand({3000}) * elsewhere.sum());
        }),
        "fill_"}},
  };
  return all;
}

TEST(DeferredModel, AModelWithAnObstacleIsAllocatedAsAWholeAndHasTheSameValues) {
  for (const auto& [what, obstacle] : obstacles()) {
    const auto& [make, reason] = obstacle;
    const Ordinary expected = made_ordinarily(make);
    const ReplicaRandom random(7);
    const at::Tensor before = random.mark();
    DeferredModel model(make);
    EXPECT_THAT(model.obstacle(), HasSubstr(reason)) << what;
    EXPECT_TRUE(at::equal(random.mark(), before)) << what;
    for (const auto& [name, tensor] : tensors_of(*model.module()))
      EXPECT_TRUE(is_hollow(tensor)) << what << " " << name;
    model.materialise({"w"});
    for (const auto& [name, tensor] : tensors_of(*model.module())) {
      EXPECT_EQ(is_hollow(tensor), name != "w") << what << " " << name;
      if (name == "w") {
        EXPECT_TRUE(at::equal(tensor, expected.tensors.at(name))) << what;
      }
    }
    EXPECT_TRUE(at::equal(random.mark(), expected.generator)) << what;
  }
}

TEST(DeferredModel, TheProcesssGeneratorIsUsedWithoutAReplicaRandom) {
  const auto make = models().at("linears");
  at::manual_seed(9);
  const Tensors expected = tensors_of(*make());
  const at::Tensor after = at::rand({4});
  at::manual_seed(9);
  DeferredModel model(make);
  model.materialise({"1.weight"});
  EXPECT_TRUE(at::equal(tensors_of(*model.module()).at("1.weight"), expected.at("1.weight")));
  EXPECT_TRUE(at::equal(at::rand({4}), after));
}

TEST(DeferredModel, AGeneratorThatTheModelNamesIsUsed) {
  const auto shared = at::detail::createCPUGenerator(3);
  const auto make = bag([shared](Bag& b) {
    b.parameter("first", at::randn({2000}, shared, at::kFloat));
    b.parameter("own", at::randn({2000}, at::detail::createCPUGenerator(4), at::kFloat));
    b.parameter("last", at::randn({2000}, shared, at::kFloat));
  });
  DeferredModel model(make);
  model.materialise({"last"});
  model.materialise({"own", "first"});
  const at::Generator fresh = at::detail::createCPUGenerator(3);
  const at::Tensor first = at::randn({2000}, fresh, at::kFloat);
  const Tensors tensors = tensors_of(*model.module());
  EXPECT_TRUE(at::equal(tensors.at("first"), first));
  EXPECT_TRUE(at::equal(tensors.at("last"), at::randn({2000}, fresh, at::kFloat)));
}

TEST(DeferredModel, TensorsThatTheModuleHasNotRegisteredGetTheirValues) {
  DeferredModel model(bag([](Bag& b) {
    b.unregistered.push_back(at::ones({70, 70}).tril());
    b.parameter("w", at::rand({3000}));
    b.unregistered.push_back(at::linspace(0, 1, 5));
    b.unregistered.push_back(at::rand({20}));
  }));
  const auto& held = static_cast<const Bag&>(*model.module()).unregistered;
  model.materialise({});
  EXPECT_EQ(held[0].sum().item<double>(), 70 * 71 / 2);
  EXPECT_EQ(held[1][4].item<double>(), 1);
  EXPECT_GT(held[2].sum().item<double>(), 0);
  EXPECT_TRUE(is_hollow(tensors_of(*model.module()).at("w")));
}

TEST(DeferredModel, TiedTensorsGetOneMemory) {
  DeferredModel model(models().at("tied"));
  model.materialise({"head"});
  const Tensors tensors = tensors_of(*model.module());
  EXPECT_EQ(tensors.at("head").const_data_ptr(), tensors.at("embedding").const_data_ptr());
  EXPECT_TRUE(tensors.at("head").is_same(tensors.at("embedding")));
}

TEST(DeferredModel, TheFirstModulesTensorsStayTheObjectsThatTheyWere) {
  DeferredModel model(models().at("linears"));
  const Tensors before = tensors_of(*model.module());
  model.materialise({"1.weight"});
  const Tensors after = tensors_of(*model.module());
  for (const auto& [name, tensor] : before) EXPECT_TRUE(tensor.is_same(after.at(name)));
}

TEST(DeferredModel, AReleasedTensorIsHollowAndCanBeMadeAgain) {
  const Ordinary expected = made_ordinarily(models().at("linears"));
  const ReplicaRandom random(7);
  DeferredModel model(models().at("linears"));
  model.materialise({"0.weight", "1.weight"});
  const Tensors tensors = tensors_of(*model.module());
  model.release({"0.weight"});
  EXPECT_TRUE(is_hollow(tensors.at("0.weight")));
  EXPECT_FALSE(is_hollow(tensors.at("1.weight")));
  model.materialise({"0.weight"});
  EXPECT_TRUE(at::equal(tensors.at("0.weight"), expected.tensors.at("0.weight")));
}

TEST(DeferredModel, AnUnknownNameIsRefused) {
  DeferredModel model(models().at("linears"));
  try {
    model.materialise({"7.weight"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("7.weight"));
  }
  EXPECT_THROW(model.release({"7.weight"}), Error);
}

TEST(DeferredModel, AFactoryThatMakesAnotherModelEachTimeIsRefused) {
  int calls = 0;
  DeferredModel model(bag([&calls](Bag& b) { b.parameter("w", at::rand({100 + ++calls})); }));
  EXPECT_THROW(model.materialise({"w"}), Error);
}

TEST(DeferredModel, TheFactorysOwnErrorIsThrown) {
  const auto make = bag([](Bag&) { throw std::runtime_error("no such file"); });
  EXPECT_THROW(DeferredModel model(make), std::runtime_error);
}

TEST(DeferredModel, ThreadsMakeTheirModelsAtTheSameTime) {
  const auto make = models().at("transformer_layer");
  const Ordinary expected = made_ordinarily(make);
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      const ReplicaRandom random(7);
      if (i == 3) {  // A thread without a pass of its own is not disturbed.
        for (const auto& [name, tensor] : tensors_of(*make()))
          if (!at::equal(tensor, expected.tensors.at(name))) return;
        ++right;
        return;
      }
      DeferredModel model(make);
      model.materialise({"linear1.weight"});
      if (at::equal(tensors_of(*model.module()).at("linear1.weight"),
                    expected.tensors.at("linear1.weight")) &&
          at::equal(random.mark(), expected.generator))
        ++right;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 4);
}

TEST(DeferredModel, OnlyOwnTensorsEverGetMemory) {
  static constexpr int64_t kWidth = 3584;  // A weight has 51 MB, and the model 411 MB.
  constexpr size_t kWeightBytes = kWidth * kWidth * sizeof(float), kMegabyte = 1 << 20;
  install_cpu_allocator();
  const auto counted = std::make_shared<CountingSource>();
  const AllocationScope scope(counted);
  const ReplicaRandom random(7);
  DeferredModel model([] {
    torch::nn::Sequential blocks;
    for (int i = 0; i < 8; ++i) blocks->push_back(torch::nn::Linear(kWidth, kWidth));
    return blocks.ptr();
  });
  EXPECT_LT(counted->peak(), kMegabyte);
  model.materialise({"5.weight", "5.bias"});
  EXPECT_THAT(model.obstacle(), IsEmpty());
  EXPECT_GE(counted->live(), kWeightBytes);
  EXPECT_LT(counted->peak(), kWeightBytes + kMegabyte);
  model.release({"5.weight", "5.bias"});
  EXPECT_LT(counted->live(), kMegabyte);
}

}  // namespace
}  // namespace trireme::deferred_model_test
