// Inconsistent files. Each must end in an Error that says what is wrong, or in
// values inside the file.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "checkpoint_testing.h"

namespace trireme::checkpoint::safetensors_damage_test {
namespace {

std::string with_length(uint64_t length, const std::string& rest) {
  std::string text;
  for (int byte = 0; byte < 8; ++byte) text += static_cast<char>(length >> (8 * byte) & 0xff);
  return text + rest;
}
std::string file_of(const std::string& header, size_t data_bytes) {
  return with_length(header.size(), header + std::string(data_bytes, 'x'));
}

class SafetensorsDamage : public TemporaryFolder {
 protected:
  testing::AssertionResult is_corrupt(const std::string& content,
                                      const std::vector<std::string>& words) {
    return fails(ErrorCode::corrupt, content, words);
  }
  testing::AssertionResult fails(ErrorCode code, const std::string& content,
                                 std::vector<std::string> words) {
    overwrite(path_, content);
    words.push_back(path_);
    return fails_with(code, words, [&] { SafetensorsFile file(path_); });
  }

  std::filesystem::path path_ = folder_ / "model.safetensors";
};

TEST_F(SafetensorsDamage, AFileTooShortForALength) {
  EXPECT_TRUE(is_corrupt("", {"0 bytes"}));
  EXPECT_TRUE(is_corrupt("1234567", {"7 bytes"}));
}

TEST_F(SafetensorsDamage, AHeaderLongerThanTheFile) {
  EXPECT_TRUE(is_corrupt(with_length(3, "{}"), {"claims 3 bytes", "file of 10"}));
  EXPECT_TRUE(is_corrupt(with_length(UINT64_MAX, "{}"), {"claims 18446744073709551615 bytes"}));
  EXPECT_TRUE(is_corrupt(with_length(1ull << 63, "{}"), {"claims"}));
}

TEST_F(SafetensorsDamage, AHeaderOverTheFormatsLimit) {
  overwrite(path_, with_length(100'000'001, "{}"));
  // A hole takes no space on the disk.
  std::filesystem::resize_file(path_, 100'000'100);
  EXPECT_TRUE(fails_with(ErrorCode::corrupt, {"claims 100000001 bytes"},
                         [&] { SafetensorsFile file(path_); }));
}

TEST_F(SafetensorsDamage, AHeaderThatIsNoJson) {
  EXPECT_TRUE(is_corrupt(file_of("", 0), {"does not start with {"}));
  EXPECT_TRUE(is_corrupt(file_of("[]", 0), {"does not start with {"}));
  EXPECT_TRUE(is_corrupt(file_of(" {}", 0), {"does not start with {"}));
  EXPECT_TRUE(is_corrupt(file_of("{", 0), {"no JSON at byte"}));
  EXPECT_TRUE(is_corrupt(file_of("{}}", 0), {"no JSON at byte"}));
  EXPECT_TRUE(is_corrupt(file_of("{\"\xff\":1}", 0), {"no JSON at byte"}));
}

TEST_F(SafetensorsDamage, ValuesWhereNoneBelong) {
  const auto field = [](const std::string& text) {
    return file_of(R"({"w":{"dtype":"U8","shape":[1],)" + text + "}}", 1);
  };
  for (const char* text : {"null", "true", "1", "1.5", "-1", "\"x\"", "[]", "[1]", "[0,1,1]",
                           "[[0,1]]", "[{}]", "{}", "[0,1.0]", "[0,-1]", "[0,1e30]",
                           "[0,99999999999999999999999]", "[0,18446744073709551615]", "[true,1]"})
    EXPECT_TRUE(is_corrupt(field("\"data_offsets\":" + std::string(text)), {"\"w\""})) << text;
  EXPECT_TRUE(is_corrupt(field(R"("data_offsets":[0,1],"more":1)"), {"field \"more\""}));
  EXPECT_TRUE(is_corrupt(file_of(R"({"w":3})", 0), {"number 3"}));
  EXPECT_TRUE(is_corrupt(file_of(R"({"w":[]})", 0), {"a list"}));
  EXPECT_TRUE(is_corrupt(file_of(R"({"__metadata__":{"a":1}})", 0), {"number 1"}));
  EXPECT_TRUE(is_corrupt(file_of(R"({"__metadata__":{"a":{}}})", 0), {"an object"}));
  EXPECT_TRUE(is_corrupt(file_of(R"({"__metadata__":{"a":[]}})", 0), {"a list"}));
}

TEST_F(SafetensorsDamage, MissingFields) {
  EXPECT_TRUE(is_corrupt(file_of(R"({"w":{}})", 0), {"\"w\" lacks"}));
  EXPECT_TRUE(is_corrupt(file_of(R"({"w":{"dtype":"U8","shape":[0]}})", 0), {"\"w\" lacks"}));
  EXPECT_TRUE(
      is_corrupt(file_of(R"({"w":{"shape":[0],"data_offsets":[0,0]}})", 0), {"\"w\" lacks"}));
}

TEST_F(SafetensorsDamage, NamesUsedTwice) {
  const std::string tensor = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_TRUE(is_corrupt(file_of("{\"w\":" + tensor + ",\"w\":" + tensor + "}", 0),
                         {"two tensors", "\"w\""}));
  EXPECT_TRUE(is_corrupt(
      file_of(R"({"w":{"dtype":"U8","dtype":"F32","shape":[0],"data_offsets":[0,0]}})", 0),
      {"dtype twice"}));
  EXPECT_TRUE(is_corrupt(file_of(R"({"__metadata__":{"a":"1","a":"2"}})", 0), {"\"a\" twice"}));
}

TEST_F(SafetensorsDamage, ShapesThatOverflow) {
  const auto shaped = [](const std::string& shape) {
    return file_of(R"({"w":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":[0,4]}})", 4);
  };
  EXPECT_TRUE(is_corrupt(shaped("[9223372036854775807]"), {"impossible shape"}));
  EXPECT_TRUE(is_corrupt(shaped("[4294967296,4294967296]"), {"impossible shape"}));
  EXPECT_TRUE(is_corrupt(shaped("[4611686018427387904,4]"), {"impossible shape"}));
  EXPECT_TRUE(is_corrupt(shaped("[0,4611686018427387904,8]"), {"impossible shape"}));
  EXPECT_TRUE(is_corrupt(shaped("[-1]"), {"negative number -1"}));
  EXPECT_TRUE(is_corrupt(shaped("[2]"), {"needs 8 bytes"}));
  std::string ones = "[1";
  for (int i = 0; i < 64; ++i) ones += ",1";
  EXPECT_TRUE(is_corrupt(shaped(ones + "]"), {"number 1"}));
}

