#include <fmt/format.h>
#include <gmock/gmock.h>
#include <numeric>

#include "files.h"
#include "gone_server.h"

namespace trireme::records {
namespace idx_tests {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr uint32_t kImages = 0x00000803, kLabels = 0x00000801;

// Magic number and sizes (big-endian), then the values.
std::string idx_of(uint32_t magic, const std::vector<uint32_t>& sizes, const std::string& values) {
  std::string bytes;
  const auto append = [&](uint32_t number) {
    for (unsigned shift = 32; shift > 0; shift -= 8)
      bytes += static_cast<char>(number >> (shift - 8) & 0xff);
  };
  append(magic);
  for (const uint32_t size : sizes) append(size);
  return bytes + values;
}

// Images of 2 x 3 pixels, which are numbers from `first` on.
std::string images_of(uint32_t count, int first = 0) {
  std::string pixels(6UL * count, '\0');
  std::iota(pixels.begin(), pixels.end(), static_cast<char>(first));
  return idx_of(kImages, {count, 2, 3}, pixels);
}

std::string labels_of(const std::string& labels) {
  return idx_of(kLabels, {static_cast<uint32_t>(labels.size())}, labels);
}

const std::string kTrainImages = "train-images-idx3-ubyte",
                  kTrainLabels = "train-labels-idx1-ubyte", kTestImages = "t10k-images-idx3-ubyte",
                  kTestLabels = "t10k-labels-idx1-ubyte";

void write_train(const Folder& folder) {
  folder.write(kTrainImages, images_of(3));
  folder.write(kTrainLabels, labels_of("\x05\xff\x02"));
}

OpenOptions options_of(const fs::path& path) {
  OpenOptions options;
  options.format = "idx";
  options.path = path;
  return options;
}

std::string refusal_of(const OpenOptions& options, ErrorCode code) {
  return message_of(code, [&] { open_records(options); });
}

int64_t label_in(const Reader& reader, int64_t index) {
  return numbers_of<int64_t>(read_record(reader, index).at("label")).at(0);
}

void expect_three_images(const Reader& reader) {
  ASSERT_EQ(reader.size(), 3);
  const int64_t labels[] = {5, 255, 2};
  Record record;
  for (int64_t i = 0; i < 3; ++i) {
    reader.read(i, record);
    std::vector<uint8_t> pixels(6);
    std::iota(pixels.begin(), pixels.end(), static_cast<uint8_t>(6 * i));
    EXPECT_EQ(numbers_of<uint8_t>(record.at("image")), pixels);
    EXPECT_THAT(record.at("image").shape, testing::ElementsAre(1, 2, 3));
    EXPECT_EQ(numbers_of<int64_t>(record.at("label")), (std::vector<int64_t>{labels[i]}));
    EXPECT_TRUE(record.at("label").shape.empty());
    EXPECT_EQ(reader.label(i), labels[i]);
  }
}

TEST(IdxFormat, ReadsTheFilesOfAFolder) {
  const Folder folder;
  write_train(folder);
  const auto reader = open_path(folder.path());  // The names tell the format.
  expect_three_images(*reader);
  EXPECT_THAT(reader->place(2), HasSubstr(kTrainImages + ", record 2 at byte 28"));
  EXPECT_THAT(reader->blocks(), testing::ElementsAre(3));
  ASSERT_EQ(reader->fields().size(), 2U);
  EXPECT_EQ(reader->fields()[0].shape, (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(reader->fields()[1].dtype, plan::DType::int64);
  EXPECT_NE(reader->stamp(0), 0);
  EXPECT_THROW(read_record(*reader, 3), Error);
  EXPECT_THROW(reader->label(-1), Error);
}

TEST(IdxFormat, ReadsTheFilesOfAServer) {
  const Folder folder;
  write_train(folder);
  const GoneServer server;
  const std::string images = server.put(kTrainImages + ".gz", gzipped(images_of(3)));
  const OpenOptions options = server.options("idx", images);
  EXPECT_THAT(refusal_without_secret(options, ErrorCode::io),
              HasSubstr("data/" + kTrainLabels + ".gz: it cannot be fetched"));
  server.put(kTrainLabels + ".gz", gzipped(labels_of("\x05\xff\x02")));
  const auto reader = open_records(options);
  expect_three_images(*reader);
  expect_same_records(*reader, *open_path(folder.path()));
  const int64_t stamp = reader->stamp(0);
  server.put(kTrainLabels + ".gz", gzipped(labels_of("\x05\xff\x03")));
  EXPECT_NE(open_records(options)->stamp(0), stamp);
}

TEST(IdxFormat, TakesLabelsThatTheOptionNamesForImagesOfAServer) {
  const Folder folder;
  write_train(folder);
  const GoneServer server;
  OpenOptions options = server.options("idx", server.put("images", images_of(3)));
  options.labels = folder.path(kTrainLabels);
  expect_three_images(*open_records(options));
  options.labels = server.put("numbers", labels_of("\x05\xff\x02"));
  expect_three_images(*open_records(options));
  options.labels.clear();
  options.path += "?signature=secret";  // That of the labels is another one.
  EXPECT_THAT(refusal_without_secret(options, ErrorCode::not_found),
              AllOf(HasSubstr("127.0.0.1:1/data/images"), HasSubstr("the option labels")));
  options.part = "test";
  EXPECT_THAT(refusal_without_secret(options, ErrorCode::invalid_argument), HasSubstr("no part"));
  options.part.clear();
  options.path = GoneServer::address("{a,b}-images");
  EXPECT_THAT(refusal_without_secret(options, ErrorCode::invalid_argument), HasSubstr("2 files"));
}

TEST(IdxFormat, ReadsThePartThatIsChosen) {
  const Folder folder;
  write_train(folder);
  OpenOptions options = options_of(folder.path());
  options.part = "test";
  EXPECT_THAT(refusal_of(options, ErrorCode::not_found),
              AllOf(HasSubstr(kTestImages), HasSubstr(kTestImages + ".gz")));
  folder.write(kTestImages + ".gz", gzipped(images_of(1, 9)));
  EXPECT_THAT(refusal_of(options, ErrorCode::not_found), HasSubstr(kTestLabels));
  folder.write(kTestLabels, labels_of("\x07"));
  EXPECT_EQ(label_in(*open_records(options), 0), 7);
  options.part = "train";
  expect_three_images(*open_records(options));
  options.part = "tests";
  EXPECT_THAT(refusal_of(options, ErrorCode::invalid_argument), HasSubstr("'tests'"));
  options.part = "test";
  options.path = folder.path(kTrainImages);
  EXPECT_THAT(refusal_of(options, ErrorCode::invalid_argument), HasSubstr("is a file"));
}

TEST(IdxFormat, ReadsPackedFilesWithTheSameContent) {
  const Folder plain, packed, other;
  write_train(plain);
  packed.write(kTrainImages + ".gz", gzipped(images_of(3)));
  packed.write(kTrainLabels + ".gz", gzipped(labels_of("\x05\xff\x02")));
  other.write(kTrainImages, images_of(3));
  other.write(kTrainLabels, labels_of("\x05\xff\x03"));
  const auto reader = open_path(packed.path());
  expect_three_images(*reader);
  EXPECT_EQ(reader->content(), open_path(plain.path())->content());
  EXPECT_NE(reader->content(), open_path(other.path())->content());
}

TEST(IdxFormat, FindsTheLabelsBesideAFileOfImages) {
  const Folder folder;
  folder.write("letters-images-idx3-ubyte.gz", gzipped(images_of(3)));
  OpenOptions options = options_of(folder.path("letters-images-idx3-ubyte.gz"));
  EXPECT_THAT(refusal_of(options, ErrorCode::not_found),
              AllOf(HasSubstr("letters-images"), HasSubstr("option labels")));
  options.labels = folder.write("others", labels_of("\x05\xff\x02"));
  expect_three_images(*open_records(options));
  options.labels = folder.path("absent");
  EXPECT_THAT(refusal_of(options, ErrorCode::not_found), HasSubstr("absent"));
  folder.write("letters-labels-idx1-ubyte", labels_of("\x01\x02\x03"));
  options.labels = "";
  EXPECT_EQ(label_in(*open_records(options), 2), 3);
  options.path = folder.path("nothing");
  EXPECT_THAT(refusal_of(options, ErrorCode::not_found), HasSubstr("nothing"));
  EXPECT_THAT(
      refusal_of({.format = "csv", .path = "x.csv", .labels = "y"}, ErrorCode::invalid_argument),
      HasSubstr("no option labels"));
}

TEST(IdxFormat, NamesTheFileThatIsWrong) {
  const Folder folder;
  write_train(folder);
  const OpenOptions options = options_of(folder.path());
  folder.write(kTrainLabels, labels_of("\x05\x09"));
  EXPECT_THAT(refusal_of(options, ErrorCode::invalid_argument),
              AllOf(HasSubstr("3 images"), HasSubstr("2 labels"), HasSubstr(kTrainImages),
                    HasSubstr(kTrainLabels)));
  folder.write(kTrainLabels, images_of(3));
  EXPECT_THAT(refusal_of(options, ErrorCode::corrupt),
              AllOf(HasSubstr(kTrainLabels), HasSubstr("0x00000803"), HasSubstr("0x00000801"),
                    HasSubstr("other way round")));
  folder.write(kTrainLabels, labels_of("\x05\xff\x02") + "x");
  EXPECT_THAT(refusal_of(options, ErrorCode::corrupt),
              AllOf(HasSubstr(kTrainLabels), HasSubstr("too long")));
  write_train(folder);
  folder.write(kTrainImages, images_of(3).substr(0, 30));
  EXPECT_THAT(refusal_of(options, ErrorCode::corrupt),
              AllOf(HasSubstr(kTrainImages), HasSubstr("promises 18 bytes (3 x 2 x 3)"),
                    HasSubstr("there are 14")));
  folder.write(kTrainImages, idx_of(kImages, {0xffffffff, 0xffffffff, 0xffffffff}, "few"));
  EXPECT_THAT(refusal_of(options, ErrorCode::corrupt), HasSubstr("there are 3"));
  folder.write(kTrainImages, "");
  EXPECT_THAT(refusal_of(options, ErrorCode::corrupt), HasSubstr("it has 0 bytes"));
}

TEST(IdxFormat, ReadsNothingOfDamagedFiles) {
  const Folder folder;
  write_train(folder);
  const OpenOptions options = options_of(folder.path());
  read_all_damages(folder, kTrainImages, images_of(3), options);
  write_train(folder);
  read_all_damages(folder, kTrainLabels, labels_of("\x05\xff\x02"), options);
  fs::remove(folder.path(kTrainLabels));
  read_all_damages(folder, kTrainLabels + ".gz", gzipped(labels_of("\x05\xff\x02")), options);
}

TEST(IdxFormat, UnpacksNoMoreThanTheMemoryForAFile) {
  const Folder folder;
  folder.write(kTrainImages + ".gz", gzipped(images_of(20'000)));
  folder.write(kTrainLabels + ".gz", gzipped(labels_of(std::string(20'000, '\x01'))));
  OpenOptions options = options_of(folder.path());
  EXPECT_EQ(open_records(options)->size(), 20'000);
  options.memory_bytes = 1 << 16;
  EXPECT_THAT(refusal_of(options, ErrorCode::invalid_argument),
              AllOf(HasSubstr(kTrainImages), HasSubstr("more than")));
}

TEST(IdxFormat, NoticesAMappedFileThatBecomesShorter) {
  const Folder folder;
  write_train(folder);
  const auto reader = open_path(folder.path());
  fs::resize_file(folder.path(kTrainLabels), 9);
  const auto read = [&] { read_record(*reader, 1); };
  EXPECT_THAT(message_of(ErrorCode::corrupt, read),
              AllOf(HasSubstr(reader->place(1)), HasSubstr(kTrainLabels), HasSubstr("now has 9")));
  EXPECT_THAT(message_of(ErrorCode::corrupt, [&] { static_cast<void>(reader->label(1)); }),
              HasSubstr(kTrainLabels));
  EXPECT_THAT(message_of(ErrorCode::corrupt, [&] { static_cast<void>(reader->content()); }),
              HasSubstr(kTrainLabels));
}

}  // namespace idx_tests
}  // namespace trireme::records
