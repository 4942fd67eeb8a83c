#include "token_files.h"

namespace trireme::records {
namespace tokens_tests {

template <typename T>
std::vector<T> tokens_of(const Reader& reader, int64_t index) {
  return numbers_of<T>(read_record(reader, index).at("tokens"));
}

TEST(Tokens, GivesBlocksOfEachFileOfLlmc) {
  const Folder folder;
  folder.write("a.bin", llmc_file(20240520, 10, tokens_from<uint16_t>(0, 10)));
  folder.write("b.bin", llmc_file(20240520, 7, tokens_from<uint16_t>(100, 7)));
  const auto reader = open_records(tokens(folder.path(), 3));
  ASSERT_EQ(reader->size(), 3 + 2);
  EXPECT_EQ(reader->blocks(), (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(tokens_of<uint16_t>(*reader, 0), (std::vector<uint16_t>{0, 1, 2, 3}));
  EXPECT_EQ(tokens_of<uint16_t>(*reader, 2), (std::vector<uint16_t>{6, 7, 8, 9}));
  EXPECT_EQ(tokens_of<uint16_t>(*reader, 3), (std::vector<uint16_t>{100, 101, 102, 103}));
  EXPECT_EQ(tokens_of<uint16_t>(*reader, 4), (std::vector<uint16_t>{103, 104, 105, 106}));
  EXPECT_EQ(reader->length(0), 4);
  EXPECT_EQ(reader->fields()[0].shape, std::vector<int64_t>{4});
  EXPECT_NE(reader->place(4).find("b.bin, record 1 at byte 1030"), std::string::npos)
      << reader->place(4);
  const auto wide = open_records(
      tokens(folder.write("wide", llmc_file(20240801, 4, tokens_from<uint32_t>(70000, 4))), 3));
  EXPECT_EQ(tokens_of<uint32_t>(*wide, 0).at(3), 70003U);
}

TEST(Tokens, ReadsNumbersAloneWithTheirType) {
  const Folder folder;
  OpenOptions options = tokens(folder.write("x.bin", tokens_from<int32_t>(5, 9)), 4);
  const auto message = [&] {
    return message_of(ErrorCode::invalid_argument, [&] { open_records(options); });
  };
  EXPECT_NE(message().find("try: dtype=uint8"), std::string::npos);
  options.option_names = {{"dtype", "data.token_type"}};
  EXPECT_NE(message().find("try: data.token_type=uint8"), std::string::npos);
  options.dtype = "int64";
  EXPECT_NE(message().find("try: data.token_type=uint8"), std::string::npos);
  options.dtype = "int32";
  const auto reader = open_records(options);
  EXPECT_EQ(reader->size(), 2);
  EXPECT_EQ(tokens_of<int32_t>(*reader, 1), (std::vector<int32_t>{9, 10, 11, 12, 13}));
}

TEST(Tokens, MayBeTheBytesOfAText) {
  const Folder folder;
  OpenOptions options = tokens(folder.write("book.txt", "one\ntwo, three\n\xc3\xa9"), 0);
  options.dtype = "uint8";
  options.separator = '\n';
  const auto lines = open_records(options);
  ASSERT_EQ(lines->size(), 3);
  EXPECT_EQ(tokens_of<uint8_t>(*lines, 2), (std::vector<uint8_t>{'\n', 0xc3, 0xa9}));
  options.separator.reset();
  options.block = 4;
  const auto blocks = open_records(options);
  EXPECT_EQ(blocks->size(), 4);
  EXPECT_EQ(tokens_of<uint8_t>(*blocks, 1), (std::vector<uint8_t>{'t', 'w', 'o', ',', ' '}));
}

TEST(Tokens, RefusesOptionsThatContradict) {
  const Folder folder;
  OpenOptions options =
      tokens(folder.write("x.bin", llmc_file(20240520, 10, tokens_from<uint16_t>(0, 10))), 3);
  options.dtype = "int32";
  EXPECT_NE(message_of(ErrorCode::invalid_argument, [&] { open_records(options); }).find("uint16"),
            std::string::npos);
  options.dtype = "";
  options.separator = 1;
  EXPECT_NE(
      message_of(ErrorCode::invalid_argument, [&] { open_records(options); }).find("one of them"),
      std::string::npos);
}

TEST(Tokens, FindsDocumentsByTheirSeparator) {
  const Folder folder;
  std::string bytes;
  for (const uint16_t token : {9, 1, 2, 9, 3, 9, 4, 5, 6}) bytes += bytes_of_number(token);
  OpenOptions options = tokens(folder.write("x.bin", llmc_file(20240520, 9, bytes)), 0);
  EXPECT_NE(
      message_of(ErrorCode::invalid_argument, [&] { open_records(options); }).find("separator"),
      std::string::npos);
  options.separator = 9;
  const auto reader = open_records(options);
  ASSERT_EQ(reader->size(), 3);
  EXPECT_EQ(tokens_of<uint16_t>(*reader, 1), (std::vector<uint16_t>{9, 3}));
  EXPECT_EQ(tokens_of<uint16_t>(*reader, 2), (std::vector<uint16_t>{9, 4, 5, 6}));
  EXPECT_EQ(reader->length(2), 4);
}

TEST(Tokens, ReadsDocumentsAndBlocksOfMegatron) {
  const Folder folder;
  folder.write("x.bin", tokens_from<uint16_t>(0, 9));
  folder.write("x.idx", Megatron().index());
  for (const char* const name : {"x.bin", "x.idx", "x"}) {
    const auto documents = open_records(tokens(folder.path(name), 0));
    ASSERT_EQ(documents->size(), 2);
    EXPECT_EQ(tokens_of<uint16_t>(*documents, 0), (std::vector<uint16_t>{0, 1, 2, 3, 4}));
    EXPECT_EQ(tokens_of<uint16_t>(*documents, 1), (std::vector<uint16_t>{5, 6, 7, 8}));
    EXPECT_EQ(documents->length(1), 4);
    EXPECT_NE(documents->place(1).find("x.bin, document 1 at byte 10"), std::string::npos);
  }
  const auto blocks = open_records(tokens(folder.path("x"), 4));
  EXPECT_EQ(blocks->size(), 2);
  EXPECT_EQ(tokens_of<uint16_t>(*blocks, 1), (std::vector<uint16_t>{4, 5, 6, 7, 8}));
}

TEST(Tokens, ReadsPackedFiles) {
  const Folder folder;
  const std::string llmc = llmc_file(20240520, 10, tokens_from<uint16_t>(0, 10));
  const auto blocks = open_records(tokens(folder.write("a/a.bin.gz", gzipped(llmc)), 3));
  ASSERT_EQ(blocks->size(), 3);
  EXPECT_EQ(tokens_of<uint16_t>(*blocks, 2), (std::vector<uint16_t>{6, 7, 8, 9}));
  folder.write("a/b.bin.zst", zstd_packed(llmc));
  folder.write("a/c.bin", llmc);
  EXPECT_EQ(open_records(tokens(folder.path("a"), 3))->size(), 9);
  folder.write("a/b.bin", llmc);  // As gunzip -k leaves them.
  EXPECT_EQ(open_records(tokens(folder.path("a"), 3))->size(), 9);
  folder.write("m/x.bin.zst", zstd_packed(tokens_from<uint16_t>(0, 9)));
  folder.write("m/x.idx.gz", gzipped(Megatron().index()));
  for (const char* const name : {"m", "m/x", "m/x.bin.zst", "m/x.idx.gz"}) {
    const auto documents = open_records(tokens(folder.path(name), 0));
    ASSERT_EQ(documents->size(), 2) << name;
    EXPECT_EQ(tokens_of<uint16_t>(*documents, 1), (std::vector<uint16_t>{5, 6, 7, 8}));
  }
  // All unpacked files together have the memory of one.
  OpenOptions small = tokens(folder.path("s"), 3);
  small.memory_bytes = 1 << 16;
  folder.write("s/x.bin.gz", gzipped(tokens_from<uint16_t>(0, 9) + std::string(60'000, '\0')));
  Megatron megatron;
  megatron.lengths.back() += 30'000;
  megatron.documents.resize(1000, 3);
  folder.write("s/x.idx.gz", gzipped(megatron.index()));
  EXPECT_NE(message_of(ErrorCode::invalid_argument, [&] { open_records(small); })
                .find("it unpacks to more than 65.5 KB together with the 60.0 KB of the files"),
            std::string::npos);
  // Only the name tells whether tokens alone are packed.
  const std::string packed = gzipped(tokens_from<uint16_t>(0, 9));
  OpenOptions options = tokens(folder.write("alone.bin", packed), 1);
  options.dtype = "uint8";
  EXPECT_EQ(open_records(options)->size(), std::ssize(packed) - 1);
  options.path = folder.write("alone.bin.gz", packed);
  EXPECT_EQ(open_records(options)->size(), 17);
}

TEST(Tokens, ChecksMegatronsIndexAsAWhole) {
  const Folder folder;
  folder.write("x.bin", tokens_from<uint16_t>(0, 9));
  const auto expect = [&](const Megatron& wrong, ErrorCode code, std::string_view part) {
    folder.write("x.idx", wrong.index());
    const std::string message =
        message_of(code, [&] { open_records(tokens(folder.path("x"), 0)); });
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(message.find("x.idx"), std::string::npos) << message;
  };
  expect({.lengths = {3, 2, 5}}, ErrorCode::corrupt, "20 bytes");
  expect({.lengths = {3, -2, 4}}, ErrorCode::corrupt, "sequence 1");
  expect({.shift = 2}, ErrorCode::corrupt, "sequence 0 begins at byte 2");
  expect({.documents = {0, 9, 3}}, ErrorCode::corrupt, "document 1");
  expect({.documents = {0, 2}}, ErrorCode::corrupt, "document 1");
  expect({.type = 6}, ErrorCode::unsupported, "type 6");
}

TEST(Tokens, NoticesAnIndexThatIsWrittenAnewInPlace) {
  const Folder folder;
  folder.write("x.bin", tokens_from<uint16_t>(0, 9));
  folder.write("x.idx", Megatron().index());
  const auto reader = open_records(tokens(folder.path("x"), 0));
  std::fstream file(folder.path("x.idx"), std::ios::in | std::ios::out | std::ios::binary);
  file << Megatron{.shift = int64_t{1} << 40}.index() << std::flush;
  for (const int64_t document : {0, 1})
    EXPECT_NE(message_of(ErrorCode::corrupt, [&] { read_record(*reader, document); })
                  .find("but the file has 18"),
              std::string::npos);
}

TEST(Tokens, NoticesACutFile) {
  const Folder folder;
  const std::string whole = llmc_file(20240520, 10, tokens_from<uint16_t>(0, 10));
  const std::string file = folder.write("x.bin", whole.substr(0, whole.size() - 2));
  const std::string message =
      message_of(ErrorCode::corrupt, [&] { open_records(tokens(file, 3)); });
  EXPECT_NE(message.find("says 10 tokens"), std::string::npos) << message;
}

TEST(Tokens, SurvivesEveryDamage) {
  const Folder folder;
  folder.write("x.bin", tokens_from<uint16_t>(0, 9));
  read_all_damages(folder, "x.idx", Megatron().index(), tokens(folder.path("x.idx"), 0), 1000);
  OpenOptions options = tokens(folder.path("y.bin"), 0);
  options.separator = 3;
  read_all_damages(folder, "y.bin", llmc_file(20240520, 10, tokens_from<uint16_t>(0, 10)),
                   options);
}

}  // namespace tokens_tests
}  // namespace trireme::records
