// Pipelines as values: they give what a configuration gives.
#include <ATen/ATen.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <trireme/run/input_plan.h>
#include <trireme/run/pipeline.h>
#include <trireme/run/training.h>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "../base/expect_error.h"

namespace trireme::pipeline_value_test {
namespace {

namespace fs = std::filesystem;

// A table of 30 rows: x, z and a label.
class Table {
 public:
  Table() : file_(fs::temp_directory_path() / ("trireme-pipeline-" + std::to_string(getpid()))) {
    fs::create_directories(file_);
    std::ofstream out(path());
    out << "x,z,label\n";
    for (int i = 0; i < 30; ++i) out << i << "," << 100 + i << "," << i % 3 << "\n";
  }
  ~Table() { fs::remove_all(file_); }
  std::string path() const { return file_ / "rows.csv"; }

 private:
  fs::path file_;
};

std::vector<int64_t> first_numbers(const Batch& batch) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < batch.data.size(0); ++i)
    numbers.push_back(static_cast<int64_t>(batch.data[i][0].item<float>()));
  return numbers;
}

TEST(PipelineValue, GivesTheBatchesOfAConfiguration) {
  const Table table;
  const Pipeline rows = Pipeline("csv", table.path()).batch(7).set("test_fraction", "0.2");
  const auto [train, test, options, input] = rows.open(3);
  EXPECT_EQ(train->size(), 24);
  EXPECT_EQ(test->size(), 6);
  EXPECT_EQ(options.batch, 7);
  EXPECT_EQ(input.classes, 3);

  std::vector<std::string> settings = rows.settings();
  settings.insert(settings.end(), {"train.seed=3", "model.name=mlp"});
  const Training training = training_of(load_config({{}, settings}));
  LoaderOptions same;
  same.batch = 7;
  same.seed = 3;
  same.shuffle = training.options.shuffle;
  Loader of_pipeline(train, options), of_configuration(training.train, same);
  for (int step = 0; step < 8; ++step) {
    const Batch batch = of_pipeline.next(), wanted = of_configuration.next();
    EXPECT_EQ(batch.indices, wanted.indices);
    EXPECT_TRUE(batch.data.equal(wanted.data));
  }
}

