// Parquet and Arrow files: small ones that pyarrow 26 has written, and arrays as Arrow lays them
// out. test_parquet.py has the rest, beside pyarrow itself.
#include <trireme/records/damage.h>
#include <trireme/records/formats/arrow_library.h>
#include <trireme/records/formats/arrow_values.h>
#include <array>
#include <thread>
#include "files.h"
#include "gone_server.h"

namespace trireme::records {
namespace arrow_tests {

namespace fs = std::filesystem;

// Six rows in groups of two: text, x (float32), tokens (list of int32) and label (int64); Snappy,
// with checksums of the pages. The second is a stream without compression.
constexpr std::string_view kParquet =
    "UEFSMRUAFSgVLBXPxteSCRwVBBUAFQYVBhwAAAAUTAIAAAAEAQMAAABvbmUDAAAAdHdvFQAVHBUgFY2wu8cEHBUEFQAVB"
    "h"
    "UGHAAAAA40AgAAAAQBAAAAPwAAgD8VABUwFTIVuYzE3wUcFQYVABUGFQYcAAAAGBQCAAAAAwQBBjQGAwEAAAACAAAAAwA"
    "A"
    "ABUEFSAVJBXek4cDPBUEFQASAAAQPAMAAAAAAAAAAQAAAAAAAAAVABUSFRYV+"
    "4qedBwVBBUQFQYVBhwAAAAJIAIAAAAEAQ"
    "EDAhUAFS4VMhWWzsXZARwVBBUAFQYVBhwAAAAXWAIAAAAEAQUAAAB0aHJlZQQAAABmb3VyFQAVHBUgFdbmy5UGHBUEFQA"
    "V"
    "BhUGHAAAAA40AgAAAAQBAADAPwAAAEAVABUyFTQV06aaowwcFQgVABUGFQYcAAAAGRgCAAAAAwwDAQY0/"
    "QAEAAAABQAAAA"
    "YAAAAVBBUgFSQVwNeTrww8FQQVABIAABA8AgAAAAAAAAAAAAAAAAAAABUAFRIVFhX7ip50HBUEFRAVBhUGHAAAAAkgAgA"
    "A"
    "AAQBAQMCFQAVKhUuFfjCnrAHHBUEFQAVBhUGHAAAABVQAgAAAAQBBAAAAGZpdmUDAAAAc2l4FQAVHBUgFZuXzbEKHBUEF"
    "Q"
    "AVBhUGHAAAAA40AgAAAAQBAAAgQAAAQEAVABUwFTIVoenGywccFQYVABUGFQYcAAAAGBQCAAAAAwQBBjQGAwcAAAAIAAA"
    "A"
    "CQAAABUEFSAVJBXemf6RATwVBBUAEgAAEDwBAAAAAAAAAAIAAAAAAAAAFQAVEhUWFfuKnnQcFQQVEBUGFQYcAAAACSACA"
    "A"
    "AABAEBAwIVBBl8NQAYBnNjaGVtYRUIABUMJQIYBHRleHQlAEwcAAAAFQglAhgBeAA1AhgGdG9rZW5zFQIVBkw8AAAANQQ"
    "Y"
    "BGxpc3QVAgAVAiUCGAdlbGVtZW50ABUEJQIYBWxhYmVsABYMGTwZTCYAHBUMGSUGABkYBHRleHQVAhYEFloWXiYISRwVA"
    "B"
    "UAFQIAPBYMGQYZJgAEAAAAJgAcFQgZJQYAGRgBeBUCFgQWThZSJmZJHBUAFQAVAgA8KQYZJgAEAAAAJgAcFQIZJQYAGTg"
    "G"
    "dG9rZW5zBGxpc3QHZWxlbWVudBUCFgYWYhZkJrgBSRwVABUAFQIAPCkmBAIZRgAAAAYAAAAmABwVBBk1AAYQGRgFbGFiZ"
    "W"
    "wVAhYEFogBFpABJuYCJpwCKSwVBBUAFQIAFQAVEBUCADwpBhkmAAQAAAAWkgMWBCYIFqQDABlMJgAcFQwZJQYAGRgEdGV"
    "4"
    "dBUCFgQWYBZkJqwDSRwVABUAFQIAPBYSGQYZJgAEAAAAJgAcFQgZJQYAGRgBeBUCFgQWThZSJpAESRwVABUAFQIAPCkGG"
    "S"
    "YABAAAACYAHBUCGSUGABk4BnRva2VucwRsaXN0B2VsZW1lbnQVAhYIFmQWZibiBEkcFQAVABUCADwpJgQEGUYAAgAGAAA"
    "A"
    "JgAcFQQZNQAGEBkYBWxhYmVsFQIWBBaKARaSASaUBibIBSksFQQVABUCABUAFRAVAgA8KQYZJgAEAAAAFpwDFgQmrAMWr"
    "g"
    "MAGUwmABwVDBklBgAZGAR0ZXh0FQIWBBZcFmAm2gZJHBUAFQAVAgA8Fg4ZBhkmAAQAAAAmABwVCBklBgAZGAF4FQIWBBZ"
    "O"
    "FlImugdJHBUAFQAVAgA8KQYZJgAEAAAAJgAcFQIZJQYAGTgGdG9rZW5zBGxpc3QHZWxlbWVudBUCFgYWYhZkJowISRwVA"
    "B"
    "UAFQIAPCkmBAIZRgAAAAYAAAAmABwVBBk1AAYQGRgFbGFiZWwVAhYEFooBFpIBJrwJJvAIKSwVBBUAFQIAFQAVEBUCADw"
    "p"
    "BhkmAAQAAAAWlgMWBCbaBhaoAwAoIHBhcnF1ZXQtY3BwLWFycm93IHZlcnNpb24gMjYuMC4xGUwcAAAcAAAcAAAcAAAAR"
    "g"
    "MAAFBBUjE=";

constexpr std::string_view kStream =
    "/////"
    "0ABAAAQAAAAAAAKAAwABgAFAAgACgAAAAABBAAMAAAACAAIAAAABAAIAAAABAAAAAQAAADgAAAAoAAAADgAAAAEAA"
    "AAQP///wAAAQIQAAAAGAAAAAQAAAAAAAAABQAAAGxhYmVsAAAApP///wAAAAFAAAAAcP///"
    "wAAAQwUAAAAHAAAAAQAAAAB"
    "AAAAFAAAAAYAAAB0b2tlbnMAAGT///+c////"
    "AAABAhAAAAAgAAAABAAAAAAAAAAEAAAAaXRlbQAAAAAIAAwACAAHAAgAAA"
    "AAAAABIAAAANT///"
    "8AAAEDEAAAABgAAAAEAAAAAAAAAAEAAAB4AAYACAAGAAYAAAAAAAEAEAAUAAgABgAHAAwAAAAQABAA"
    "AAAAAAEFEAAAABwAAAAEAAAAAAAAAAQAAAB0ZXh0AAAAAAQABAAEAAAAAAAAAP////"
    "9YAQAAFAAAAAAAAAAMABYABgAFAA"
    "gADAAMAAAAAAMEABgAAACoAAAAAAAAAAAACgAYAAwABAAIAAoAAADMAAAAEAAAAAIAAAAAAAAAAAAAAAsAAAAAAAAAAAA"
    "A"
    "AAAAAAAAAAAAAAAAAAAAAAAMAAAAAAAAABAAAAAAAAAAFgAAAAAAAAAoAAAAAAAAAAAAAAAAAAAAKAAAAAAAAAAYAAAAA"
    "A"
    "AAAEAAAAAAAAAAAAAAAAAAAABAAAAAAAAAAAwAAAAAAAAAUAAAAAAAAAAAAAAAAAAAAFAAAAAAAAAAJAAAAAAAAAB4AAA"
    "A"
    "AAAAAAAAAAAAAAAAeAAAAAAAAAAwAAAAAAAAAAAAAAAFAAAAAgAAAAAAAAAAAAAAAAAAAAIAAAAAAAAAAAAAAAAAAAACA"
    "A"
    "AAAAAAAAAAAAAAAAAAAwAAAAAAAAAAAAAAAAAAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAwAAAAYAAAAAAAAAb25ldHdvdGh"
    "y"
    "ZWVmb3VyZml2ZXNpeAAAAAAAPwAAgD8AAMA/"
    "AAAAQAAAIEAAAEBAAAAAAAEAAAADAAAAAAAAAAEAAAACAAAAAwAAAAQAAA"
    "AFAAAABgAAAAcAAAAIAAAACQAAAAAAAAADAAAAAAAAAAEAAAAAAAAAAgAAAAAAAAAAAAAAAAAAAAEAAAAAAAAAAgAAAAA"
    "A"
    "AAD/////"
    "WAEAABQAAAAAAAAADAAWAAYABQAIAAwADAAAAAADBAAYAAAAWAAAAAAAAAAAAAoAGAAMAAQACAAKAAAAzAAAAB"
    "AAAAACAAAAAAAAAAAAAAALAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAADAAAAAAAAAAQAAAAAAAAABAAAAAAAAAAIAA"
    "A"
    "AAAAAAAAAAAAAAAAACAAAAAAAAAACAAAAAAAAAAoAAAAAAAAAAAAAAAAAAAAKAAAAAAAAAAMAAAAAAAAADgAAAAAAAAAA"
    "A"
    "AAAAAAAAA4AAAAAAAAABAAAAAAAAAASAAAAAAAAAAAAAAAAAAAAEgAAAAAAAAAEAAAAAAAAAAAAAAABQAAAAIAAAAAAAA"
    "A"
    "AAAAAAAAAAACAAAAAAAAAAAAAAAAAAAAAgAAAAAAAAAAAAAAAAAAAAMAAAAAAAAAAAAAAAAAAAACAAAAAAAAAAAAAAAAA"
    "A"
    "AAAAAAAAUAAAAJAAAAAAAAAHRocmVlZm91cmZpdmVzaXgAAMA/"
    "AAAAQAAAAAAAAAAAAwAAAAAAAAAEAAAABQAAAAYAAAAH"
    "AAAAAgAAAAAAAAAAAAAAAAAAAP////"
    "9YAQAAFAAAAAAAAAAMABYABgAFAAgADAAMAAAAAAMEABgAAABQAAAAAAAAAAAACg"
    "AYAAwABAAIAAoAAADMAAAAEAAAAAIAAAAAAAAAAAAAAAsAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAMAAAAAAAAABA"
    "A"
    "AAAAAAAABwAAAAAAAAAYAAAAAAAAAAAAAAAAAAAAGAAAAAAAAAAIAAAAAAAAACAAAAAAAAAAAAAAAAAAAAAgAAAAAAAAA"
    "A"
    "wAAAAAAAAAMAAAAAAAAAAAAAAAAAAAADAAAAAAAAAADAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAQAAAAAAAAAAQAAAAAAA"
    "A"
    "AAAAAAAFAAAAAgAAAAAAAAAAAAAAAAAAAAIAAAAAAAAAAAAAAAAAAAACAAAAAAAAAAAAAAAAAAAAAwAAAAAAAAAAAAAAA"
    "A"
    "AAAAIAAAAAAAAAAAAAAAAAAAAAAAAABAAAAAcAAAAAAAAAZml2ZXNpeAAAACBAAABAQAAAAAABAAAAAwAAAAAAAAAHAAA"
    "A"
    "CAAAAAkAAAAAAAAAAQAAAAAAAAACAAAAAAAAAP////8AAAAA";

std::string from_base64(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char digit : text.substr(0, text.find('='))) {
    bits = bits << 6 | static_cast<uint32_t>(kDigits.find(digit));
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>(bits >> count));
  }
  return bytes;
}