TEST_F(SafetensorsDamage, OffsetsThatOverlapLeaveHolesOrLeaveTheFile) {
  const auto two = [](int begin, int end, size_t data) {
    return file_of(fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":[0,4]}},)"
                               R"("b":{{"dtype":"U8","shape":[4],"data_offsets":[{},{}]}}}})",
                               begin, end),
                   data);
  };
  overwrite(path_, two(4, 8, 8));
  EXPECT_EQ(SafetensorsFile(path_).tensors().size(), 2u);
  EXPECT_TRUE(is_corrupt(two(3, 7, 7), {"\"b\" starts at byte 3"}));
  EXPECT_TRUE(is_corrupt(two(0, 4, 4), {"starts at byte 0"}));
  EXPECT_TRUE(is_corrupt(two(5, 9, 9), {"\"b\" starts at byte 5"}));
  EXPECT_TRUE(is_corrupt(two(8, 4, 8), {"offsets are 8 and 4"}));
  EXPECT_TRUE(is_corrupt(two(4, 8, 7), {"take 8 bytes, 7 are there"}));
  EXPECT_TRUE(is_corrupt(two(4, 8, 9), {"take 8 bytes, 9 are there"}));
}

TEST_F(SafetensorsDamage, AnUnknownDtypeIsNamed) {
  for (const char* dtype : {"C128", "F4", "F4", "I128", "bool", ""}) {
    const std::string header = fmt::format(
        R"({{"conv1.weight":{{"dtype":"{}","shape":[2],"data_offsets":[0,2]}}}})", dtype);
    EXPECT_TRUE(fails(ErrorCode::unsupported, file_of(header, 2),
                      {"conv1.weight", fmt::format("\"{}\"", dtype)}));
  }
}