TEST(PipelineValue, HasFunctionsAsStages) {
  const Table table;
  const std::string path = table.path();
  const Pipeline rows = Pipeline("csv", path).set("test_fraction", "0").shuffle("none").batch(6);
  const Pipeline even =
      rows.filter([](const Example& one) { return one.target.item<int64_t>() != 1; })
          .map([](Example one, const Draw&) {
            one.data = one.data.mul(2);
            return one;
          });
  // The pipeline that it was made of stays as it was.
  EXPECT_EQ(rows.describe().find("filter"), std::string::npos);
  EXPECT_NE(rows.digest(), even.digest());
  const auto plain = rows.open(), changed = even.open();
  Loader of_rows(plain.train, plain.options), of_even(changed.train, changed.options);
  EXPECT_EQ(first_numbers(of_rows.next()), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(first_numbers(of_even.next()), (std::vector<int64_t>{0, 4, 6, 10}));
  EXPECT_EQ(rows.take(4).repeat(3).open().train->size(), 12);
}

TEST(PipelineValue, MakesSamplesOfRecordsByAFunction) {
  const Table table;
  const std::string path = table.path();
  const auto number = [](const records::Record& record, const char* name) {
    int64_t value = 0;
    std::memcpy(&value, record.at(name).bytes.data(), sizeof value);
    return value;
  };
  const Pipeline sums =
      Pipeline("csv", path)
          .set("classes", "3")
          .decode_record({1}, [number](const records::Record& record, int64_t) -> Example {
            const int64_t sum = number(record, "x") + number(record, "z");
            return {at::full({1}, sum, at::kFloat),
                    at::full({}, number(record, "label"), at::kLong)};
          });
  const auto opened = sums.set("test_fraction", "0.2").batch(6).open(3);
  EXPECT_EQ(opened.input.shape, std::vector<int64_t>{1});
  EXPECT_EQ(opened.test->size(), 6);
  const Batch batch = Loader(opened.train, opened.options).next();
  const auto plain = Pipeline("csv", path).set("test_fraction", "0.2").batch(6).open(3);
  const Batch rows = Loader(plain.train, plain.options).next();
  EXPECT_EQ(batch.indices, rows.indices);
  EXPECT_TRUE(batch.target.equal(rows.target));
  EXPECT_TRUE(batch.data.equal(rows.data.sum(1, true)));
}

TEST(PipelineValue, HasTheDigestOfItsInputPlan) {
  const auto rows = [](const std::string& path) {
    return Pipeline("csv", path).set("test_fraction", "0");
  };
  EXPECT_EQ(rows("a.csv").digest(),
            input_plan_of(load_config({{},
                                       {"data.name=csv", "data.test_fraction=0", "data.path=b.csv",
                                        "model.name=mlp"}}))
                .digest());
  EXPECT_EQ(rows("a.csv").prefetch(3, 4).digest(), rows("b.csv").digest());
  EXPECT_NE(rows("a.csv").shuffle("none").digest(), rows("a.csv").digest());
  // Functions have other numbers each time.
  const auto made = [&](const std::string& version) {
    return rows("a.csv")
        .filter([](const Example&) { return true; }, version)
        .map([](Example one, const Draw&) { return one; });
  };
  EXPECT_NE(made("").describe(), made("").describe());
  EXPECT_EQ(made("").digest(), made("").digest());
  EXPECT_EQ(made("2").digest(), made("2").digest());
  EXPECT_NE(made("2").digest(), made("").digest());
  EXPECT_NE(made("2").digest(), made("3").digest());
  EXPECT_NE(made("").digest(), made("").filter([](const Example&) { return true; }).digest());
  EXPECT_EQ(Pipeline::mix({{1, made("2")}, {2, made("3")}}).digest(),
            Pipeline::mix({{1, made("2")}, {2, made("3")}}).digest());
}

TEST(PipelineValue, HasVersionsOfFunctionsForACacheOnADisk) {
  const Table table;
  const std::string folder = fs::path(table.path()).parent_path() / "caches";
  const Pipeline rows =
      Pipeline("csv", table.path()).set("test_fraction", "0").set("cache_dir", folder);
  const auto twice = [](Example one, const Draw&) {
    one.data = one.data.mul(2);
    return one;
  };
  const auto all = [](const Example&) { return true; };
  const std::string message = message_of(ErrorCode::invalid_argument, [&] {
    static_cast<void>(rows.map(twice).cache("disk").open());
  });
  EXPECT_NE(message.find("has no version"), std::string::npos) << message;
  const auto kept = rows.map(twice, "1").filter(all, "1").cache("disk").open();
  for (int time = 0; time < 2; ++time) EXPECT_EQ(kept.train->get(3).data[0].item<float>(), 6.0F);
  EXPECT_EQ(kept.train->cache_use()->hits, 1);
}

// A CIFAR file of 12 images.
std::string write_images(const fs::path& folder) {
  std::ofstream file(folder / "images.bin", std::ios::binary);
  for (int i = 0; i < 12 * 3073; ++i) file.put(static_cast<char>(i % 3073 == 0 ? i % 10 : i * 7));
  return folder / "images.bin";
}

Pipeline images_of(const std::string& path, const std::string& stages) {
  return Pipeline("cifar", path).set("test_fraction", "0").then(stages);
}

TEST(PipelineValue, GivesTheTypeOfItsNumbersToTheLoader) {
  const Table table;
  const std::string path = write_images(fs::path(table.path()).parent_path());
  const Pipeline images =
      Pipeline("cifar", path).set("test_fraction", "0").shuffle("none").batch(4);
  const auto wide = images.then("normalise(cifar10)").open();
  const auto rows = images.then("normalise(cifar10, type=bfloat16)").open();
  EXPECT_EQ(rows.input.type, plan::DType::bfloat16);
  const at::Tensor first = Loader(rows.train, rows.options).next().data;
  EXPECT_EQ(first.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(first.equal(Loader(wide.train, wide.options).next().data.to(at::kBFloat16)));
  // The batches of a mixture have one type.
  const Pipeline both = Pipeline::mix(
      {{1, images_of(path, "normalise")}, {1, images_of(path, "normalise(type=bfloat16)")}});
  const std::string message =
      message_of(ErrorCode::invalid_argument, [&] { static_cast<void>(both.open()); });
  EXPECT_NE(message.find("bfloat16 numbers"), std::string::npos) << message;
}

TEST(PipelineValue, FindsThePlaceOfItsCache) {
  const Table table;
  const Pipeline rows = Pipeline("csv", table.path()).set("test_fraction", "0").shuffle("none");
  const Pipeline slow = rows.filter([](const Example&) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
    while (std::chrono::steady_clock::now() < end) continue;
    return true;
  });
  const auto with_cache = slow.set("cache", "auto").open();
  EXPECT_TRUE(with_cache.train->cache_use().has_value());
  EXPECT_TRUE(with_cache.train->get(3).data.equal(slow.open().train->get(3).data));
  EXPECT_FALSE(slow.open().train->cache_use().has_value());
  EXPECT_FALSE(slow.set("cache", "auto").set("cache_bytes", "0").open().train->cache_use());
  const std::string message = message_of(ErrorCode::invalid_argument, [&] {
    static_cast<void>(slow.cache().set("cache", "auto").open());
  });
  EXPECT_NE(message.find("has a stage cache"), std::string::npos) << message;
}

// Hosts of a job may have their caches at different places.
TEST(PipelineValue, ThePlaceOfACacheNeedNotBeAgreedUpon) {
  const auto agreed = [](const std::string& stages) {
    return keys_to_agree(load_options(
        "", {"data.name=cifar", "data.path=x", "data.stages=" + stages, "model.name=mlp"}));
  };
  const Json plain = agreed("decode | flip | normalise");
  EXPECT_EQ(agreed("decode | cache | flip | normalise"), plain);
  EXPECT_EQ(agreed("decode | cache(disk) | flip | normalise"), plain);
  EXPECT_NE(agreed("decode | normalise"), plain);
  // A function in front of a cache gets another draw, so it may give other samples.
  EXPECT_NE(agreed("decode | normalise | map(f) | cache"), agreed("decode | normalise | map(f)"));
}

TEST(PipelineValue, ZipsAndMixesOthers) {
  const Table table;
  const Pipeline rows = Pipeline("csv", table.path()).set("test_fraction", "0");
  const auto mixed =
      Pipeline::mix({{3, rows}, {1, rows}}).set("epoch_samples", "40").batch(40).open();
  Loader loader(mixed.train, mixed.options);
  const std::vector<int64_t> indices = loader.next().indices;
  EXPECT_EQ(std::ranges::count_if(indices, [](int64_t index) { return index < 30; }), 30);

  const std::string later = fs::path(table.path()).parent_path() / "later.csv";
  std::ofstream others(later);
  others << "x,z,label\n";
  for (int i = 0; i < 30; ++i) others << 1000 + i << ",0," << i % 3 << "\n";
  others.close();
  const Pipeline interleaved =
      Pipeline::mix({{1, rows}, {1, Pipeline("csv", later).set("test_fraction", "0")}});
  const auto in_turn = interleaved.shuffle("none").batch(6).open();
  EXPECT_EQ(first_numbers(Loader(in_turn.train, in_turn.options).next()),
            (std::vector<int64_t>{0, 1000, 1, 1001, 2, 1002}));

  const std::string names = fs::path(table.path()).parent_path() / "more.csv";
  std::ofstream out(names);
  out << "w\n";
  for (int i = 0; i < 30; ++i) out << 7 * i << "\n";
  out.close();
  const auto zipped = Pipeline::zip({Pipeline("csv", table.path()), Pipeline("csv", names)})
                          .set("inputs", "x,w")
                          .set("target", "label")
                          .set("test_fraction", "0")
                          .open();
  EXPECT_TRUE(zipped.train->get(2).data.equal(at::tensor({2.0F, 14.0F})));
}

TEST(PipelineValue, NamesWhatIsWrongBeforeItReads) {
  const auto refused = [](auto action, std::string_view part) {
    const std::string message = message_of(ErrorCode::invalid_argument, action);
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  const Pipeline rows("csv", "nowhere.csv");
  refused([] { Pipeline("cvs", "x"); }, "cvs");
  refused([&] { static_cast<void>(rows.then("decoed")); }, "decoed");
  refused([&] { static_cast<void>(rows.set("bach", "3").open()); }, "data.bach");
  refused([&] { static_cast<void>(Pipeline::mix({{1, rows.batch(3)}})); }, "data.batch");
  EXPECT_THROW(rows.open(), Error);
}

}  // namespace
}  // namespace trireme::pipeline_value_test