// A build without Arrow refuses each file, and says what is missing.
bool is_built_without_arrow() {
  try {
    arrow_library();
    return false;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_NE(std::string(error.what()).find("pip install pyarrow"), std::string::npos);
    return true;
  }
}

class ArrowFiles : public testing::TestWithParam<const char*> {
 protected:
  bool is_parquet() const { return std::string_view(GetParam()) == "x.parquet"; }
  std::string content() const { return from_base64(is_parquet() ? kParquet : kStream); }
  OpenOptions options() const {
    OpenOptions options;
    options.path = folder_.write(GetParam(), content());
    return options;
  }
  Folder folder_;
};

TEST_P(ArrowFiles, GiveRowsInBlocks) {
  if (is_built_without_arrow()) return;
  OpenOptions open = options();
  open.label = "label";
  const auto reader = open_records(open);
  ASSERT_EQ(reader->size(), 6);
  EXPECT_EQ(reader->blocks(), (std::vector<int64_t>{2, 2, 2}));
  EXPECT_EQ(text_of(*reader, 3, "text"), "four");
  const Record record = read_record(*reader, 3);
  EXPECT_EQ(numbers_of<float>(record.at("x")), std::vector<float>{2});
  EXPECT_EQ(numbers_of<int32_t>(record.at("tokens")), (std::vector<int32_t>{4, 5, 6}));
  ASSERT_EQ(record.at("tokens").shape.size(), 1U);
  EXPECT_EQ(record.at("tokens").shape[0], 3);
  EXPECT_EQ(reader->label(1), 1);
  EXPECT_EQ(reader->length(3), 3);  // The list's, not the text's.
  EXPECT_NE(reader->place(3).find(is_parquet() ? "row 3 (row group 1)" : "row 3 (batch 1)"),
            std::string::npos)
      << reader->place(3);
  message_of(ErrorCode::invalid_argument, [&] { read_record(*reader, 6); });
}

