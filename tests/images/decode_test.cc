#include <gtest/gtest.h>

#include <trireme/images/decode.h>
#include <algorithm>
#include <cmath>
#include <cstring>

#include "../base/expect_error.h"
#include "encoded.h"

namespace trireme::images::decode_test {
namespace {

const DecodeLimits kLimits;

Image decoded(const File& file, int channels = 3, std::optional<Crop> part = {}) {
  Image image;
  decode(file, channels, kLimits, image, part);
  return image;
}

std::string refused(ErrorCode code, const File& file, const DecodeLimits& limits = kLimits) {
  return message_of(code, [&] {
    Image image;
    decode(file, 3, limits, image);
  });
}

int largest_difference(const Image& a, const Image& b) {
  EXPECT_EQ(a.size(), b.size());
  EXPECT_EQ(a.channels, b.channels);
  if (a.pixels.size() != b.pixels.size()) return 256;
  int most = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i)
    most = std::max(most, std::abs(int{a.pixels[i]} - int{b.pixels[i]}));
  return most;
}

TEST(Decode, GivesTheBytesOfLosslessFiles) {
  const Image rgb = painted(31, 45), grey = painted(31, 45, 1), four = painted(31, 45, 4);
  for (const File& file : {encoded_png(rgb), encoded_png(rgb, {.interlaced = true}),
                           encoded_png(rgb, {.bits = 16}), encoded_webp(rgb, true)})
    EXPECT_EQ(largest_difference(decoded(file), rgb), 0);
  EXPECT_EQ(largest_difference(decoded(encoded_png(grey), 1), grey), 0);
  Image without_alpha;
  without_alpha.reshape(31, 45, 3);
  for (size_t i = 0; i < grey.pixels.size(); ++i)
    std::memcpy(&without_alpha.pixels[3 * i], &four.pixels[4 * i], 3);
  EXPECT_EQ(largest_difference(decoded(encoded_png(four)), without_alpha), 0);
  EXPECT_EQ(largest_difference(decoded(encoded_webp(four, true)), without_alpha), 0);
}

TEST(Decode, IsCloseToWhatWasEncodedWithLoss) {
  const Image rgb = painted(64, 96);
  EXPECT_LT(
      largest_difference(decoded(encoded_jpeg(rgb, {.quality = 98, .across = 1, .down = 1})), rgb),
      16);
  EXPECT_LT(largest_difference(decoded(encoded_webp(rgb, false, 98)), rgb), 64);
}

TEST(Decode, PutsColoursOfPalettesInPlace) {
  const Image indices = painted(20, 30, 1);
  const Image image = decoded(encoded_png(indices, {.palette = true}));
  for (size_t i = 0; i < indices.pixels.size(); ++i) {
    const int index = indices.pixels[i];
    EXPECT_EQ(image.pixels[3 * i], index);
    EXPECT_EQ(image.pixels[3 * i + 1], 255 - index);
    EXPECT_EQ(image.pixels[3 * i + 2], index / 2);
  }
}

TEST(Decode, GivesGreyAndColourOfEveryKind) {
  for (const auto& [name, file] : all_kinds()) {
    SCOPED_TRACE(name);
    const Image rgb = decoded(file), grey = decoded(file, 1);
    EXPECT_EQ(rgb.size(), (Size{75, 93}));
    EXPECT_EQ(rgb.channels, 3);
    EXPECT_EQ(grey.channels, 1);
    int most = 0;
    for (size_t i = 0; i < grey.pixels.size(); ++i) {
      const uint8_t* colour = &rgb.pixels[3 * i];
      const double luma = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2];
      most = std::max(most, std::abs(static_cast<int>(std::lround(luma)) - grey.pixels[i]));
    }
    // The luma of a JPEG is stored, and its colours may have been cut off at 0 and 255.
    EXPECT_LE(most, name.starts_with("jpeg") ? 30 : 1);
  }
}

TEST(Decode, CropsToTheBitsOfTheWholeImage) {
  const std::vector<Crop> parts = {{0, 0, 75, 93},   {0, 0, 1, 1},     {74, 92, 1, 1},
                                   {16, 16, 16, 16}, {15, 17, 33, 31}, {1, 1, 73, 91},
                                   {40, 2, 7, 80},   {3, 50, 70, 9},   {0, 32, 75, 16},
                                   {32, 0, 16, 93},  {63, 63, 12, 30}};
  for (const auto& [name, file] : all_kinds()) {
    SCOPED_TRACE(name);
    for (const int channels : {3, 1}) {
      const Image whole = decoded(file, channels);
      for (const Crop& part : parts) {
        Image expected;
        crop(whole, part, expected);
        EXPECT_EQ(largest_difference(decoded(file, channels, part), expected), 0)
            << describe(part) << ", " << channels << " channels";
      }
    }
  }
}

