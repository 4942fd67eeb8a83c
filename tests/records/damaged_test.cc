// Damaged records that the index knows: an error when the files are opened, or records that read()
// refuses, whatever the format.
#include <fmt/format.h>

#include "files.h"
#include "tar_files.h"
#include "tfrecord_files.h"

namespace trireme::records {
namespace damaged_tests {

using Numbers = std::vector<int64_t>;

OpenOptions keeping(const std::string& path, std::vector<std::string> needed = {}) {
  OpenOptions options;
  options.path = path;
  options.keeps_damaged = true;
  options.needed = [needed = std::move(needed)](const std::vector<FieldSpec>& all) {
    return needed.empty() ? names_of_fields(all) : needed;
  };
  return options;
}

Numbers numbers_in(const Reader& reader, const std::string& field) {
  Numbers numbers;
  for (int64_t i = 0; i < reader.size(); ++i) {
    try {
      const Record record = read_record(reader, i);
      const Field& found = record.at(field);
      numbers.push_back(found.dtype == plan::DType::float32
                            ? static_cast<int64_t>(numbers_of<float>(found).at(0))
                            : numbers_of<int64_t>(found).at(0));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt) << error.what();
      EXPECT_NE(std::string(error.what()).find(reader.place(i)), std::string::npos)
          << error.what();
      numbers.push_back(-1);
    }
  }
  return numbers;
}

std::string refusal_of(const std::string& path) {
  OpenOptions options;
  options.path = path;
  options.remedy_of_damage = "another way";
  return message_of(ErrorCode::corrupt, [&] { open_records(options); });
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << text << "\nlacks " << part;
}

TEST(Damaged, RowsOfCsvKeepTheirNumbers) {
  const Folder folder;
  const std::string path =
      folder.write("x.csv", "a,b\n1,2\n3\n4,5,6\n7,\"x\ny\"z\n8,9\n10,\"open\n11,12\n");
  const auto reader = open_records(keeping(path));
  EXPECT_EQ(reader->damaged(), (Numbers{1, 2, 3, 4, 6}));
  // The line behind a damaged one is tried by itself.
  EXPECT_EQ(numbers_in(*reader, "a"), (Numbers{1, -1, -1, -1, -1, 8, -1, 11}));
  expect_parts(message_of(ErrorCode::corrupt, [&] { read_record(*reader, 6); }),
               {"x.csv, line 8 at byte", "not closed"});
  expect_parts(refusal_of(path),
               {"x.csv, line 3 at byte 8: it has 1 cells", "5 records", "another way"});
}

// Its partner may be so far away that no memory for a record has both.
TEST(Damaged, AQuoteWithoutAPartnerIsOneRow) {
  const Folder folder;
  std::string rows;
  for (int i = 0; i < 20'000; ++i) rows += "1,2\n";
  OpenOptions options = keeping(folder.write("x.csv", "a,b\n3,\"4\n" + rows + "5,\"6\n7,8\n"));
  options.memory_bytes = 1 << 16;
  const auto reader = open_records(options);
  ASSERT_EQ(reader->size(), 20'003);
  EXPECT_EQ(reader->damaged(), (Numbers{0, 20'001}));
  EXPECT_EQ(numbers_of<int64_t>(read_record(*reader, 20'002).at("a")).at(0), 7);
  expect_parts(message_of(ErrorCode::corrupt, [&] { read_record(*reader, 0); }),
               {"x.csv, line 2 at byte 4: a quote is not closed within the 65.5 KB of memory"});
}

TEST(Damaged, TheFirstRowWithoutAHeaderMayBeOne) {
  const Folder folder;
  OpenOptions options = keeping(folder.write("x.csv", "a\"b,1\n2,3\n"));
  options.header = false;
  EXPECT_EQ(numbers_in(*open_records(options), "c0"), (Numbers{-1, 2}));
}

TEST(Damaged, AFolderInThePlaceOfAnImageStaysOne) {
  const Folder folder;
  folder.write("a/1.jpg", "one");
  OpenOptions list = keeping(folder.write("list.txt", "a/1.jpg 5\na 6\n"));
  list.format = "image_list";
  for (int time = 0; time < 2; ++time)
    EXPECT_EQ(numbers_in(*open_records(list), "label"), (Numbers{5, -1}));
}

// The first opening writes no index, so that a mended file can be read at once.
TEST(Damaged, FilesCanBeMended) {
  const Folder folder;
  const std::string path = folder.write("x.csv", "a,b\n1,2\n3\n");
  expect_parts(refusal_of(path), {"line 3"});
  folder.write("x.csv", "a,b\n1,2\n3,4\n");
  OpenOptions options;
  options.path = path;
  EXPECT_EQ(numbers_in(*open_records(options), "b"), (Numbers{2, 4}));
}

TEST(Damaged, IsAnErrorAlsoIfAnIndexIsThere) {
  const Folder folder;
  const std::string path = folder.write("x.csv", "a,b\n1,2\n3\n");
  const std::string content = open_records(keeping(path))->content();
  expect_parts(refusal_of(path), {"x.csv, line 3 at byte 8: it has 1 cells", "another way"});
  EXPECT_EQ(open_records(keeping(path))->content(), content);
}

TEST(Damaged, CellsWithoutANumberAreThoseOfNeededColumnsAlone) {
  const Folder folder;
  const std::string path = folder.write("x.csv", "a,b\n1,2\nx,3\n4,\n5,6\n7,nan\n");
  EXPECT_EQ(numbers_in(*open_records(keeping(path)), "a"), (Numbers{1, -1, -1, 5, -1}));
  const auto of_b = open_records(keeping(path, {"b"}));
  EXPECT_EQ(numbers_in(*of_b, "b"), (Numbers{2, 3, -1, 6, -1}));
  EXPECT_TRUE(of_b->fields()[0].encoded);
  const auto of_a = open_records(keeping(path, {"a"}));
  EXPECT_EQ(numbers_in(*of_a, "a"), (Numbers{1, -1, 4, 5, 7}));
}

TEST(Damaged, LinesOfJsonKeepTheirNumbers) {
  const Folder folder;
  const std::string path =
      folder.write("x.jsonl",
                   "{\"a\": 1, \"b\": 1}\n{\"a\": 2\n{\"a\": \"x\", \"b\": 3}\n{\"a\": 4}\n"
                   "{\"a\": 5, \"b\": 5, \"c\": null}\n{\"a\": 6, \"b\": 6}\n");
  const auto reader = open_records(keeping(path, {"a"}));
  EXPECT_EQ(reader->damaged(), (Numbers{1, 2, 4}));
  EXPECT_EQ(numbers_in(*reader, "a"), (Numbers{1, -1, -1, 4, -1, 6}));
  EXPECT_EQ(numbers_in(*open_records(keeping(path, {"b"})), "b"), (Numbers{1, -1, -1, -1, -1, 6}));
  expect_parts(refusal_of(path), {"x.jsonl, line 2 at byte 17: ", "3 records are damaged"});
}

TEST(Damaged, ListsAndTextsOfMostLinesAreFieldsIfTheyAreNeeded) {
  const Folder folder;
  const std::string path = folder.write("x.jsonl", R"({"x": [1, 2], "t": "a", "y": 1})"
                                                   "\n"
                                                   R"({"t": "four", "y": 2})"
                                                   "\n{oops\n"
                                                   R"({"x": [3], "y": 3})"
                                                   "\n"
                                                   R"({"x": [4, 5, 6], "t": "c", "y": 4})"
                                                   "\n");
  const auto of_x = open_records(keeping(path, {"x"})), of_t = open_records(keeping(path, {"t"}));
  EXPECT_EQ(names_of_fields(of_x->fields()), (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(names_of_fields(of_t->fields()), (std::vector<std::string>{"t", "y"}));
  EXPECT_EQ(of_x->damaged(), (Numbers{1, 2}));
  EXPECT_EQ(of_t->damaged(), (Numbers{2, 3}));
  EXPECT_EQ(of_x->length(0), 2);
  EXPECT_EQ(of_x->length(1), std::nullopt);  // The length of its text is another one.
  EXPECT_EQ(of_x->length(4), 3);
  expect_parts(message_of(ErrorCode::corrupt, [&] { read_record(*of_x, 1); }),
               {"x.jsonl, line 2", "there is no member 'x'"});
  EXPECT_EQ(numbers_of<int64_t>(read_record(*of_x, 3).at("x")), Numbers{3});
  EXPECT_EQ(of_x->content(), of_t->content());
  // Otherwise they are no fields, and no error.
  OpenOptions plain;
  plain.path = folder.write("y.jsonl", R"({"x": [1], "y": 1})"
                                       "\n"
                                       R"({"x": [2], "y": 1})"
                                       "\n"
                                       R"({"y": 2})"
                                       "\n");
  const auto stops = open_records(plain);
  EXPECT_EQ(names_of_fields(stops->fields()), std::vector<std::string>{"y"});
  EXPECT_TRUE(stops->doubtful_fields().empty());
}

TEST(Damaged, ListsThatManyLinesLackAreNoFields) {
  const Folder folder;
  std::string lines;
  for (int i = 0; i < 30'000; ++i)
    lines += i % 2 == 0 ? "{\"x\": [1], \"y\": 1}\n" : "{\"y\": 2}\n";
  const std::string path = folder.write("x.jsonl", lines);
  EXPECT_EQ(names_of_fields(open_records(keeping(path))->fields()), std::vector<std::string>{"y"});
}

TEST(Damaged, NeededFieldsAreChosenOnceByAllThatThereAre) {
  const Folder folder;
  OpenOptions options = keeping(folder.write("x.csv", "a,b,c\n1,2,d\nx,3,e\n4,,f\n5,6,g\n"));
  int calls = 0;
  options.needed = [&](const std::vector<FieldSpec>& all) {
    ++calls;
    EXPECT_EQ(names_of_fields(all), (std::vector<std::string>{"a", "b", "c"}));
    EXPECT_FALSE(all[0].encoded);
    EXPECT_FALSE(all[1].encoded);
    EXPECT_TRUE(all[2].encoded);
    return std::vector<std::string>{"b"};
  };
  EXPECT_EQ(numbers_in(*open_records(options), "b"), (Numbers{2, 3, -1, 6}));
  EXPECT_EQ(calls, 1);
  // Without a function none is needed, and nothing is refused.
  options.needed = {};
  const auto none = open_records(options);
  EXPECT_TRUE(none->fields()[0].encoded && none->fields()[1].encoded);
  EXPECT_EQ(none->size(), 4);
  EXPECT_EQ(text_of(*none, 2, "b"), "");
}

TEST(Damaged, MembersOfTarFilesDamageTheirRecord) {
  const Folder folder;
  const std::string tar = tar_member("0.cls", "0") + tar_member("0.txt", "a") +
                          tar_member("1.cls", "one") + tar_member("1.txt", "b") +
                          tar_member("2.txt", "c") + tar_member("3.cls", "3") +
                          tar_member("3.cls", "3") + tar_member("3.txt", "d") +
                          tar_member("4.cls", "4") + tar_member("4.txt", "e");
  const std::string path = folder.write("x.tar", tar + tar_end());
  EXPECT_EQ(open_records(keeping(path, {"txt"}))->damaged(), (Numbers{1, 3}));
  EXPECT_EQ(numbers_in(*open_records(keeping(path)), "cls"), (Numbers{0, -1, -1, -1, 4}));
  expect_parts(refusal_of(path), {"x.tar, record 1 at byte 2048: member '1.cls' must be"});
}

TEST(Damaged, AMemberThatOneRecordLacksIsDoubtful) {
  const Folder folder;
  const std::string path = folder.write(
      "x.tar", tar_member("0.cls", "0") + tar_member("0.txt", "a") + tar_member("1.txt", "b") +
                   tar_member("2.cls", "2") + tar_member("2.txt", "c") + tar_end());
  const auto doubtful = open_path(path)->doubtful_fields();
  ASSERT_EQ(doubtful.size(), 1U);
  EXPECT_EQ(doubtful.at("cls"), "x.tar: record 1 has no member '.cls'");
}

TEST(Damaged, TheRestOfACutFileIsOneRecord) {
  const Folder folder;
  std::string tar;
  for (int i = 0; i < 3; ++i) tar += tar_member(fmt::format("{}.cls", i), std::to_string(i));
  folder.write("t/0.tar", tar);  // Its end mark is missing.
  folder.write("t/1.tar", tar + tar_end());
  EXPECT_EQ(numbers_in(*open_records(keeping(folder.path("t"))), "cls"),
            (Numbers{0, 1, -1, 0, 1, 2}));

  // An Example whose feature "y" has the bytes "v".
  const std::string example =
      tfrecord_tests::record_of("\x0a\x0d\x0a\x0b\x0a\x01y\x12\x06\x0a\x04\x0a\x02vv");
  folder.write("r/0.tfrecord", "short");
  folder.write("r/1.tfrecord", example + example.substr(0, 20));
  const auto reader = open_records(keeping(folder.path("r")));
  EXPECT_EQ(reader->damaged(), (Numbers{0, 2}));
  EXPECT_EQ(text_of(*reader, 1, "y"), "vv");
  EXPECT_NE(reader->place(2).find("1.tfrecord, from byte 31 on"), std::string::npos)
      << reader->place(2);
  ASSERT_EQ(reader->fields().size(), 1U);

  folder.write("z/0.csv.gz", gzipped("a,b\n1,2\n").substr(0, 20));
  folder.write("z/1.csv.gz", gzipped("a,b\n3,4\n"));
  EXPECT_EQ(numbers_in(*open_records(keeping(folder.path("z"))), "a"), (Numbers{-1, 3}));
  OpenOptions nothing = keeping(folder.path("z/0.csv.gz"));
  nothing.columns = {"a"};
  expect_parts(message_of(ErrorCode::corrupt, [&] { open_records(nothing); }), {"0.csv.gz"});
}

TEST(Damaged, EmptyAndMissingImagesKeepTheirNumbers) {
  const Folder folder;
  folder.write("f/a/1.jpg", "one");
  folder.write("f/a/2.jpg", "");
  folder.write("f/b/3.jpg", "three");
  const std::string images = folder.path("f");
  const auto reader = open_records(keeping(images));
  EXPECT_EQ(numbers_in(*reader, "label"), (Numbers{0, -1, 1}));
  expect_parts(refusal_of(images), {"2.jpg", "empty"});
  folder.write("f/a/2.jpg", "two");
  expect_parts(message_of(ErrorCode::corrupt, [&] { open_records(keeping(images)); }),
               {"2.jpg was mended", "trireme data index"});

  OpenOptions list = keeping(folder.write("f/list.txt", "a/1.jpg 5\na/9.jpg 6\nb/3.jpg 7\n"));
  list.format = "image_list";
  EXPECT_EQ(numbers_in(*open_records(list), "label"), (Numbers{5, -1, 7}));
}

TEST(Damaged, BytesThatAreNoTextCanBeNamed) {
  const Folder folder;
  OpenOptions options = keeping(folder.write("x.csv", "a,y\n1,0\n2,caf\xe9\n\xe9,1\n4,1\n"));
  options.label = "y";
  const auto reader = open_records(options);
  EXPECT_EQ(reader->damaged(), Numbers{1});
  expect_parts(message_of(ErrorCode::corrupt, [&] { read_record(*reader, 1); }),
               {"the label in column 'y' is 'caf"});
  EXPECT_EQ(reader->doubtful_fields().size(), 1U);
}

TEST(Damaged, ThereIsALimit) {
  const Folder folder;
  std::string text = "a,b\n1,2\n";
  for (int i = 0; i < 10'001; ++i) text += "3\n";
  expect_parts(message_of(ErrorCode::invalid_argument,
                          [&] { open_records(keeping(folder.write("x.csv", text))); }),
               {"more than 10000 records are damaged"});
}

}  // namespace damaged_tests
}  // namespace trireme::records