TEST_P(ArrowFiles, GiveTheColumnsThatWereChosenInTheirOrder) {
  if (is_built_without_arrow()) return;
  OpenOptions open = options();
  open.columns = {"label", "text"};
  const auto reader = open_records(open);
  ASSERT_EQ(reader->fields().size(), 2U);
  EXPECT_EQ(reader->fields()[0].name, "label");
  const Record record = read_record(*reader, 5);
  EXPECT_EQ(numbers_of<int64_t>(record.fields[0]), std::vector<int64_t>{2});
  EXPECT_EQ(record.fields[1].text(), "six");
  const std::string all = open_path(open.path)->content();
  EXPECT_NE(reader->content(), all);
  open.columns = {"none"};
  EXPECT_NE(message_of(ErrorCode::invalid_argument, [&] { open_records(open); })
                .find("text, x, tokens, label"),
            std::string::npos);
}

TEST_P(ArrowFiles, GiveColumnsThatAreChosenByTheirFields) {
  if (is_built_without_arrow()) return;
  OpenOptions named = options(), chosen = named;
  named.columns = {"tokens", "label"};
  named.label = "label";
  int calls = 0;
  chosen.choose = [&](const std::vector<FieldSpec>& fields) -> ColumnChoice {
    ++calls;
    EXPECT_EQ(fields.size(), 4U);
    return {{fields[2].name, fields[3].name}, fields[3].name};
  };
  const auto reader = open_records(chosen);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(reader->content(), open_records(named)->content());
  EXPECT_EQ(reader->label(5), 2);
  ASSERT_EQ(reader->fields().size(), 2U);
  EXPECT_EQ(read_record(*reader, 0).fields.size(), 2U);
}