TEST_F(SafetensorsDamage, DeepNestingAndLongNamesStayHarmless) {
  EXPECT_TRUE(is_corrupt(file_of("{\"w\":" + std::string(1'000'000, '['), 0), {"a list"}));
  const std::string long_name(1'000'000, 'n');
  overwrite(path_, file_of(fmt::format(R"({{"{}":1}})", long_name), 0));
  const Error error = error_of([&] { SafetensorsFile file(path_); });
  EXPECT_LT(std::string(error.what()).size(), 1000u);
}

// Makes one random change in a whole file: to its bits, its length, its header's length, or the
// text of its header.
std::string mutated(std::string file, std::mt19937_64& random) {
  const auto below = [&](size_t bound) { return static_cast<size_t>(random() % bound); };
  const auto header_bytes = static_cast<size_t>(static_cast<unsigned char>(file[0]) |
                                                static_cast<unsigned char>(file[1]) << 8);
  switch (below(6)) {
    case 0:
      for (size_t flips = 1 + below(8); flips > 0; --flips)
        file[below(file.size())] ^= static_cast<char>(1 << below(8));
      break;
    case 1: file.resize(below(file.size())); break;
    case 2:
      file.replace(0, 8,
                   with_length(below(2) ? random() >> below(64) : below(2 * file.size()), ""));
      break;
    // One character of the JSON becomes another character that JSON allows.
    case 3: {
      static constexpr std::string_view kCharacters = "{}[],:\"\\0123456789-.eE ntfu";
      for (size_t edits = 1 + below(3); edits > 0; --edits)
        file[8 + below(header_bytes)] = kCharacters[below(kCharacters.size())];
      break;
    }
    // A part of the header is copied over another, or removed. The length follows.
    case 4: {
      std::string header = file.substr(8, header_bytes);
      const std::string piece = header.substr(below(header.size()), below(64));
      header.replace(below(header.size()), below(64), below(2) ? piece : "");
      file = with_length(header.size(), header + file.substr(8 + header_bytes));
      break;
    }
    // A number is replaced by one near a limit.
    case 5: {
      static constexpr const char* kNumbers[] = {"0",
                                                 "-1",
                                                 "1e999",
                                                 "4294967296",
                                                 "9223372036854775807",
                                                 "9223372036854775808",
                                                 "18446744073709551615",
                                                 "18446744073709551616"};
      std::string header = file.substr(8, header_bytes);
      const size_t digit = header.find_first_of("0123456789", below(header.size()));
      if (digit != std::string::npos)
        header.replace(digit, 1 + below(3), kNumbers[below(std::size(kNumbers))]);
      file = with_length(header.size(), header + file.substr(8 + header_bytes));
      break;
    }
  }
  return file;
}

TEST_F(SafetensorsDamage, AnyMutationEndsInValuesOrAnError) {
  const OwnedTensor first("conv1.weight", {4, 3}),
      second("bn.num_batches_tracked", {}, plan::DType::int64),
      third("mask", {7}, plan::DType::uint8);
  write_safetensors(path_, {first.view(), second.view(), third.view()}, {{"format", "pt"}});
  const std::string whole = read_file(path_);
  std::mt19937_64 random(7);
  int refused = 0, read = 0;
  std::byte sum{0};
  for (int round = 0; round < 2000; ++round) {
    overwrite(path_, mutated(whole, random));
    try {
      const SafetensorsFile file(path_);
      for (const TensorView& tensor : file.tensors()) {
        ASSERT_EQ(static_cast<uint64_t>(tensor.spec.bytes()), tensor.bytes.size());
        for (const std::byte byte : tensor.bytes) sum ^= byte;
      }
      ++read;
    } catch (const Error& error) {
      ASSERT_TRUE(error.code() == ErrorCode::corrupt || error.code() == ErrorCode::unsupported)
          << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(read, 50) << "the mutations never reach past the header's checks "
                      << static_cast<int>(sum);
}

}  // namespace
}  // namespace trireme::checkpoint::safetensors_damage_test
