#include <gmock/gmock.h>

#include "files.h"

namespace trireme::records {
namespace text_tests {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// b, a umlaut, a, euro, b, newline.
const std::string kText =
    "b\xC3\xA4"
    "a\xE2\x82\xAC"
    "b\n";

OpenOptions options_of(const std::string& path, int64_t block, const std::string& tokens = "") {
  OpenOptions options;
  options.format = "text";
  options.path = path;
  options.block = block;
  options.tokens = tokens;
  return options;
}

std::vector<int32_t> tokens_in(const Reader& reader, int64_t index) {
  return numbers_of<int32_t>(read_record(reader, index).at("tokens"));
}

std::string refusal_of(const OpenOptions& options, ErrorCode code) {
  return message_of(code, [&] { open_records(options); });
}

TEST(TextRecords, AreBlocksOfCharactersAndTheNextOne) {
  const Folder folder;
  const auto reader = open_records(options_of(folder.write("a.txt", kText), 2));
  ASSERT_EQ(reader->size(), 2);
  ASSERT_EQ(reader->fields().size(), 1U);
  EXPECT_EQ(reader->fields()[0].name, "tokens");
  EXPECT_EQ(reader->fields()[0].shape, std::vector<int64_t>{3});
  EXPECT_THAT(tokens_in(*reader, 0), ElementsAre(2, 3, 1));
  EXPECT_THAT(tokens_in(*reader, 1), ElementsAre(1, 4, 2));
  EXPECT_THAT(reader->class_names(), ElementsAre("\n", "a", "b", "\xC3\xA4", "\xE2\x82\xAC"));
  EXPECT_EQ(reader->largest("tokens"), 4);
  EXPECT_EQ(reader->largest("other"), std::nullopt);
  EXPECT_EQ(reader->place(1), folder.path("a.txt").string() + ", record 1 at character 2");
  EXPECT_THROW(read_record(*reader, 2), Error);
}

TEST(TextRecords, AreBlocksOfBytesIfThatIsWanted) {
  const Folder folder;
  const auto reader =
      open_records(options_of(folder.write("a.bin", std::string("\xFF\0z~", 4)), 3, "bytes"));
  ASSERT_EQ(reader->size(), 1);
  EXPECT_THAT(tokens_in(*reader, 0), ElementsAre(255, 0, 'z', '~'));
  EXPECT_EQ(reader->largest("tokens"), 255);
  EXPECT_TRUE(reader->class_names().empty());
  EXPECT_THAT(reader->place(0), HasSubstr("record 0 at byte 0"));
}

TEST(TextRecords, HaveOneContentHoweverTheFileIsPackedAndCut) {
  const Folder folder;
  const auto content = [](const OpenOptions& options) { return open_records(options)->content(); };
  const std::string plain = folder.write("a.txt", kText);
  EXPECT_EQ(content(options_of(folder.write("a.gz", gzipped(kText)), 2)),
            content(options_of(plain, 2)));
  EXPECT_EQ(content(options_of(plain, 3)), content(options_of(plain, 2)));
  EXPECT_NE(content(options_of(plain, 2, "bytes")), content(options_of(plain, 2)));
  EXPECT_NE(content(options_of(folder.write("b.txt", kText + "b"), 2)),
            content(options_of(plain, 2)));
}

TEST(TextRecords, RefuseWrongOptionsAndTextsByName) {
  const Folder folder;
  const std::string path = folder.write("a.txt", "hello");
  EXPECT_THAT(refusal_of(options_of(path, 0), ErrorCode::invalid_argument),
              AllOf(HasSubstr("0 tokens"), HasSubstr("block=64")));
  EXPECT_THAT(refusal_of(options_of(path, 5), ErrorCode::invalid_argument),
              AllOf(HasSubstr("a.txt has 5 tokens"), HasSubstr("block=4")));
  EXPECT_THAT(refusal_of(options_of(path, 2, "words"), ErrorCode::invalid_argument),
              AllOf(HasSubstr("'words'"), HasSubstr("tokens=characters or bytes")));
  OpenOptions renamed = options_of(folder.write("bad.txt", "ab\nc\x80"), 1);
  renamed.option_names = {{"tokens", "data.tokens"}};
  EXPECT_THAT(
      refusal_of(renamed, ErrorCode::corrupt),
      AllOf(HasSubstr("bad.txt, line 2"), HasSubstr("byte 4"), HasSubstr("data.tokens=bytes")));
  EXPECT_THAT(refusal_of(options_of(folder.path("absent"), 1), ErrorCode::not_found),
              HasSubstr("absent"));
  EXPECT_THAT(refusal_of(options_of(folder.path(), 1), ErrorCode::io),
              HasSubstr(folder.path().string()));
  const std::string packed = gzipped(std::string(100, 'x'));
  EXPECT_THAT(
      refusal_of(options_of(folder.write("cut.gz", packed.substr(0, packed.size() / 2)), 1),
                 ErrorCode::corrupt),
      HasSubstr("cut.gz"));
}

TEST(TextRecords, AreReadFromFilesThatAreNamedSo) {
  const Folder folder;
  // A text without a format is lines.
  const std::string path = folder.write("a.txt", "one\ntwo\n");
  EXPECT_EQ(open_path(path)->fields()[0].name, "text");
  OpenOptions lines = options_of(path, 2);
  lines.format = "lines";
  EXPECT_THAT(refusal_of(lines, ErrorCode::invalid_argument), HasSubstr("no option block"));
}

}  // namespace text_tests
}  // namespace trireme::records