TEST(Decode, ReadsHeadersOfEveryKind) {
  for (const auto& [name, file] : all_kinds()) {
    const Header header = read_header(file, kLimits);
    EXPECT_EQ(header.format, name.substr(0, name.find(' ')));
    EXPECT_EQ(header.height, 75);
    EXPECT_EQ(header.width, 93);
  }
}

TEST(Decode, ScalesJpegsDownByPowersOfTwoAndNotBelowTheLeastSize) {
  const File file = encoded_jpeg(painted(160, 240));
  const auto size = [&](std::optional<Crop> part, Size least) {
    Image image;
    decode(file, 3, kLimits, image, part, least);
    return image.size();
  };
  EXPECT_EQ(size({}, {160, 240}), (Size{160, 240}));
  EXPECT_EQ(size({}, {81, 1}), (Size{160, 240}));
  EXPECT_EQ(size({}, {80, 120}), (Size{80, 120}));
  EXPECT_EQ(size({}, {40, 60}), (Size{40, 60}));
  EXPECT_EQ(size({}, {1, 1}), (Size{20, 30}));
  EXPECT_EQ(size(Crop{10, 20, 100, 100}, {50, 50}), (Size{50, 50}));
  EXPECT_EQ(size(Crop{11, 21, 101, 101}, {50, 50}), (Size{51, 51}));  // Edges lie inside pixels.
  Image png;
  decode(encoded_png(painted(16, 16)), 3, kLimits, png, {}, Size{2, 2});
  EXPECT_EQ(png.size(), (Size{16, 16}));
}

TEST(Decode, ScalesACropToPixelsOfTheScaledImage) {
  const File file = encoded_jpeg(painted(163, 243));
  Image whole, part, expected;
  decode(file, 3, kLimits, whole, {}, Size{81, 121});
  decode(file, 3, kLimits, part, Crop{41, 33, 80, 91}, Size{40, 45});
  crop(whole, {20, 16, 41, 46}, expected);
  EXPECT_EQ(largest_difference(part, expected), 0);
}

TEST(Decode, RefusesAFileThatIsCutOffAnywhere) {
  for (const auto& [name, file] : all_kinds()) {
    SCOPED_TRACE(name);
    const size_t end = file.size();
    for (size_t length = 0; length < end; length += length < 64 || length + 80 > end ? 1 : 64) {
      const File part(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(length));
      for (const std::optional<Crop> area : {std::optional<Crop>(), {Crop{0, 0, 8, 8}}}) try {
          decoded(part, 3, area);
          ADD_FAILURE() << length << " of " << file.size() << " bytes were decoded";
        } catch (const Error& error) {
          // A file without its first bytes has no format.
          if (length >= 12) {
            EXPECT_EQ(to_string(error.code()), "corrupt") << error.what();
          }
        }
    }
  }
}

TEST(Decode, MissesChunksBehindThePixelsOfAWebp) {
  File file = encoded_webp(painted(16, 16), false);
  // The header says that 256 more bytes follow.
  file[5] = static_cast<std::byte>(std::to_integer<int>(file[5]) + 1);
  EXPECT_NE(refused(ErrorCode::corrupt, file).find("cut off"), std::string::npos);
}

TEST(Decode, TakesNoTablesOfAnEarlierFile) {
  const Image image = painted(32, 32);
  File file = encoded_jpeg(image);
  decoded(file);
  // The quantisation tables become comments.
  for (size_t i = 0; i + 1 < file.size(); ++i)
    if (file[i] == std::byte{0xff} && file[i + 1] == std::byte{0xdb})
      file[i + 1] = std::byte{0xfe};
  EXPECT_NE(refused(ErrorCode::corrupt, file).find("uantization table"), std::string::npos);
}

