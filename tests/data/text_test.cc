#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <trireme/data/text_source.h>

#include "data_files.h"

namespace trireme::data::text_test {
namespace {

std::vector<int64_t> numbers(const at::Tensor& tensor) {
  const auto* first = tensor.const_data_ptr<int64_t>();
  return {first, first + tensor.numel()};
}

TEST(TextTokens, AreTheCharactersOfTheTextInTheOrderOfUnicode) {
  const Folder folder;
  // The text is b, a umlaut, a, euro, b.
  const TextTokens text = read_text(folder.write("a.txt",
                                                 "b\xC3\xA4"
                                                 "a\xE2\x82\xAC"
                                                 "b"),
                                    2, TextUnit::characters);
  EXPECT_EQ(text.vocabulary, 4);
  EXPECT_EQ(text.characters, (std::vector<std::string>{"a", "b", "\xC3\xA4", "\xE2\x82\xAC"}));
  EXPECT_EQ(text.tokens, (std::vector<int32_t>{1, 2, 0, 3, 1}));
  EXPECT_EQ(text.samples(), 2);
}

TEST(TextTokens, AreBytesOfAnyFileIfRequested) {
  const Folder folder;
  const TextTokens text =
      read_text(folder.write("a.bin", std::string("\xFF\x00z", 3)), 1, TextUnit::bytes);
  EXPECT_EQ(text.vocabulary, 256);
  EXPECT_EQ(text.tokens, (std::vector<int32_t>{255, 0, 'z'}));
}

TEST(TextTokens, ComeFromPackedFilesToo) {
  const Folder folder;
  EXPECT_EQ(read_text(folder.write("a.gz", gzipped("hello")), 4, TextUnit::characters).samples(),
            1);
  const TextTokens bytes =
      read_text(folder.write("a.zst", zstd_packed("hello")), 4, TextUnit::bytes);
  EXPECT_EQ(bytes.tokens, (std::vector<int32_t>{'h', 'e', 'l', 'l', 'o'}));
}

TEST(TextTokens, NeedABlockAndTheTokenThatFollows) {
  const Folder folder;
  const auto file = folder.write("a.txt", "hello");
  EXPECT_EQ(read_text(file, 4, TextUnit::characters).samples(), 1);
  expect_error([&] { read_text(file, 5, TextUnit::characters); }, ErrorCode::invalid_argument,
               {"a.txt", "5 tokens", "data.block=4"});
  expect_error([&] { read_text(file, 0, TextUnit::characters); }, ErrorCode::invalid_argument,
               {"0 tokens", "at least 1"});
  expect_error([&] { read_text(folder.path() / "absent", 4, TextUnit::bytes); },
               ErrorCode::not_found, {"absent"});
}

TEST(TextTokens, RefuseTextThatIsNotUtf8AndNameTheLine) {
  const Folder folder;
  for (const std::string bad : {"ab\nc\x80", "ab\nc\xC3", "ab\nc\xE2\x82z", "ab\nc\xF8zzzz"}) {
    const auto file = folder.write("a.txt", bad);
    expect_error([&] { read_text(file, 1, TextUnit::characters); }, ErrorCode::corrupt,
                 {"a.txt, line 2", "byte 4", "data.tokens=bytes"});
    EXPECT_EQ(read_text(file, 1, TextUnit::bytes).vocabulary, 256);
  }
}

TEST(TextSource, GivesEachBlockWithTheTokensOnePlaceFurtherOn) {
  const Folder folder;
  const auto text = std::make_shared<TextTokens>(
      read_text(folder.write("a.txt", "abcdefghij"), 3, TextUnit::characters));
  const TextSource source(text, 1, 3);
  EXPECT_EQ(source.size(), 2);
  const Example batch = source.get_batch({1, 0});
  EXPECT_EQ(batch.data.sizes().vec(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(numbers(batch.data), (std::vector<int64_t>{6, 7, 8, 3, 4, 5}));
  EXPECT_EQ(numbers(batch.target), (std::vector<int64_t>{7, 8, 9, 4, 5, 6}));
  EXPECT_EQ(numbers(source.get(0).target), (std::vector<int64_t>{4, 5, 6}));
}

TEST(TextSource, RefusesSamplesThatItDoesNotHave) {
  const Folder folder;
  const auto text = std::make_shared<TextTokens>(
      read_text(folder.write("a.txt", "abcdefghij"), 3, TextUnit::characters));
  expect_error([&] { TextSource(text, 0, 4); }, ErrorCode::invalid_argument,
               {"a.txt", "which has 3"});
  expect_error([&] { TextSource(text, 0, 2).get(2); }, ErrorCode::invalid_argument,
               {"sample 2 is outside 0..1"});
}

}  // namespace
}  // namespace trireme::data::text_test
