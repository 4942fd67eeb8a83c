#include <set>

#include "files.h"

namespace trireme::records {
namespace csv_tests {

OpenOptions csv(const std::string& path) {
  OpenOptions options;
  options.format = "csv";
  options.path = path;
  return options;
}

TEST(Csv, GivesEachColumnItsType) {
  const Folder folder;
  const auto reader =
      open_path(folder.write("x.csv",
                             "\xef\xbb\xbfname,count,weight\r\n\"a, "
                             "\"\"b\"\"\",1,0.5\r\n\"two\nlines\", 2 ,3\r\nc,-3,1e2"));
  ASSERT_EQ(reader->size(), 3);
  Record record;
  reader->read(0, record);
  EXPECT_EQ(record.at("name").text(), "a, \"b\"");
  EXPECT_TRUE(record.at("name").encoded);
  EXPECT_EQ(numbers_of<int64_t>(record.at("count")).at(0), 1);
  EXPECT_EQ(numbers_of<float>(record.at("weight")).at(0), 0.5F);
  reader->read(1, record);
  EXPECT_EQ(record.at("name").text(), "two\nlines");
  EXPECT_EQ(numbers_of<int64_t>(record.at("count")).at(0), 2);
  reader->read(2, record);
  EXPECT_EQ(numbers_of<float>(record.at("weight")).at(0), 100.0F);
  EXPECT_NE(reader->place(2).find("x.csv, line 5 at byte"), std::string::npos) << reader->place(2);
  ASSERT_EQ(reader->fields().size(), 3U);
  EXPECT_EQ(reader->fields()[1].dtype, plan::DType::int64);
  EXPECT_EQ(reader->fields()[1].shape, std::vector<int64_t>{});
}

TEST(Csv, TakesAColumnsTypeFromAllRowsOfAllFiles) {
  const Folder folder;
  folder.write("a.csv", "x,y\n1,1\n");
  folder.write("b.csv.gz", gzipped("x,y\n2.5,z\n"));
  const auto reader = open_path(folder.path());
  EXPECT_EQ(numbers_of<float>(read_record(*reader, 0).at("x")).at(0), 1.0F);
  EXPECT_EQ(text_of(*reader, 0, "y"), "1");
  EXPECT_EQ(text_of(*reader, 1, "y"), "z");
}

TEST(Csv, ChoosesColumnsAndLabels) {
  const Folder folder;
  OpenOptions options = csv(folder.write("x.csv", "a;b;c\n1;2;3\n4;5;6\n"));
  options.delimiter = ";";
  options.columns = {"c", "a"};
  options.label = "b";
  const auto reader = open_records(options);
  const Record record = read_record(*reader, 1);
  ASSERT_EQ(record.fields.size(), 2U);
  EXPECT_EQ(record.fields[0].name, "c");
  EXPECT_EQ(numbers_of<int64_t>(record.fields[0]).at(0), 6);
  EXPECT_EQ(reader->label(1), 5);
}

TEST(Csv, ReadsRowsWithoutAHeaderAndTabs) {
  const Folder folder;
  OpenOptions options = csv(folder.write("x.tsv", "1\ta\n2\tb\n"));
  options.header = false;
  const auto reader = open_records(options);
  EXPECT_EQ(reader->size(), 2);
  EXPECT_EQ(text_of(*reader, 1, "c1"), "b");
}

TEST(Csv, TakesRunsOfSpacesAndTabsAsOneDelimiter) {
  const Folder folder;
  OpenOptions options = csv(folder.write("x.dat",
                                         "  name\t x  y\r\n \t \n one 1\t 2.5  \n"
                                         "\"two  \"\"words\"\"\"   -3 nan\r\n\t\"a\nb\" 4 5"));
  options.delimiter = "whitespace";
  options.columns = {"name", "x"};
  const auto reader = open_records(options);
  ASSERT_EQ(reader->size(), 3);
  EXPECT_EQ(text_of(*reader, 0, "name"), "one");
  EXPECT_EQ(text_of(*reader, 1, "name"), "two  \"words\"");
  EXPECT_EQ(text_of(*reader, 2, "name"), "a\nb");
  EXPECT_EQ(numbers_of<int64_t>(read_record(*reader, 1).at("x")).at(0), -3);
  options.columns = {};
  EXPECT_NE(message_of(ErrorCode::invalid_argument, [&] { open_records(options); })
                .find("line 4: the column 'y' of numbers has no value there"),
            std::string::npos);
  // A single space is a delimiter for itself.
  options.delimiter = " ";
  options.path = folder.write("y.dat", "a b c\n1  3\n");
  options.columns = {"c"};
  EXPECT_EQ(numbers_of<int64_t>(read_record(*open_records(options), 0).at("c")).at(0), 3);
  options.delimiter = "white";
  EXPECT_NE(message_of(ErrorCode::invalid_argument, [&] { open_records(options); })
                .find("'white', but must be one character, or whitespace"),
            std::string::npos);
}

TEST(Csv, LeavesOutLinesInFrontOfTheHeader) {
  const Folder folder;
  const std::string text = "\xef\xbb\xbfmade \"by\na, machine\n\na,b\n1,2\n3\n";
  OpenOptions options = csv(folder.write("x.csv", text));
  folder.write("y.csv.gz", gzipped("1\n2\n3\na,b\n5,6\n"));
  options.path = folder.path();
  options.skip_lines = 3;
  options.keeps_damaged = true;
  const auto reader = open_records(options);
  ASSERT_EQ(reader->size(), 3);
  EXPECT_EQ(numbers_of<int64_t>(read_record(*reader, 0).at("b")).at(0), 2);
  EXPECT_EQ(numbers_of<int64_t>(read_record(*reader, 2).at("b")).at(0), 6);
  EXPECT_NE(reader->place(1).find("x.csv, line 6 at byte"), std::string::npos) << reader->place(1);
  options.skip_lines = 6;
  EXPECT_NE(message_of(ErrorCode::invalid_argument, [&] { open_records(options); })
                .find("y.csv.gz: the file has 5 lines, but skip_lines is 6"),
            std::string::npos);
  options.skip_lines = -1;
  EXPECT_NE(message_of(ErrorCode::invalid_argument, [&] { open_records(options); })
                .find("skip_lines is -1"),
            std::string::npos);
}

TEST(Csv, LeavesOutComments) {
  const Folder folder;
  OpenOptions options =
      csv(folder.write("x.csv", "# it's 5\" wide\na,b\n  #1,2\n1,#2\n\"#3\",4\n#\n"));
  options.comment = "#";
  const auto reader = open_records(options);
  ASSERT_EQ(reader->size(), 2);
  EXPECT_EQ(text_of(*reader, 0, "b"), "#2");
  EXPECT_EQ(text_of(*reader, 1, "a"), "#3");
  EXPECT_NE(reader->place(0).find("line 4 at byte"), std::string::npos) << reader->place(0);
  for (const char* const wrong : {" #", "\"", "#\n"}) {
    options.comment = wrong;
    EXPECT_NE(message_of(ErrorCode::invalid_argument, [&] { open_records(options); })
                  .find("but must have no quote"),
              std::string::npos);
  }
}

std::set<std::string> indexes_in(const Folder& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    if (entry.path().extension() == ".index") names.insert(entry.path().filename());
  return names;
}

TEST(Csv, HasAnIndexForEachWayToReadIt) {
  const Folder folder;
  OpenOptions options = csv(folder.write("x.csv", "#1\n2 \n3\n"));
  options.header = false;
  std::set<std::string> contents;
  const auto size = [&] {
    const auto reader = open_records(options);
    contents.insert(reader->content());
    return reader->size();
  };
  EXPECT_EQ(size(), 3);
  // The content is that of earlier versions, the index is not.
  EXPECT_EQ(indexes_in(folder), std::set<std::string>{".trireme-csv-37e17816f40a51c7.index"});
  EXPECT_EQ(contents, std::set<std::string>{"0cb4c499574a6156f2cf8f2711e9b025"});
  options.skip_lines = 1;
  EXPECT_EQ(size(), 2);
  options.comment = "#";
  EXPECT_EQ(size(), 2);
  options.skip_lines = 0;
  EXPECT_EQ(size(), 2);
  options.delimiter = "whitespace";
  EXPECT_EQ(size(), 2);
  EXPECT_EQ(indexes_in(folder).size(), 5U);
  EXPECT_EQ(contents.size(), 5U);
}

TEST(Csv, NamesTheLineAndTheColumnOfAMistake) {
  const Folder folder;
  const auto expect = [&](const std::string& text, std::vector<std::string> parts,
                          const OpenOptions& more = {},
                          ErrorCode code = ErrorCode::invalid_argument) {
    OpenOptions options = more;
    options.format = "csv";
    options.path = folder.write("x.csv", text);
    const std::string message = message_of(code, [&] { open_records(options); });
    parts.emplace_back("x.csv");
    for (const std::string& part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << message << "\nlacks " << part;
  };
  expect("a,b\n1,2\n3,\n", {"line 3", "'b'", "no value"});
  expect("a,b\n1,2\n3,NA\n", {"line 3", "'b'", "no value"});
  expect("a,b\n1,2\n3\n", {"line 3", "1 cells", "2"}, {}, ErrorCode::corrupt);
  expect("a,b\n1,2\n3,4,5\n", {"line 3", "3 cells"}, {}, ErrorCode::corrupt);
  expect("a,a\n1,2\n", {"'a'", "twice"});
  expect("a,b\n1,x\"y\n2,\"\n", {"line 2"}, {}, ErrorCode::corrupt);
  expect("a,b\n1,\"open\n", {"line 2", "not closed"}, {}, ErrorCode::corrupt);
  expect("a,b\n1,\"x\"y\n", {"line 2", "closing quote"}, {}, ErrorCode::corrupt);
  OpenOptions more;
  more.columns = {"z"};
  expect("a,b\n1,2\n", {"'z'", "a, b"}, more);
  more.columns = {};
  more.label = "b";
  expect("a,b\n1,cat\n", {"line 2", "'cat'"}, more, ErrorCode::corrupt);
}

TEST(Csv, ReadsManyColumnsSoon) {
  const Folder folder;
  std::string names, cells;
  for (int i = 0; i < 100'000; ++i) {
    names += (i > 0 ? ",c" : "c") + std::to_string(i);
    cells += i > 0 ? ",7" : "7";
  }
  const auto reader = open_path(folder.write("x.csv", names + "\n" + cells + "\n"));
  EXPECT_EQ(reader->fields().size(), 100'000U);
}

TEST(Csv, AllowsAMissingValueInAColumnThatWasNotChosen) {
  const Folder folder;
  OpenOptions options = csv(folder.write("x.csv", "a,b\n1,2\n3,\n"));
  options.columns = {"a"};
  EXPECT_EQ(open_records(options)->size(), 2);
}

TEST(Csv, RefusesAFileWithoutRowsOfWhichColumnsAreChosen) {
  const Folder folder;
  for (const char* const text : {"", "\n\n"}) {
    OpenOptions options = csv(folder.write("x.csv", text));
    options.columns = {"a"};
    EXPECT_NE(message_of(ErrorCode::invalid_argument, [&] { open_records(options); })
                  .find("has no record"),
              std::string::npos);
  }
}

TEST(Csv, SurvivesEveryDamage) {
  const Folder folder;
  read_all_damages(folder, "x.csv", "a,b\n1,\"two \"\" \n lines\"\n3,4\n",
                   csv(folder.path("x.csv")));
}

OpenOptions jsonl(const std::string& path) {
  OpenOptions options;
  options.format = "jsonl";
  options.path = path;
  return options;
}

TEST(Jsonl, GivesNumbersTextsAndArrays) {
  const Folder folder;
  const auto reader = open_path(folder.write(
      "x.jsonl",
      R"({"id": 7, "text": "a \"b\" \u00e9\ud83d\ude00\n", "x": [1, 2.5, -3e1], "ok": true})"
      "\n\n"
      R"({"ok":false,"x":[],"id":-1,"text":"plain","more":1.5})"));
  ASSERT_EQ(reader->size(), 2);
  Record record;
  for (int repeat = 0; repeat < 2; ++repeat) {
    reader->read(0, record);
    EXPECT_EQ(numbers_of<int64_t>(record.at("id")).at(0), 7);
    EXPECT_EQ(record.at("text").text(), "a \"b\" \xc3\xa9\xf0\x9f\x98\x80\n");
    EXPECT_EQ(numbers_of<float>(record.at("x")), (std::vector<float>{1.0F, 2.5F, -30.0F}));
    EXPECT_EQ(record.at("x").shape[0], 3);
    EXPECT_EQ(record.at("ok").bytes[0], std::byte{1});
    EXPECT_EQ(record.find("more"), nullptr);
    reader->read(1, record);
    EXPECT_EQ(record.at("text").text(), "plain");
    EXPECT_EQ(record.at("x").shape[0], 0);
    EXPECT_EQ(numbers_of<float>(record.at("more")).at(0), 1.5F);
  }
  EXPECT_EQ(reader->length(0), 3);
  EXPECT_EQ(reader->fields().size(), 4U);
  EXPECT_NE(reader->place(1).find("x.jsonl, line 3"), std::string::npos);
}

TEST(Jsonl, HasTheLengthsOfTheOnlyListOrOfTheOneThatIsNamed) {
  const Folder folder;
  OpenOptions options;
  options.path = folder.write("x.jsonl",
                              "{\"a\": [1, 2], \"t\": \"text\"}\n"
                              "{\"a\": [], \"t\": \"\", \"b\": [1, 2, 3]}\n");
  EXPECT_EQ(open_records(options)->length(0), std::nullopt);  // Some lines have two lists.
  options.length_of = "a";
  for (int start = 0; start < 2; ++start) {  // The index is made, and then found.
    const auto reader = open_records(options);
    EXPECT_EQ(reader->measured_field(), "a");
    EXPECT_EQ(reader->length(0), 2);
    EXPECT_EQ(reader->length(1), 0);
  }
  options.length_of = "b";
  EXPECT_EQ(open_records(options)->length(0), std::nullopt);
  EXPECT_EQ(open_records(options)->length(1), 3);
  for (const auto& [name, part] : {std::pair("t", "no list of numbers is the member 't'"),
                                   std::pair("c", "no line that is whole has a member 'c'")}) {
    options.length_of = name;
    const std::string message =
        message_of(ErrorCode::invalid_argument, [&] { open_records(options); });
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
}

TEST(Jsonl, NamesTheLineOfAMistake) {
  const Folder folder;
  const auto expect = [&](const std::string& line, std::string_view part) {
    const std::string file = folder.write("x.jsonl", "{\"a\": 1}\n" + line + "\n");
    const std::string message = message_of(ErrorCode::corrupt, [&] { open_path(file); });
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(message.find("x.jsonl, line 2 at byte 9: "), std::string::npos) << message;
  };
  expect(R"({"a": null})", "'a' is null");
  expect(R"({"a": {}})", "an object");
  expect(R"({"a": "x"})", "another type");
  expect(R"({"a": [1]})", "another type");
  expect(R"({"b": [[1]]})", "not a number");
  expect(R"({"b": ["x"]})", "not a number");
  expect(R"({"a": 1, "a": 2})", "twice");
  expect(R"({"a": 1)", "',' is missing");
  expect(R"({"a": 1} x)", "follows");
  expect(R"({"a": 01x})", "missing");
  expect(R"({"a": "\x"})", "escape");
  expect(R"({"a": "\u12"})", "four digits");
  expect(R"([1])", "'{' is missing");
}

TEST(Jsonl, RefusesALineOfManyMembersBeforeItKeepsThem) {
  const Folder folder;
  std::string line = "{\"a\":1";
  for (int i = 0; i < 5000; ++i) line += ",\"a\":1";
  const std::string message =
      message_of(ErrorCode::corrupt, [&] { open_path(folder.write("x.jsonl", line + "}\n")); });
  EXPECT_NE(message.find("more than 4096 different members"), std::string::npos) << message;
}

TEST(Jsonl, ChoosesMembersAndLabels) {
  const Folder folder;
  OpenOptions options = jsonl(folder.write("x.jsonl", "{\"a\":1,\"b\":2,\"c\":\"x\"}\n"));
  options.columns = {"c", "a"};
  options.label = "b";
  const auto reader = open_records(options);
  EXPECT_EQ(read_record(*reader, 0).fields[0].name, "c");
  EXPECT_EQ(reader->label(0), 2);
  options.columns = {"z"};
  message_of(ErrorCode::invalid_argument, [&] { open_records(options); });
}

TEST(Jsonl, SurvivesEveryDamage) {
  const Folder folder;
  read_all_damages(
      folder, "x.jsonl",
      "{\"a\": [1, 2.5], \"b\": \"\\u00e9\\ud83d\\ude00\", \"c\": true}\n{\"a\":[]}\n",
      jsonl(folder.path("x.jsonl")), 1000);
}

}  // namespace csv_tests
}  // namespace trireme::records
