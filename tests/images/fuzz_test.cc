#include <fmt/format.h>
#include <gtest/gtest.h>
#include <trireme/base/error.h>
#include <trireme/images/decode.h>
#include <zlib.h>
#include <algorithm>

#include "../base/crash_note.h"
#include "../base/memory_limit.h"
#include "../records/mutations.h"
#include "encoded.h"

namespace trireme::images::fuzz_test {
namespace {

const uint32_t kSeeds = fuzz_seeds(150);
constexpr DecodeLimits kFewPixels{.pixels = 1 << 16};

std::string text_of_file(const File& file) {
  return {reinterpret_cast<const char*>(file.data()), file.size()};
}

uint32_t big_endian_at(const std::string& file, size_t at) {
  uint32_t number = 0;
  for (size_t i = at; i < at + 4; ++i) number = number << 8 | static_cast<unsigned char>(file[i]);
  return number;
}

// Every chunk of a PNG gets its right checksum, as far as the lengths of chunks lead.
std::string with_png_sums(std::string file) {
  for (size_t at = 8; at + 12 <= file.size();) {
    const uint64_t length = big_endian_at(file, at);
    if (length > file.size() - at - 12) break;
    const auto sum = static_cast<uint32_t>(
        ::crc32_z(0, reinterpret_cast<const Bytef*>(file.data() + at + 4), length + 4));
    for (size_t i = 0; i < 4; ++i)
      file[at + 8 + length + i] = static_cast<char>(sum >> 8 * (3 - i));
    at += length + 12;
  }
  return file;
}

// Decodes all of the image or a part of it, in colour or grey, as the random numbers say.
void decode_damaged(const std::string& file, Mutator& random, MutationCounts& counts) {
  const int channels = random.below(2) == 0 ? 3 : 1;
  std::optional<Crop> part;
  if (random.below(3) == 0) part = Crop{3, 5, 10, 21};
  std::optional<Size> least;
  if (random.below(3) == 0)
    least = Size{1 + static_cast<int64_t>(random.below(12)),
                 1 + static_cast<int64_t>(random.below(12))};
  // Memory of exactly this size shows a sanitizer what is read behind the end.
  const std::vector<char> exact(file.begin(), file.end());
  Image image;
  try {
    decode(std::as_bytes(std::span(exact)), channels, kFewPixels, image, part, least);
    EXPECT_EQ(image.pixels.size(),
              static_cast<size_t>(image.height * image.width * image.channels));
    EXPECT_EQ(image.channels, channels);
    EXPECT_LE(image.height * image.width, kFewPixels.pixels);
    counts.add(true, false);
  } catch (const Error& error) {
    EXPECT_NE(error.code(), ErrorCode::internal) << error.what();
    counts.add(false, true);
  }
}

void mutate_images(const std::string& name, const File& file, int least_read_percent,
                   std::string (*finish)(std::string)) {
  Image good, again;
  decode(file, 3, kFewPixels, good);
  const std::string valid = text_of_file(file);
  MutationCounts counts;
  for (uint32_t seed = 1; seed <= kSeeds && !testing::Test::HasFailure(); ++seed) {
    const std::string about = fmt::format("{}, seed {}", name, seed);
    SCOPED_TRACE(about);
    const CrashNote note(about);
    Mutator random(seed);
    std::string damaged = random.mutate(valid, Content::bytes);
    if (finish) damaged = finish(std::move(damaged));
    expect_to_end_soon([&] { decode_damaged(damaged, random, counts); });
  }
  SCOPED_TRACE(name);
  counts.expect_shares(least_read_percent, 10);
  // The thread's decoder has forgotten the damaged files.
  decode(file, 3, kFewPixels, again);
  EXPECT_EQ(again.pixels, good.pixels);
}

TEST(MutatedImage, IsDecodedOrRefusedSoonAndInLittleMemory) {
  const auto kinds = all_kinds(24, 40);
  const MemoryLimit limit(512 << 20);
  for (const auto& [name, file] : kinds) {
    // A checksum refuses nearly every change of a PNG.
    const bool is_png = name.starts_with("png");
    mutate_images(name, file, is_png ? 0 : 10, nullptr);
    // What is packed has a checksum of its own, which hardly a damaged interlaced image passes.
    const int least = name.find("interlaced") == std::string::npos ? 5 : 0;
    if (is_png) mutate_images(name + " with right sums", file, least, with_png_sums);
  }
}

}  // namespace
}  // namespace trireme::images::fuzz_test
