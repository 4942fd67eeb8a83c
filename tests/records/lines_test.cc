#include "files.h"
#include "tfrecord_files.h"

namespace trireme::records {
namespace lines_tests {

TEST(Lines, GivesEachLineOfAllFilesInOrder) {
  const Folder folder;
  folder.write("b.txt", "third\n\nlast without an end");
  folder.write("a.txt", "first\r\nsecond\n");
  const auto reader = open_path(folder.path());
  ASSERT_EQ(reader->size(), 5);
  EXPECT_EQ(reader->blocks(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(text_of(*reader, 0, "text"), "first");
  EXPECT_EQ(text_of(*reader, 3, "text"), "");
  EXPECT_EQ(text_of(*reader, 4, "text"), "last without an end");
  EXPECT_EQ(reader->place(4), folder.path("b.txt").string() + ", line 3 at byte 7");
  EXPECT_EQ(reader->length(1), 6);
  message_of(ErrorCode::invalid_argument, [&] { read_record(*reader, 5); });
}

TEST(Lines, ReadsCompressedFilesAsOneBlockEach) {
  const Folder folder;
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "line " + std::to_string(i) + "\n";
  folder.write("a.txt.gz", gzipped(text) + gzipped("more\n"));
  folder.write("b.txt.zst", zstd_packed(text) + zstd_packed("more\n"));
  folder.write("c.txt", text);
  const auto reader = open_path(folder.path());
  EXPECT_EQ(reader->blocks(), (std::vector<int64_t>{5001, 5001, 5000}));
  Record record;
  for (const int64_t i : {0, 4999, 5000, 10001, 14999, 17}) {
    reader->read(i, record);
    EXPECT_EQ(record.at("text").text(),
              i % 5001 == 5000 ? "more" : "line " + std::to_string(i % 5001));
  }
}

TEST(Lines, ReadsALineThatIsLongerThanTheWindow) {
  const Folder folder;
  const std::string text(3 << 20, 'x');
  const auto reader = open_path(folder.write("a.txt", "1\n" + text + "\n2\n"));
  EXPECT_EQ(reader->size(), 3);
  EXPECT_EQ(text_of(*reader, 1, "text"), text);
  EXPECT_EQ(text_of(*reader, 2, "text"), "2");
}

TEST(Lines, NamesALineThatIsLargerThanTheMemory) {
  const Folder folder;
  OpenOptions options;
  options.path = folder.write("a.txt", "1\n" + std::string(3 << 20, 'x') + "\n2\n");
  options.memory_bytes = 1 << 20;
  EXPECT_NE(message_of(ErrorCode::invalid_argument, [&] { open_records(options); })
                .find("the line at byte 2 has more than"),
            std::string::npos);
}

TEST(Lines, HasTheSameContentInAnotherFolder) {
  const Folder one, two;
  const auto a = open_path(one.write("a.txt", "1\n2\n")),
             b = open_path(two.write("b.txt", "1\n2\n"));
  EXPECT_EQ(a->content(), b->content());
  EXPECT_NE(a->content(), open_path(two.write("c.txt", "1\n3\n"))->content());
}

TEST(Lines, SurvivesEveryDamage) {
  const Folder folder;
  OpenOptions options;
  options.format = "lines";
  for (const std::string& content :
       {gzipped("some text\nof two lines\n"), zstd_packed("some text\nof two lines\n")}) {
    options.path = folder.path("x");
    read_all_damages(folder, "x", content, options);
  }
}

TEST(Lines, SaysWhereCompressedDataIsCut) {
  const Folder folder;
  const std::string text(100'000, 'a');
  for (const std::string& packed : {gzipped(text), zstd_packed(text)}) {
    const std::string file = folder.write("x.txt", packed.substr(0, packed.size() - 3));
    const std::string message = message_of(ErrorCode::corrupt, [&] { open_path(file); });
    EXPECT_NE(message.find("x.txt"), std::string::npos) << message;
    EXPECT_NE(message.find("cut"), std::string::npos) << message;
  }
}

TEST(Lines, RefusesBombs) {
  const Folder folder;
  const std::string zeros(64 << 20, '\0');
  OpenOptions options;
  for (const std::string& packed : {gzipped(zeros), zstd_packed(zeros)}) {
    options.path = folder.write("bomb.txt.gz", packed);
    options.memory_bytes = 32 << 20;
    options.max_ratio = 1'000'000;
    std::string message = message_of(ErrorCode::invalid_argument, [&] { open_records(options); });
    EXPECT_NE(message.find("33.6 MB"), std::string::npos) << message;
    options.memory_bytes = 1 << 30;
    options.max_ratio = 250;
    message = message_of(ErrorCode::corrupt, [&] { open_records(options); });
    EXPECT_NE(message.find("over 250 times"), std::string::npos) << message;
  }
}

std::string repeated(std::string_view line, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += line;
  return text;
}

// Files of less than 16 MiB, whose indexes are larger.
TEST(Lines, OfWhichEachCostsNothingButItsEntryAreRefused) {
  const Folder folder;
  const std::string empty_record = tfrecord_tests::record_of("");
  constexpr int kTimes = 500'000;
  const std::vector<std::pair<std::string, std::string>> bombs{{"lines", "\n"},
                                                               {"csv", "1\n"},
                                                               {"jsonl", "{\"a\": 1}\n"},
                                                               {"image_list", "a.jpg 0\n"},
                                                               {"tfrecord", empty_record}};
  for (const auto& [format, line] : bombs) {
    SCOPED_TRACE(format);
    OpenOptions options;
    options.format = format;
    options.path = folder.write("bomb.gz", gzipped(repeated(line, kTimes)));
    options.option_names = {{"max_ratio", "the option"}};
    const std::string message =
        message_of(ErrorCode::invalid_argument, [&] { open_records(options); });
    EXPECT_NE(message.find("bomb.gz"), std::string::npos) << message;
    EXPECT_NE(message.find("records and more, whose index has over 250 times"), std::string::npos)
        << message;
    EXPECT_NE(message.find("try: a larger the option"), std::string::npos) << message;
  }
  OpenOptions options;
  options.path = folder.write("x.txt.gz", gzipped(repeated("\n", kTimes)));
  options.max_ratio = 1'000'000;
  EXPECT_EQ(open_records(options)->size(), kTimes);
  // A file that is not packed costs its sender as much.
  options.path = folder.write("x.txt", repeated("\n", kTimes));
  options.max_ratio = 1;
  EXPECT_EQ(open_records(options)->size(), kTimes);
}

TEST(OpenRecords, RefusesOptionsThatTheFormatDoesNotHave) {
  const Folder folder;
  OpenOptions options;
  options.path = folder.write("a.txt", "x\n");
  options.delimiter = ";";
  EXPECT_NE(message_of(ErrorCode::invalid_argument, [&] { open_records(options); })
                .find("the format lines has no option delimiter"),
            std::string::npos);
  options.format = "line";
  EXPECT_NE(message_of(ErrorCode::invalid_argument, [&] { open_records(options); })
                .find("did you mean lines?"),
            std::string::npos);
}

}  // namespace lines_tests
}  // namespace trireme::records
