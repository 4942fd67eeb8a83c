#include <dlfcn.h>
#include <trireme/records/pack/pack.h>
#include <trireme/records/pack/whole_numbers.h>
#include <zlib.h>
#include <algorithm>
#include <set>
#include <tuple>
#include "files.h"

// The codes with which zlib fails; Z_OK: it does not.
namespace {
struct {
  int init = Z_OK, deflate = Z_OK;
} failing_zlib;
}  // namespace

// In the place of zlib's own functions, which they call.
extern "C" int deflateInit2_(z_streamp stream, int level, int method, int window, int memory,
                             int strategy, const char* version, int size) {
  static const auto own =
      reinterpret_cast<decltype(&::deflateInit2_)>(::dlsym(RTLD_NEXT, "deflateInit2_"));
  if (failing_zlib.init != Z_OK) return failing_zlib.init;
  return own(stream, level, method, window, memory, strategy, version, size);
}
extern "C" int deflate(z_streamp stream, int flush) {
  static const auto own = reinterpret_cast<decltype(&::deflate)>(::dlsym(RTLD_NEXT, "deflate"));
  return failing_zlib.deflate != Z_OK ? failing_zlib.deflate : own(stream, flush);
}

namespace trireme::records {
namespace pack_tests {

namespace fs = std::filesystem;

// The bytes of a field, whatever its type and however long an integer is.
std::string value_of(const Field& field) {
  if (field.encoded || field.dtype == plan::DType::float32) return std::string(field.text());
  std::string text;
  for_each_whole_number(field, [&](int64_t number) { text += std::to_string(number) + " "; });
  return text;
}

std::vector<std::string> values_of(const Reader& reader, std::string_view field) {
  std::vector<std::string> values;
  for (int64_t i = 0; i < reader.size(); ++i)
    values.push_back(value_of(read_record(reader, i).at(field)));
  return values;
}

std::shared_ptr<const Reader> rows(const Folder& folder, int count = 50) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += "{\"text\": \"row " + std::string(static_cast<size_t>(i % 7), 'x') +
            "\", \"label\": " + std::to_string(i - 3) + ", \"y\": 0.5, \"a\": [" +
            std::to_string(i) + ", -2, 7]}\n";
  return open_path(folder.write("rows.jsonl", text));
}

std::vector<PackedPart> pack_all(const std::shared_ptr<const Reader>& reader,
                                 const PackOptions& options) {
  return pack_records({{{}, reader}}, options);
}

TEST(Pack, WritesTheSameRecordsIntoTarFiles) {
  const Folder folder;
  const auto reader = rows(folder);
  for (const Packing packing : {Packing::none, Packing::zstd, Packing::gzip}) {
    const fs::path output = folder.path("tar" + std::to_string(static_cast<int>(packing)));
    const auto packed = pack_all(
        reader,
        {.to = "webdataset", .output = output, .shard_bytes = 1 << 16, .packing = packing});
    EXPECT_EQ(packed[0].records, 50);
    EXPECT_GT(packed[0].files.size(), 1);
    const auto again = open_path(output);
    ASSERT_EQ(again->size(), 50);
    EXPECT_EQ(values_of(*again, "txt"), values_of(*reader, "text"));
    EXPECT_EQ(values_of(*again, "cls"), values_of(*reader, "label"));
    EXPECT_EQ(values_of(*again, "y.npy"), values_of(*reader, "y"));
    EXPECT_EQ(values_of(*again, "a.npy"), values_of(*reader, "a"));
    EXPECT_EQ(again->label(4), 1);
    EXPECT_TRUE(read_record(*again, 0).at("y.npy").shape.empty());
    EXPECT_EQ(text_of(*again, 17, "__key__"), "000000017");
  }
}

TEST(Pack, KeepsKeysExtensionsAndLongNames) {
  const Folder folder;
  const auto reader = rows(folder, 3);
  pack_all(reader, {.to = "webdataset", .output = folder.path("one")});
  const auto one = open_path(folder.path("one"));
  pack_all(one, {.to = "webdataset", .output = folder.path("two")});
  const auto two = open_path(folder.path("two"));
  EXPECT_EQ(one->content(), two->content());
  std::string name(150, 'n');
  pack_all(open_path(folder.write("long.jsonl", "{\"" + name + "\": \"x\"}\n")),
           {.to = "webdataset", .output = folder.path("long")});
  EXPECT_EQ(text_of(*open_path(folder.path("long")), 0, name), "x");
}

TEST(Pack, WritesTheSameRecordsIntoTfrecords) {
  const Folder folder;
  const auto reader = rows(folder);
  const fs::path output = folder.path("records");
  pack_all(reader, {.to = "tfrecord", .output = output, .packing = Packing::zstd});
  const auto again = open_path(output);
  for (const char* const field : {"text", "label", "y", "a"})
    EXPECT_EQ(values_of(*again, field), values_of(*reader, field)) << field;
}

TEST(Pack, WritesArrays) {
  const Folder folder;
  const auto reader = open_path(folder.write("a.csv", "x,y\n1,0.5\n-2,1.5\n"));
  pack_all(reader, {.to = "npy", .output = folder.path("arrays")});
  const auto again = open_path(folder.path("arrays"));
  for (const char* const field : {"x", "y"})
    EXPECT_EQ(values_of(*again, field), values_of(*reader, field)) << field;
  const std::string message = message_of(ErrorCode::invalid_argument, [&] {
    pack_all(rows(folder), {.to = "npy", .output = folder.path("texts")});
  });
  EXPECT_NE(message.find("'text'"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder.path("texts")));
}

TEST(Pack, WritesTheSameDocumentsOfTokens) {
  const Folder folder;
  std::string lines;
  for (int i = 0; i < 40; ++i) {
    std::string list;
    for (int k = 0; k < i % 5; ++k) list += (k ? ", " : "") + std::to_string(1000 * i + k);
    lines += "{\"a\": [" + list + "], \"label\": 3, \"text\": \"x\"}\n";
  }
  const auto reader = open_path(folder.write("a.jsonl", lines));
  const auto packed = pack_all(reader, {.to = "tokens", .output = folder.path("narrow")});
  EXPECT_EQ(packed[0].files, (std::vector<std::string>{"tokens.bin", "tokens.idx"}));
  const auto narrow = open_path(folder.path("narrow"));
  EXPECT_EQ(narrow->fields()[0].dtype, plan::DType::uint16);
  EXPECT_EQ(values_of(*narrow, "tokens"), values_of(*reader, "a"));
  EXPECT_EQ(narrow->length(4), 4);
  // A file of the pair's own: nothing changes.
  pack_all(narrow, {.to = "tokens", .output = folder.path("again")});
  EXPECT_EQ(open_path(folder.path("again"))->content(), narrow->content());
  const auto wide = open_path(
      folder.write("b.jsonl", lines + "{\"a\": [70000, 1], \"label\": 3, \"text\": \"\"}\n"));
  pack_all(wide, {.to = "tokens", .output = folder.path("wide"), .field = "a", .shuffle = 1});
  const auto shuffled = open_path(folder.path("wide"));
  EXPECT_EQ(shuffled->fields()[0].dtype, plan::DType::int32);
  auto expected = values_of(*wide, "a"), actual = values_of(*shuffled, "tokens");
  EXPECT_NE(actual, expected);
  std::ranges::sort(actual);
  std::ranges::sort(expected);
  EXPECT_EQ(actual, expected);
}

TEST(Pack, TakesTheFieldOfTokensBesideOtherLists) {
  const Folder folder;
  const auto reader = open_path(folder.write("a.jsonl", "{\"mask\": [1], \"tokens\": [2, 3]}\n"));
  pack_all(reader, {.to = "tokens", .output = folder.path("out")});
  EXPECT_EQ(values_of(*open_path(folder.path("out")), "tokens"), values_of(*reader, "tokens"));
}

TEST(Pack, NamesAFieldThatHasNoTokens) {
  const Folder folder;
  const auto reader = open_path(folder.write("a.jsonl",
                                             "{\"a\": [1], \"b\": [2, 3], \"c\": \"x\"}\n"
                                             "{\"a\": [-1], \"b\": [2], \"c\": \"x\"}\n"));
  const PackOptions options{.to = "tokens", .output = folder.path("out")};
  for (const auto& [field, code, part] :
       {std::tuple("", ErrorCode::invalid_argument, "one of a, b"),
        {"d", ErrorCode::invalid_argument, "no field 'd'"},
        {"a", ErrorCode::unsupported, "a.jsonl, line 2"},
        {"c", ErrorCode::unsupported, "has a text"}}) {
    PackOptions named = options;
    named.field = field;
    const std::string message = message_of(code, [&] { pack_all(reader, named); });
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_FALSE(fs::exists(options.output));
  }
}

TEST(Pack, ShufflesByASeed) {
  const Folder folder;
  const auto reader = rows(folder);
  std::set<std::vector<std::string>> orders{values_of(*reader, "label")};
  for (const uint64_t seed : {1, 2}) {
    const fs::path output = folder.path("seed" + std::to_string(seed));
    pack_all(reader, {.to = "tfrecord", .output = output, .shuffle = seed});
    auto labels = values_of(*open_path(output), "label");
    orders.insert(labels);
    auto expected = values_of(*reader, "label");
    std::ranges::sort(labels);
    std::ranges::sort(expected);
    EXPECT_EQ(labels, expected);
  }
  EXPECT_EQ(orders.size(), 3);
}

TEST(Pack, LeavesNothingAfterAnErrorAndReplacesNothing) {
  const Folder folder;
  const fs::path output = folder.path("out");
  const auto two = rows(folder);
  const auto empty_folder = folder.path("empty");
  fs::create_directory(empty_folder);
  pack_all(two, {.to = "tfrecord", .output = empty_folder});
  message_of(ErrorCode::invalid_argument,
             [&] { pack_all(two, {.to = "tfrecord", .output = empty_folder}); });
  message_of(ErrorCode::invalid_argument, [&] { pack_all(two, {.to = "zip", .output = output}); });
  // A reader whose last record is damaged.
  folder.write("rows.jsonl", std::string(fs::file_size(folder.path("rows.jsonl")), '{'));
  message_of(ErrorCode::corrupt, [&] { pack_all(two, {.to = "tfrecord", .output = output}); });
  EXPECT_FALSE(fs::exists(output));
  EXPECT_FALSE(fs::exists(folder.path(".out.packing")));
}

TEST(Pack, WritesIntoTheFolderOfALink) {
  const Folder folder;
  fs::create_directory(folder.path("empty"));
  fs::create_directory_symlink("empty", folder.path("link"));
  pack_all(rows(folder), {.to = "webdataset", .output = folder.path("link")});
  EXPECT_TRUE(fs::is_symlink(folder.path("link")));
  EXPECT_EQ(open_path(folder.path("empty"))->size(), 50);
  fs::create_directory_symlink("nothing", folder.path("lost"));
  const std::string message = message_of(ErrorCode::invalid_argument, [&] {
    check_pack({.to = "npy", .output = folder.path("lost")});
  });
  EXPECT_NE(message.find("leads nowhere"), std::string::npos) << message;
}

TEST(Pack, TellsThatZlibFails) {
  const Folder folder;
  const PackOptions options{
      .to = "webdataset", .output = folder.path("out"), .packing = Packing::gzip};
  for (int* const failure : {&failing_zlib.init, &failing_zlib.deflate}) {
    *failure = Z_MEM_ERROR;
    const std::string message =
        message_of(ErrorCode::internal, [&] { pack_all(rows(folder), options); });
    *failure = Z_OK;
    EXPECT_NE(message.find("insufficient memory"), std::string::npos) << message;
    EXPECT_FALSE(fs::exists(options.output));
  }
}

TEST(Pack, ReplacesWhatAKilledProcessLeft) {
  const Folder folder;
  folder.write(".out.packing/shard-000000.tar", "half");
  pack_all(rows(folder), {.to = "webdataset", .output = folder.path("out")});
  EXPECT_EQ(open_path(folder.path("out"))->size(), 50);
  EXPECT_FALSE(fs::exists(folder.path(".out.packing")));
}

TEST(Pack, NamesARecordThatTheTargetCannotHold) {
  const Folder folder;
  const auto refused = [&](const std::string& line, const std::string& to, const char* part) {
    static int number = 0;
    const auto reader =
        open_path(folder.write("one" + std::to_string(++number) + ".jsonl", line + "\n"));
    const std::string message = message_of(ErrorCode::unsupported, [&] {
      pack_all(reader, {.to = to, .output = folder.path("out")});
    });
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(message.find(".jsonl, line 1"), std::string::npos) << message;
  };
  refused(R"({"a/b": 1})", "webdataset", "'a/b'");
  refused(R"({"cls": "text"})", "webdataset", "'cls'");
  refused(R"({"text": "1", "txt": "2"})", "webdataset", ".txt");
}

}  // namespace pack_tests
}  // namespace trireme::records