TEST_P(ArrowFiles, StayValidWhileARecordKeepsThem) {
  if (is_built_without_arrow()) return;
  const auto reader = open_records(options());
  std::vector<Record> records(6);
  for (int64_t i = 0; i < 6; ++i) reader->read(i, records[static_cast<size_t>(i)]);
  EXPECT_EQ(records[0].at("text").text(), "one");
  EXPECT_EQ(records[4].at("text").text(), "five");
}

TEST_P(ArrowFiles, GiveSeveralThreadsTheSame) {
  if (is_built_without_arrow()) return;
  const auto reader = open_records(options());
  std::vector<std::thread> threads;
  std::array<int, 4> right{};
  for (size_t t = 0; t < right.size(); ++t)
    threads.emplace_back([&, t] {
      Record record;
      for (int64_t i = 0; i < 600; ++i) {
        const int64_t index = (i * 7 + static_cast<int64_t>(t)) % 6;
        reader->read(index, record);
        right[t] += numbers_of<float>(record.at("x"))[0] == 0.5F * static_cast<float>(index + 1);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const int count : right) EXPECT_EQ(count, 600);
}

TEST_P(ArrowFiles, AreRefusedIfTheyChangeWhileTheyAreOpen) {
  if (is_built_without_arrow()) return;
  const OpenOptions open = options();
  const auto reader = open_records(open);
  EXPECT_EQ(text_of(*reader, 0, "text"), "one");
  std::string changed = content();
  changed[16] ^= 1;
  std::ofstream(open.path, std::ios::binary) << changed;
  fs::last_write_time(open.path, fs::file_time_type::clock::now() + std::chrono::seconds(5));
  EXPECT_NE(message_of(ErrorCode::corrupt, [&] { read_record(*reader, 5); }).find("changed"),
            std::string::npos);
  fs::resize_file(open.path, 100);
  message_of(ErrorCode::corrupt, [&] { read_record(*reader, 3); });
}

TEST_P(ArrowFiles, AreReadOnThoughTheirTimeChanges) {
  if (is_built_without_arrow()) return;
  const OpenOptions open = options();
  const auto reader = open_records(open);
  fs::last_write_time(open.path, fs::file_time_type::clock::now() + std::chrono::seconds(5));
  EXPECT_EQ(text_of(*reader, 5, "text"), "six");
}

// To make the index of Parquet's footers needs the server (test_remote_formats.py).
TEST_P(ArrowFiles, AreReadFromAServer) {
  if (is_built_without_arrow() || is_parquet()) return;
  const GoneServer server;
  const std::string name = GetParam(), end = name.substr(1);
  server.put("a" + end, content()), server.put("b" + end, content());
  const std::string both = "{a,b}" + end;
  folder_.write("a" + end, content()), folder_.write("b" + end, content());
  OpenOptions here = options(), there = server.options({}, GoneServer::address(both));
  here.path = folder_.path(both);
  here.label = there.label = "label";
  const auto remote = open_records(there);
  expect_same_records(*remote, *open_records(here));
  EXPECT_EQ(remote->blocks(), open_records(here)->blocks());
  EXPECT_EQ(remote->place(6).find("http://127.0.0.1:1/data/b" + end + ", row 0"), 0U);
  there.path = GoneServer::address("{a,c}" + end);
  EXPECT_NE(refusal_without_secret(there, ErrorCode::io).find("data/c" + end), std::string::npos);
}

TEST_P(ArrowFiles, NameDamage) {
  if (is_built_without_arrow()) return;
  read_all_damages(folder_, GetParam(), content(), options(), 600);
}

INSTANTIATE_TEST_SUITE_P(All, ArrowFiles, testing::Values("x.parquet", "x.arrow"));

TEST(ArrowFormats, AreKnownByTheNamesOfTheirFiles) {
  EXPECT_EQ(guess_format("a/x.parquet").name, "parquet");
  EXPECT_EQ(guess_format("data-00000-of-00001.arrow").name, "arrow");
  EXPECT_EQ(guess_format("x.feather").name, "arrow");
}

// An array as the C data interface has it.
struct Laid {
  ArrowSchema schema{};
  ArrowArray array{};
  std::vector<const void*> buffers;
  std::vector<ArrowSchema*> schemas;
  std::vector<ArrowArray*> arrays;

  Laid(const char* format, int64_t length, std::vector<const void*> given, Laid* inner = nullptr)
      : buffers(std::move(given)) {
    schema.format = format;
    array.length = length;
    array.null_count = -1;
    if (inner) {
      schemas.push_back(&inner->schema);
      arrays.push_back(&inner->array);
      schema.n_children = array.n_children = 1;
    }
    schema.children = schemas.data();
    array.children = arrays.data();
    array.n_buffers = std::ssize(buffers);
    array.buffers = buffers.data();
  }
  Laid(const Laid&) = delete;
};

std::string damage_of_row(const ArrowValues& values, int64_t row) {
  Field field;
  std::array<int64_t, 8> sizes{};
  try {
    values.read(row, field, sizes);
  } catch (const Damage& damage) {
    return damage.what;
  }
  return {};
}

TEST(ArrowValues, DoesNotTrustTheOffsetsOfTexts) {
  std::array<int32_t, 4> offsets{0, 3, 1, 5};
  Laid laid("u", 3, {nullptr, offsets.data(), "abcde"});
  const ArrowType type = type_of_arrow(laid.schema);
  const ArrowValues values(type, laid.array);
  EXPECT_EQ(values.length(0), 3);
  EXPECT_NE(damage_of_row(values, 1).find("bytes 3 to 1"), std::string::npos);
  // A mapped file changes.
  offsets[3] = 500;
  EXPECT_NE(damage_of_row(values, 2).find("bytes 1 to 500"), std::string::npos);
}

TEST(ArrowValues, RefusesNullsAlsoInLists) {
  const std::array<int32_t, 4> numbers{1, 2, 3, 4};
  const std::array<int32_t, 4> offsets{0, 2, 3, 4};
  const uint8_t first_two = 0b1011, rows = 0b011;
  Laid inner("i", 4, {&first_two, numbers.data()});
  Laid laid("+l", 3, {&rows, offsets.data()}, &inner);
  const ArrowType type = type_of_arrow(laid.schema);
  const ArrowValues values(type, laid.array);
  EXPECT_EQ(damage_of_row(values, 0), "");
  EXPECT_NE(damage_of_row(values, 1).find("no value"), std::string::npos);
  EXPECT_NE(damage_of_row(values, 2).find("no value"), std::string::npos);
}

TEST(ArrowValues, MakesTensorsOfListsOfEqualLengths) {
  const std::array<float, 6> numbers{1, 2, 3, 4, 5, 6};
  const std::array<int32_t, 4> inner_offsets{0, 2, 4, 5};
  const std::array<int64_t, 3> offsets{0, 2, 3};
  Laid leaf("f", 6, {nullptr, numbers.data()});
  Laid inner("+l", 3, {nullptr, inner_offsets.data()}, &leaf);
  Laid laid("+L", 2, {nullptr, offsets.data()}, &inner);
  const ArrowType type = type_of_arrow(laid.schema);
  EXPECT_EQ(type.dimensions(), 2);
  const ArrowValues values(type, laid.array);
  Field field;
  std::array<int64_t, 8> sizes{};
  EXPECT_EQ(values.read(0, field, sizes), 2U);
  EXPECT_EQ(std::vector(field.shape.begin(), field.shape.end()), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(numbers_of<float>(field), (std::vector<float>{1, 2, 3, 4}));
  // The first row with all three lists is no tensor.
  const std::array<int64_t, 2> ragged_offsets{0, 3};
  Laid ragged("+L", 1, {nullptr, ragged_offsets.data()}, &inner);
  EXPECT_NE(damage_of_row(ArrowValues(type, ragged.array), 0).find("different lengths"),
            std::string::npos);
}

TEST(ArrowValues, StaysInsideOfADictionaryAndOfViews) {
  const std::array<int8_t, 2> keys{1, 2};
  const std::array<int32_t, 3> offsets{0, 1, 3};
  Laid words("u", 2, {nullptr, offsets.data(), "abb"});
  Laid laid("c", 2, {nullptr, keys.data()});
  laid.schema.dictionary = &words.schema;
  laid.array.dictionary = &words.array;
  const ArrowType type = type_of_arrow(laid.schema);
  const ArrowValues values(type, laid.array);
  EXPECT_EQ(values.length(0), 2);
  EXPECT_NE(damage_of_row(values, 1).find("number 2 of a dictionary of 2"), std::string::npos);

  std::array<int32_t, 12> views{};
  views[0] = 3;
  std::memcpy(&views[1], "abc", 3);
  views[4] = 20;  // In buffer 0 from byte 2 on.
  views[7] = 2;
  views[8] = 20;
  views[10] = 1;  // There is no buffer 1.
  const std::string text = "..and a longer text here";
  const std::array<int64_t, 1> sizes{std::ssize(text)};
  Laid viewed("vu", 3, {nullptr, views.data(), text.data(), sizes.data()});
  const ArrowType view_type = type_of_arrow(viewed.schema);
  const ArrowValues view_values(view_type, viewed.array);
  EXPECT_EQ(view_values.length(0), 3);
  EXPECT_EQ(view_values.length(1), 20);
  EXPECT_NE(damage_of_row(view_values, 2).find("damaged"), std::string::npos);
}

TEST(ArrowType, NamesWhatARecordCannotHave) {
  for (const auto& [format, name] :
       {std::pair("d:10,2", "decimal"), {"+m", "a map"}, {"n", "null"}, {"+ud:0,1", "a union"}}) {
    Laid laid(format, 0, {});
    try {
      type_of_arrow(laid.schema);
      ADD_FAILURE() << format;
    } catch (const Damage& damage) {
      EXPECT_EQ(damage.code, ErrorCode::unsupported);
      EXPECT_NE(damage.what.find(name), std::string::npos) << damage.what;
    }
  }
}

TEST(ArrowType, TakesLabelsAndTimesAsNumbers) {
  Laid time("tsu:Europe/Berlin", 0, {});
  EXPECT_EQ(type_of_arrow(time.schema).dtype, plan::DType::int64);
  Laid day("tdD", 0, {});
  EXPECT_EQ(type_of_arrow(day.schema).dtype, plan::DType::int32);
  Laid leaf("C", 0, {});
  Laid fixed("+w:28", 0, {}, &leaf);
  Laid image("+w:28", 0, {}, &fixed);
  const FieldSpec spec = spec_of_arrow("image", type_of_arrow(image.schema));
  EXPECT_EQ(spec.shape, (std::vector<int64_t>{28, 28}));
  EXPECT_FALSE(spec.encoded);
}

}  // namespace arrow_tests
}  // namespace trireme::records
