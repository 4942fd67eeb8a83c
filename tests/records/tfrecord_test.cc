#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tfrecord_files.h"

namespace trireme::records {
namespace tfrecord_tests {

using testing::AllOf;
using testing::HasSubstr;

TEST(Crc32c, HasTheValuesOfRfc3720) {
  std::string ascending;
  for (int i = 0; i < 32; ++i) ascending += static_cast<char>(i);
  for (const auto crc : {crc32c, crc32c_by_table}) {
    EXPECT_EQ(crc(as_bytes(std::string(32, '\0'))), 0x8a9136aaU);
    EXPECT_EQ(crc(as_bytes(std::string(32, '\xff'))), 0x62a8ab43U);
    EXPECT_EQ(crc(as_bytes(ascending)), 0x46dd794eU);
    EXPECT_EQ(crc(as_bytes("123456789")), 0xe3069283U);
    EXPECT_EQ(crc({}), 0U);
  }
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>(i * 7);
  for (size_t size = 0; size < text.size(); size += 13) {
    const std::string part = text.substr(0, size);
    EXPECT_EQ(crc32c(as_bytes(part)), crc32c_by_table(as_bytes(part)));
  }
}

TEST(TfRecord, GivesTheFeaturesOfExamples) {
  const Folder folder;
  for (const auto& [name, content] : {std::pair("a.tfrecord", small_file()),
                                      std::pair("b.tfrecord.gz", gzipped(small_file()))}) {
    const auto reader = open_path(folder.write(name, content));
    ASSERT_EQ(reader->size(), 2);
    Record record;
    for (int repeat = 0; repeat < 2; ++repeat) {
      reader->read(0, record);
      EXPECT_EQ(record.at("image").text(), "jpeg");
      EXPECT_TRUE(record.at("image").encoded);
      EXPECT_EQ(numbers_of<int64_t>(record.at("label")), (std::vector<int64_t>{7}));
      EXPECT_EQ(numbers_of<float>(record.at("box")), (std::vector<float>{1.5F, -2.5F}));
      EXPECT_EQ(record.at("box").shape[0], 2);
      reader->read(1, record);
      EXPECT_EQ(numbers_of<int64_t>(record.at("label")), (std::vector<int64_t>{-3, 5}));
      EXPECT_EQ(numbers_of<float>(record.at("box")), (std::vector<float>{4.0F}));
      EXPECT_EQ(record.at("words.0").text(), "one");
      EXPECT_EQ(record.at("words.1").text(), "two");
      EXPECT_EQ(record.find("nothing"), nullptr);
    }
    EXPECT_EQ(reader->fields().size(), 3U);
  }
}

// Not those of the first record alone, which may be damaged.
TEST(TfRecord, HasTheFieldsOfAllRecordsThatItLooksAt) {
  const Folder folder;
  std::string first = small_file();
  first[first.find("jpeg")] = 'J';
  const auto label = [](const std::string& numbers) {
    return feature("label", 3, message(1, numbers));
  };
  const auto reader = open_path(folder.write(
      "x.tfrecord", first + example(label("\x01") + feature("box", 2, message(1, ""))) +
                        example(label("\x02\x03") + feature("box", 2, message(1, "")))));
  ASSERT_EQ(reader->fields().size(), 2U);
  EXPECT_EQ(reader->fields()[0].name, "label");
  EXPECT_FALSE(reader->fields()[0].shape);
  EXPECT_EQ(reader->fields()[1].name, "box");
  const auto whole = open_path(folder.write("y.tfrecord", example(label("\x01"))));
  EXPECT_EQ(whole->fields()[0].shape, std::vector<int64_t>{});
  std::string none = example(label("\x01"));
  none[none.size() - 5] = '!';
  const std::string path = folder.write("z.tfrecord", none);
  EXPECT_NE(message_of(ErrorCode::corrupt, [&] { open_path(path); }).find("z.tfrecord, record 0"),
            std::string::npos);
}

TEST(TfRecord, RefusesAFeatureThatIsThereTwice) {
  const Folder folder;
  const std::string label = feature("label", 3, message(1, std::string(1, '\0')));
  const auto path = folder.write(
      "a.tfrecord", example(label) + example(label + feature("label", 3, message(1, "\x01"))));
  EXPECT_NE(message_of(ErrorCode::corrupt, [&] { read_record(*open_path(path), 1); })
                .find("the feature 'label' is there twice"),
            std::string::npos);
}

TEST(TfRecord, NamesTheRecordWithAWrongCrc) {
  const Folder folder;
  const size_t second = small_file().find("png!");
  std::string damaged = small_file();
  damaged[second] = 'P';
  const auto reader = open_path(folder.write("x.tfrecord", damaged));
  EXPECT_NO_THROW(read_record(*reader, 0));
  const std::string error = message_of(ErrorCode::corrupt, [&] { read_record(*reader, 1); });
  EXPECT_NE(error.find("x.tfrecord, record 1 at byte"), std::string::npos) << error;
  EXPECT_NE(error.find("CRC-32C"), std::string::npos) << error;
}

TEST(TfRecord, HasTheLengthsOfAListInAnIndexOfTheirOwn) {
  const Folder folder;
  const std::string file =
      example(feature("n", 3, message(1, "\x07")) + feature("t", 3, message(1, "\x01\x85\x02"))) +
      example(feature("n", 3, message(1, "\x08")) + feature("t", 3, "\x08\x05")) +
      example(feature("t", 3, "") + feature("n", 3, message(1, "\x09")));
  OpenOptions options;
  for (const auto& [name, content] :
       {std::pair("a.tfrecord", file), std::pair("b.tfrecord.gz", gzipped(file))}) {
    options.path = folder.write(name, content);
    options.length_of = {};
    EXPECT_EQ(open_records(options)->length(0), std::nullopt);
    EXPECT_EQ(open_records(options)->measured_field(), "");
    options.length_of = "t";
    for (int start = 0; start < 2; ++start) {  // The index is made, and then found.
      const auto reader = open_records(options);
      EXPECT_EQ(reader->measured_field(), "t");
      EXPECT_EQ(reader->length(0), 2);
      EXPECT_EQ(reader->length(1), 1);
      EXPECT_EQ(reader->length(2), 0);
      EXPECT_EQ(numbers_of<int64_t>(read_record(*reader, 0).at("t")),
                (std::vector<int64_t>{1, 261}));
      for (const FieldSpec& field : reader->fields())
        EXPECT_EQ(field.shape.has_value(), field.name != "t") << field.name;
    }
  }
}

TEST(TfRecord, NamesARecordWithoutTheListWhoseLengthIsNeeded) {
  const Folder folder;
  const std::string whole = example(feature("t", 3, message(1, "\x01\x02")));
  std::string changed = whole;
  changed[changed.size() - 5] = '\x03';
  OpenOptions options;
  options.length_of = "t";
  const auto error_of = [&](const std::string& second, ErrorCode code) {
    options.path = folder.write("x.tfrecord", whole + second);
    options.make_index_anew = true;
    return message_of(code, [&] { open_records(options); });
  };
  const std::string place = fmt::format("x.tfrecord, record 1 at byte {}", whole.size());
  for (const std::string& second :
       {example(feature("u", 3, message(1, "\x01"))), example(message(1, message(1, "t")))})
    EXPECT_THAT(error_of(second, ErrorCode::corrupt),
                AllOf(HasSubstr(place), HasSubstr("no feature 't'")));
  EXPECT_THAT(error_of(changed, ErrorCode::corrupt),
              AllOf(HasSubstr(place), HasSubstr("wrong CRC-32C")));
  EXPECT_THAT(error_of(example(feature("t", 1, message(1, "text"))), ErrorCode::invalid_argument),
              AllOf(HasSubstr("record 1 at byte"), HasSubstr("'t' is a text or a file")));
  // The other records can be read.
  options.path = folder.write("x.tfrecord", whole + changed + whole);
  options.keeps_damaged = true;
  const auto reader = open_records(options);
  EXPECT_EQ(reader->damaged(), (std::vector<int64_t>{1}));
  EXPECT_EQ(reader->length(1), std::nullopt);
  EXPECT_EQ(reader->length(2), 2);
}

TEST(TfRecord, IsNotTakenForGzipByItsFirstLength) {
  const Folder folder;
  // The length 0x08'8b'1f begins like a gzip file.
  const std::string filler(0x088b1f - 18, 'x');
  std::string features = feature("f", 1, message(1, filler));
  std::string whole = message(1, features);
  const std::string fitting = message(
      1, feature("f", 1, message(1, filler.substr(0, filler.size() + 0x088b1f - whole.size()))));
  whole = fitting;
  ASSERT_EQ(whole.size(), 0x088b1fU);
  EXPECT_EQ(open_path(folder.write("x.tfrecord", record_of(whole)))->size(), 1);
}

TEST(TfRecord, ComparesALengthWithTheMemoryBeforeItAllocates) {
  const Folder folder;
  const std::string length = bytes_of_number<uint64_t>(uint64_t{1} << 40);
  const std::string file = folder.write(
      "x.tfrecord", length + bytes_of_number(masked_crc(crc32c(as_bytes(length)))) + "short");
  const std::string error = message_of(ErrorCode::corrupt, [&] { open_path(file); });
  EXPECT_NE(error.find("record 0 at byte 0: it has 1099511627776 bytes"), std::string::npos)
      << error;
}

TEST(TfRecord, SurvivesEveryDamage) {
  const Folder folder;
  OpenOptions options;
  options.format = "tfrecord";
  options.path = folder.path("x.tfrecord");
  read_all_damages(folder, "x.tfrecord", small_file(), options);
  // Damage with a right CRC.
  const std::string whole = message(
      1, feature("image", 1, message(1, "a") + message(1, "b")) + feature("label", 3, "\x08\x07"));
  for (size_t at = 0; at < whole.size(); ++at)
    for (const int value : {0, 1, 0x7f, 0xff}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(value);
      folder.write("x.tfrecord", record_of(damaged));
      options.make_index_anew = true;
      read_damaged(options);
    }
}

}  // namespace tfrecord_tests
}  // namespace trireme::records
