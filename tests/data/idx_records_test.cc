// data.name: idx, read as a table and as records.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <trireme/data/data_kinds.h>
#include <trireme/data/kinds/idx_set.h>
#include <trireme/data/kinds/image_set.h>
#include <trireme/data/kinds/record_set.h>
#include <trireme/data/service/facts.h>
#include <trireme/data/source_makers.h>
#include <any>
#include <numeric>

#include "../base/expect_error.h"
#include "data_files.h"

namespace trireme::data {
namespace idx_records_tests {

using testing::ElementsAre;

constexpr uint32_t kImages = 0x00000803, kLabels = 0x00000801;
constexpr const char* kStages = "random_crop(28, padding=2) | normalise(0.13, std=0.31)";

// Images of 28 x 28 pixels. The labels go round from 0 to 9.
std::string images_of(uint32_t count, unsigned seed) {
  std::string pixels;
  for (uint32_t i = 0; i < count * 28 * 28; ++i)
    pixels += static_cast<char>((i * 31 + seed) * 2654435761U >> 24);
  return idx(kImages, {count, 28, 28}, pixels);
}
std::string labels_of(uint32_t count) {
  std::string labels;
  for (uint32_t i = 0; i < count; ++i) labels += static_cast<char>(i % 10);
  return idx(kLabels, {count}, labels);
}

// A folder as MNIST's, one of whose files is packed.
struct MnistFolder {
  Folder folder;
  explicit MnistFolder(bool has_test = true) {
    folder.write("train-images-idx3-ubyte", images_of(40, 1));
    folder.write("train-labels-idx1-ubyte.gz", gzipped(labels_of(40)));
    if (!has_test) return;
    folder.write("t10k-images-idx3-ubyte", images_of(12, 2));
    folder.write("t10k-labels-idx1-ubyte", labels_of(12));
  }
  std::string path(const std::string& name = "") const {
    return name.empty() ? folder.path().string() : (folder.path() / name).string();
  }
  DataOptions options(const std::string& stages = "") const {
    DataOptions made;
    made.name = "idx";
    made.path = path();
    made.stages = stages;
    return made;
  }
};

bool has_records(const Dataset& data) { return std::any_cast<RecordParts>(&data.samples); }

std::vector<int64_t> numbers_to(int64_t count) {
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

Example all_of(const std::shared_ptr<const Source>& source) {
  return source->get_batch(Draws(numbers_to(source->size()), 1, 7));
}

TEST(IdxRecords, HaveTheSamplesAndTheContentOfTheTable) {
  const MnistFolder mnist;
  const DataOptions options = mnist.options();
  const Dataset table = read_idx_set(options), records = read_record_set(options);
  EXPECT_FALSE(has_records(table));
  EXPECT_TRUE(has_records(records));
  for (const Dataset* const data : {&table, &records}) {
    EXPECT_EQ(data->train_samples, 40);
    EXPECT_EQ(data->test_samples, 12);
    EXPECT_THAT(data->input.shape, ElementsAre(1, 28, 28));
    EXPECT_EQ(data->input.classes, 10);
    EXPECT_TRUE(data->train_blocks.empty());
  }
  EXPECT_EQ(records.content, table.content);
  EXPECT_EQ(records.test_content, table.test_content);
  const Sources of_table = make_sources("idx", table), of_records = make_sources("idx", records);
  for (const auto part : {&Sources::train, &Sources::test}) {
    const Example wanted = all_of(of_table.*part), found = all_of(of_records.*part);
    EXPECT_TRUE(at::equal(found.data, wanted.data));
    EXPECT_TRUE(at::equal(found.target, wanted.target));
  }
}

TEST(IdxRecords, AreReadFromFilesThatZstdPacked) {
  const MnistFolder mnist;
  DataOptions options = mnist.options();
  const std::string content = read_idx_set(options).content;
  mnist.folder.write("train-images-idx3-ubyte", zstd_packed(images_of(40, 1)));
  EXPECT_EQ(read_idx_set(options).content, content);
  EXPECT_EQ(read_record_set(options).content, content);
}

TEST(IdxRecords, GoThroughStages) {
  const MnistFolder mnist;
  const Dataset plain = read_idx_set(mnist.options()), data = read_idx_set(mnist.options(kStages));
  ASSERT_TRUE(has_records(data));
  EXPECT_EQ(data.content, plain.content);
  EXPECT_EQ(data.test_content, plain.test_content);
  EXPECT_THAT(data.input.shape, ElementsAre(1, 28, 28));
  const Sources sources = make_sources("idx", data), pixels = make_sources("idx", plain);
  const Example train = all_of(sources.train), original = all_of(pixels.train);
  EXPECT_EQ(train.data.sizes(), at::IntArrayRef({40, 1, 28, 28}));
  EXPECT_TRUE(at::equal(train.target, original.target));
  EXPECT_TRUE(at::equal(all_of(sources.train).data, train.data));
  EXPECT_FALSE(at::allclose(train.data, (original.data - 0.13) / 0.31, 1e-5, 1e-5));
  // An evaluation cuts the middle out, which is the whole image.
  EXPECT_TRUE(at::allclose(all_of(sources.test).data, (all_of(pixels.test).data - 0.13) / 0.31,
                           1e-5, 1e-5));
}

TEST(IdxRecords, AreReadWhereAKeyNeedsThem) {
  const DataOptions plain = MnistFolder().options();
  EXPECT_FALSE(needs_records(plain));
  const auto with = [&](auto change) {
    DataOptions options = plain;
    change(options);
    return needs_records(options);
  };
  EXPECT_TRUE(with([](DataOptions& o) { o.stages = "normalise"; }));
  EXPECT_TRUE(with([](DataOptions& o) { o.test_stages = "normalise"; }));
  EXPECT_TRUE(with([](DataOptions& o) { o.inputs = "image"; }));
  EXPECT_TRUE(with([](DataOptions& o) { o.target = "label"; }));
  EXPECT_TRUE(with([](DataOptions& o) { o.on_bad_record = "skip"; }));
  EXPECT_TRUE(with([](DataOptions& o) { o.service = "host"; }));
  EXPECT_TRUE(with([](DataOptions& o) { o.path = "https://host/train-images-idx3-ubyte"; }));
  EXPECT_TRUE(with([](DataOptions& o) { o.test_labels = "http://host/labels"; }));
  EXPECT_FALSE(with([](DataOptions& o) { o.cache_bytes = 5, o.bad_records = 3, o.classes = 12; }));
}

TEST(IdxRecords, HoldOutTheSamplesThatTheTableDoes) {
  const MnistFolder mnist(/*has_test=*/false);
  DataOptions options = mnist.options();
  options.test_fraction = 0.25;
  const Dataset table = read_idx_set(options), records = read_record_set(options);
  EXPECT_EQ(records.test_samples, 10);
  EXPECT_EQ(records.split.test.numbers(), table.split.test.numbers());
  const Sources of_table = make_sources("idx", table), of_records = make_sources("idx", records);
  EXPECT_TRUE(at::equal(all_of(of_records.train).data, all_of(of_table.train).data));
  EXPECT_TRUE(at::equal(all_of(of_records.test).target, all_of(of_table.test).target));
}

TEST(IdxRecords, ComeFromFilesThatKeysName) {
  const MnistFolder mnist, other;
  for (const char* const stages : {"", kStages}) {
    DataOptions named;
    named.name = "idx";
    named.stages = stages;
    named.images = mnist.path("train-images-idx3-ubyte");
    named.labels = mnist.path("train-labels-idx1-ubyte.gz");
    check(named);
    EXPECT_EQ(read_idx_set(named).train_samples, 32);  // A fifth is held out.
    named.test_images = mnist.path("t10k-images-idx3-ubyte");
    EXPECT_THROW(check(named), Error);
    named.test_labels = mnist.path("t10k-labels-idx1-ubyte");
    EXPECT_EQ(read_idx_set(named).test_samples, 12);

    DataOptions file = mnist.options(stages);
    file.path = mnist.path("t10k-images-idx3-ubyte");  // Its labels lie beside it.
    file.test_path = mnist.path("train-images-idx3-ubyte");
    EXPECT_EQ(read_idx_set(file).train_samples, 12);
    EXPECT_EQ(read_idx_set(file).test_samples, 40);
    file.test_path = other.path();  // Its test part.
    EXPECT_EQ(read_idx_set(file).test_samples, 12);
    file.test_images = named.test_images;
    expect_error([&] { check(file); }, ErrorCode::invalid_argument,
                 {"data.test_path", "data.test_images"});

    DataOptions lonely = mnist.options(stages);
    lonely.path = mnist.folder.write("lonely", images_of(2, 3)).string();
    expect_error([&] { read_idx_set(lonely); }, ErrorCode::not_found,
                 {"data.path", "lonely", "labels-idx1", "data.labels=FILE"});
    lonely.labels = mnist.folder.write("marks", labels_of(2)).string();
    lonely.test_fraction = 0;
    EXPECT_EQ(read_idx_set(lonely).train_samples, 2);
  }
}

TEST(IdxRecords, ComeFromFilesOfAServer) {
  DataOptions options;
  options.name = "idx";
  options.path = "https://me:secret@host/mnist/train-images-idx3-ubyte.gz";
  IdxFiles files = find_idx_files(options);
  EXPECT_EQ(files.images, options.path);
  EXPECT_EQ(files.labels, "https://me:secret@host/mnist/train-labels-idx1-ubyte.gz");
  EXPECT_TRUE(files.test_images.empty()) << "no folder of a server can be looked through";
  options.test_path = "https://host/mnist/t10k-images-idx3-ubyte";
  EXPECT_EQ(find_idx_files(options).test_labels, "https://host/mnist/t10k-labels-idx1-ubyte");
  options.path += "?signature=secret";
  const std::string said = message_of(ErrorCode::not_found, [&] { find_idx_files(options); });
  EXPECT_NE(said.find("data.labels=FILE"), std::string::npos) << said;
  EXPECT_EQ(said.find("secret"), std::string::npos) << said;
  options.labels = "https://host/labels?signature=other";
  EXPECT_EQ(find_idx_files(options).labels, options.labels);
  EXPECT_TRUE(find_kind("idx")->uses("data.download_dir"));
  EXPECT_TRUE(find_kind("parquet")->uses("data.download_dir"));
  EXPECT_FALSE(find_kind("image_list")->uses("data.download_dir"));
}

TEST(IdxRecords, OfPartsOfOtherSizesAreRefused) {
  const MnistFolder mnist;
  mnist.folder.write("t10k-images-idx3-ubyte", idx(kImages, {12, 1, 2}, std::string(24, 'x')));
  for (const char* const stages : {"", "normalise"})
    expect_error([&] { read_idx_set(mnist.options(stages)); }, ErrorCode::invalid_argument,
                 {"t10k-images-idx3-ubyte"});
}

TEST(IdxRecords, NameARecordWhoseLabelIsNoClass) {
  const MnistFolder mnist;
  DataOptions options = mnist.options("normalise");
  options.classes = 9;
  expect_error([&] { read_idx_set(options); }, ErrorCode::invalid_argument,
               {"train-images-idx3-ubyte, record 9", "the label is 9", "data.classes=9"});
}

TEST(IdxRecords, HaveAnIndexAndFactsForBothParts) {
  const MnistFolder mnist;
  const std::vector<PartFiles> parts = files_of_parts(mnist.options());
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(records::open_records(parts[0].open)->size(), 40);
  EXPECT_EQ(records::open_records(parts[1].open)->size(), 12);
  DataOptions options = mnist.options();
  options.service = "host";
  const Dataset data = read_idx_set(options);
  const std::vector<PartFacts> facts = facts_of_parts(data);
  ASSERT_EQ(facts.size(), 2U);
  EXPECT_EQ(facts[0].samples, 40);
  EXPECT_EQ(facts[1].samples, 12);
  EXPECT_NE(facts[0].digest, facts[1].digest);
}

TEST(IdxRecords, StandInMixturesAndBesideOtherRecords) {
  const MnistFolder mnist, other(/*has_test=*/false);
  DataOptions mixture;
  mixture.name = "mixture";
  mixture.stages = kStages;
  mixture.test_fraction = 0.1;
  mixture.sources = R"([{"name": "idx", "path": ")" + mnist.path() +
                    R"("}, {"name": "idx", "images": ")" + other.path("train-images-idx3-ubyte") +
                    R"(", "labels": ")" + other.path("train-labels-idx1-ubyte.gz") + R"("}])";
  check(mixture);
  const Dataset mixed = find_kind("mixture")->read(mixture);
  EXPECT_EQ(mixed.train_samples, 40 + 36);
  EXPECT_EQ(mixed.test_samples, 12 + 4);
  const Sources of_mixture = make_sources("mixture", mixed);
  EXPECT_EQ(of_mixture.train->get(0).data.sizes(), at::IntArrayRef({1, 28, 28}));
  mixture.stages = "";
  EXPECT_EQ(find_kind("mixture")->read(mixture).train_samples, 40 + 36);
  mixture.test_stages = "pad";
  EXPECT_THROW(find_kind("mixture")->read(mixture), Error);

  std::string weights = "weight\n";
  for (int i = 0; i < 40; ++i) weights += std::to_string(i) + "\n";
  DataOptions zip;
  zip.name = "zip";
  zip.target = "weight";
  zip.stages = "normalise";
  zip.test_fraction = 0;
  zip.sources = R"([{"name": "idx", "path": ")" + other.path() +
                R"("}, {"name": "csv", "path": ")" +
                other.folder.write("weights.csv", weights).string() + R"("}])";
  check(zip);
  const Dataset zipped = find_kind("zip")->read(zip);
  EXPECT_EQ(zipped.train_samples, 40);
  EXPECT_EQ(make_sources("zip", zipped).train->get(7).target.item<int64_t>(), 7);
}

}  // namespace idx_records_tests
}  // namespace trireme::data