TEST(Decode, ComparesTheSizeInAHeaderWithTheLimitBeforeItAllocates) {
  File png = encoded_png(painted(8, 8));
  const uint8_t side[] = {0x00, 0x01, 0x86, 0xa0};  // 100,000.
  std::memcpy(&png[16], side, 4);
  std::memcpy(&png[20], side, 4);
  const std::string message = refused(ErrorCode::invalid_argument, png);
  EXPECT_NE(message.find("100000x100000 pixels, and at most 268435456"), std::string::npos);
  File jpeg = encoded_jpeg(painted(8, 8));
  for (size_t i = 2; i + 9 < jpeg.size(); ++i)
    if (jpeg[i] == std::byte{0xff} && jpeg[i + 1] == std::byte{0xc0}) {
      std::memset(&jpeg[i + 5], 0xff, 4);
      break;
    }
  EXPECT_NE(refused(ErrorCode::invalid_argument, jpeg).find("65535x65535"), std::string::npos);
  const std::string small =
      refused(ErrorCode::invalid_argument, encoded_webp(painted(30, 30), true),
              {.pixels = 899, .more_pixels = "raise it"});
  EXPECT_NE(small.find("try: raise it, or take it out of the data set"), std::string::npos);
}

TEST(Decode, LimitsScansAndChunks) {
  const File scans = encoded_jpeg(painted(32, 32), {.progressive = true});
  EXPECT_NE(
      refused(ErrorCode::invalid_argument, scans, {.jpeg_scans = 4}).find("more than 4 scans"),
      std::string::npos);
  // No key raises the limits.
  EXPECT_NE(refused(ErrorCode::invalid_argument, scans, {.jpeg_scans = 4})
                .find("try: write the file anew with fewer scans, or take it out of the data set"),
            std::string::npos);
  EXPECT_EQ(decoded(scans).size(), (Size{32, 32}));
  const File chunks = encoded_png(painted(8, 8), {.texts = 30});
  EXPECT_NE(refused(ErrorCode::invalid_argument, chunks, {.png_chunks = 30}).find("chunks"),
            std::string::npos);
  EXPECT_EQ(decoded(chunks).size(), (Size{8, 8}));
}

TEST(Decode, HasVersionsOfAllThatMakesPixels) {
  for (const char* const part : {"images 1, ", "libjpeg ", "libpng 1.", "libwebp "})
    EXPECT_NE(versions_of_decoders().find(part), std::string::npos) << versions_of_decoders();
}

TEST(Decode, NamesFormatsThatItDoesNotKnow) {
  const auto file = [](std::string_view text) {
    const auto* begin = reinterpret_cast<const std::byte*>(text.data());
    return File(begin, begin + text.size());
  };
  EXPECT_NE(refused(ErrorCode::unsupported, file("GIF89a..........")).find("a GIF"),
            std::string::npos);
  EXPECT_NE(refused(ErrorCode::unsupported, file("hello")).find("68 65 6c 6c 6f"),
            std::string::npos);
  refused(ErrorCode::corrupt, {});
}

TEST(Decode, RefusesAnimations) {
  // The header of an extended WebP with the bit of an animation, 16x16 pixels.
  const uint8_t bytes[] = {'R', 'I', 'F', 'F', 22, 0, 0, 0, 'W', 'E', 'B', 'P', 'V', 'P', '8',
                           'X', 10,  0,   0,   0,  2, 0, 0, 0,   15,  0,   0,   15,  0,   0};
  const auto* begin = reinterpret_cast<const std::byte*>(bytes);
  EXPECT_NE(refused(ErrorCode::unsupported, File(begin, begin + sizeof bytes)).find("animation"),
            std::string::npos);
}

TEST(Decode, RefusesWrongRequests) {
  const File file = encoded_png(painted(8, 8));
  Image image;
  for (const Crop& part : {Crop{0, 0, 9, 8}, Crop{-1, 0, 4, 4}, Crop{0, 0, 0, 4}, Crop{4, 4, 5, 4},
                           Crop{INT64_MAX, 0, 1, 1}})
    message_of(ErrorCode::invalid_argument, [&] { decode(file, 3, kLimits, image, part); });
  message_of(ErrorCode::invalid_argument, [&] { decode(file, 2, kLimits, image); });
  message_of(ErrorCode::invalid_argument,
             [&] { decode(file, 3, kLimits, image, {}, Size{0, 1}); });
}

TEST(Decode, KeepsTheMemoryOfAnImage) {
  const File large = encoded_jpeg(painted(64, 64)), small = encoded_jpeg(painted(32, 32));
  Image image;
  decode(large, 3, kLimits, image);
  const uint8_t* memory = image.pixels.data();
  for (const File& file : {small, large}) {
    decode(file, 3, kLimits, image);
    EXPECT_EQ(image.pixels.data(), memory);
  }
}

}  // namespace
}  // namespace trireme::images::decode_test
