#include <gmock/gmock.h>

#include <trireme/data/image_table.h>

#include "data_files.h"

namespace trireme::data::idx_test {
namespace {

constexpr uint32_t kImages = 0x00000803, kLabels = 0x00000801;

const std::string kPixels(
    "\x00\x01\x02\x7f\x80\xff"
    "\x0a\x0b\x0c\x0d\x0e\x0f",
    12);  // Two images of 2 x 3.

struct Pair {
  Folder folder;
  std::filesystem::path images, labels;
  explicit Pair(const std::string& image_bytes = idx(kImages, {2, 2, 3}, kPixels),
                const std::string& label_bytes = idx(kLabels, {2}, "\x05\x09"))
      : images(folder.write("images", image_bytes)), labels(folder.write("labels", label_bytes)) {}
  auto reading(std::optional<int64_t> classes = {}) const {
    return [this, classes] { read_idx(images, labels, classes); };
  }
};

void expect_the_two_images(const ImageTable& table) {
  EXPECT_EQ(table.count, 2);
  EXPECT_EQ(table.channels, 1);
  EXPECT_EQ(table.height, 2);
  EXPECT_EQ(table.width, 3);
  EXPECT_EQ(table.scale, 255.0f);
  EXPECT_EQ(table.classes, 10);
  EXPECT_EQ(std::string(table.pixels.begin(), table.pixels.end()), kPixels);
  EXPECT_THAT(table.labels, testing::ElementsAre(5, 9));
}

TEST(IdxFiles, ReadsPlainFiles) {
  const Pair pair;
  expect_the_two_images(read_idx(pair.images, pair.labels));
}

TEST(IdxFiles, ReadsPackedFiles) {
  const std::string labels = idx(kLabels, {2}, "\x05\x09");
  for (const std::string& packed : {gzipped(labels), zstd_packed(labels)}) {
    const Pair pair(gzipped(idx(kImages, {2, 2, 3}, kPixels)), packed);
    expect_the_two_images(read_idx(pair.images, pair.labels));
  }
}

TEST(IdxFiles, RefusesBombs) {
  const Pair pair(gzipped(idx(kImages, {1 << 20, 4, 5}, std::string(20 << 20, 'x'))));
  const auto limits = records::UnpackLimits::of_whole_file(300, "data.max_ratio");
  expect_error([&] { read_idx(pair.images, pair.labels, {}, limits); }, ErrorCode::corrupt,
               {pair.images.string(), "over 300 times as many", "data.max_ratio"});
}

TEST(IdxFiles, NamesBytesPresentAndPromisedIfTruncated) {
  const Pair images(idx(kImages, {2, 2, 3}, kPixels.substr(0, 7)));
  expect_error(
      images.reading(), ErrorCode::corrupt,
      {images.images.string(), "truncated", "promises 12 bytes", "2 x 2 x 3", "there are 7"});
  const Pair labels(idx(kImages, {2, 2, 3}, kPixels), idx(kLabels, {2}, "\x05"));
  expect_error(labels.reading(), ErrorCode::corrupt,
               {labels.labels.string(), "truncated", "promises 2 bytes", "there are 1"});
  const Pair packed(gzipped(idx(kImages, {2, 2, 3}, kPixels.substr(0, 7))));
  expect_error(packed.reading(), ErrorCode::corrupt,
               {"truncated", "promises 12 bytes", "there are 7"});
}

TEST(IdxFiles, RefusesEveryLengthButTheRightOne) {
  const std::string whole = idx(kImages, {2, 2, 3}, kPixels);
  for (size_t kept = 0; kept < whole.size(); ++kept)
    expect_error(Pair(whole.substr(0, kept)).reading(), ErrorCode::corrupt, {"images"});
  expect_error(Pair(whole + "x").reading(), ErrorCode::corrupt,
               {"too long", "promises 12", "there are 13"});
}

TEST(IdxFiles, NamesAWrongMagicNumber) {
  expect_error(Pair(idx(0x00000d03, {2, 2, 3}, kPixels)).reading(), ErrorCode::corrupt,
               {"images", "0x00000d03", "0x00000803"});
  expect_error(Pair("this is text, and long enough").reading(), ErrorCode::corrupt,
               {"0x74686973", "0x00000803"});
}

TEST(IdxFiles, RecognizesSwappedImagesAndLabels) {
  const Pair pair;
  expect_error([&] { read_idx(pair.labels, pair.images); }, ErrorCode::corrupt,
               {"0x00000803", "0x00000801", "other way round"});
}

TEST(IdxFiles, RefusesCountsThatDiffer) {
  const Pair pair(idx(kImages, {2, 2, 3}, kPixels), idx(kLabels, {3}, "\x01\x02\x03"));
  expect_error(pair.reading(), ErrorCode::invalid_argument,
               {"2 images", "3 labels", pair.images.string(), pair.labels.string()});
}

TEST(IdxFiles, NamesSampleAndRangeOfAWrongLabel) {
  const Pair pair;
  expect_error(pair.reading(6), ErrorCode::invalid_argument,
               {pair.labels.string(), "label 9", "sample 1", "0..5", "data.classes=6"});
  EXPECT_EQ(read_idx(pair.images, pair.labels, 12).classes, 12);
}

TEST(IdxFiles, RefusesAbsurdSizesWithoutAllocatingThem) {
  const uint32_t most = 0xffffffff;
  expect_error(Pair(idx(kImages, {most, most, most}, kPixels)).reading(), ErrorCode::corrupt,
               {"4294967295 x 4294967295", "there are 12"});
  expect_error(Pair(idx(kImages, {1U << 31, 1U << 31, 4}, kPixels)).reading(), ErrorCode::corrupt,
               {"there are 12"});  // The product is 2^64 and wraps to 0.
  expect_error(Pair(idx(kImages, {2, 2, 3}, kPixels), idx(kLabels, {most}, "\x01")).reading(),
               ErrorCode::corrupt, {"promises 4294967295 bytes"});
  expect_error(Pair(gzipped(idx(kImages, {60000, 28, 28}, kPixels))).reading(), ErrorCode::corrupt,
               {"promises 47040000", "there are 12"});
}

TEST(IdxFiles, RefusesFilesWithoutSamples) {
  expect_error(Pair(idx(kImages, {0, 28, 28}, ""), idx(kLabels, {0}, "")).reading(),
               ErrorCode::corrupt, {"holds no values"});
  expect_error(Pair(idx(kImages, {2, 0, 28}, "")).reading(), ErrorCode::corrupt,
               {"holds no values", "2 x 0 x 28"});
}

TEST(IdxFiles, NamesAMissingFile) {
  const Pair pair;
  expect_error([&] { read_idx(pair.folder.path() / "absent", pair.labels); }, ErrorCode::not_found,
               {"absent"});
  expect_error([&] { read_idx(pair.images, pair.folder.path() / "absent"); }, ErrorCode::not_found,
               {"absent"});
  expect_error([&] { read_idx(pair.folder.path(), pair.labels); }, ErrorCode::invalid_argument,
               {"is a folder"});
}

}  // namespace
}  // namespace trireme::data::idx_test
