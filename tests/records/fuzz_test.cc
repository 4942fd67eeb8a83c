#include <trireme/base/files.h>
#include <algorithm>
#include <functional>
#include <ostream>

#include "../base/crash_note.h"
#include "../base/memory_limit.h"
#include "lmdb_files.h"
#include "mutations.h"
#include "tar_files.h"
#include "tfrecord_files.h"
#include "token_files.h"
#include "zip_files.h"

namespace trireme::records {
namespace fuzz_tests {

const uint32_t kSeeds = fuzz_seeds(300);
constexpr int64_t kMemory = 1 << 20;

// A valid file that is damaged, and how it is read.
struct Subject {
  std::string name;  // Of the test.
  std::string file;
  std::string valid;
  Content content = Content::bytes;
  OpenOptions options{};  // Without the path.
  // Makes the file of the damaged bytes, such as one whose checksums are right again.
  std::function<std::string(const std::string&)> finish{};
  std::vector<std::pair<std::string, std::string>> beside{};  // Names and contents.
  // How many damaged files must still have a record that can be read, and how many must not be
  // read without an error.
  int least_read_percent = 10, least_refused_percent = 10;

  friend void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.name; }
};

OpenOptions of_format(std::string format) {
  OpenOptions options;
  options.format = std::move(format);
  return options;
}

std::string csv_rows() {
  return "name,count,weight\r\n\"a, \"\"b\"\"\",1,0.5\r\n\"two\nlines\", 2 ,3\r\nc,-3,1e2\n"
         "\xc3\xa9,4,.5\n,5,7\n";
}

std::string json_rows() {
  return R"({"id": 7, "text": "a \"b\" \u00e9\ud83d\ude00\n", "x": [1, 2.5, -3e1], "ok": true})"
         "\n\n"
         R"({"ok":false,"x":[],"id":-1,"text":"plain","more":1.5})"
         "\n"
         R"({"id": 9223372036854775807, "text": "", "x": [ 4 , 5 ], "ok": true, "y": [1, 2]})"
         "\n";
}

std::string words() {
  std::string text;
  for (int i = 0; i < 60; ++i) text += fmt::format("line {} of a text\n", i * i % 17);
  return text;
}

std::string array_of_floats() {
  std::string numbers;
  for (int i = 0; i < 12; ++i) numbers += bytes_of_number(static_cast<float>(i));
  return npy_file("'<f4'", "(3, 4)", numbers);
}

std::string array_of_labels() {
  std::string numbers;
  for (int i = 0; i < 3; ++i) numbers += bytes_of_number<int64_t>(i);
  return npy_file("'<i8'", "(3,)", numbers);
}

std::string small_npz(bool is_deflated, bool is_zip64 = false) {
  return zip_of({{"x.npy", array_of_floats()}, {"y.npy", array_of_labels()}}, is_deflated,
                is_zip64);
}

// Members of every kind, with the long names of GNU and pax.
std::string tar_of_all_kinds() {
  const std::string path = fmt::format(" path=a/{}.txt\n", std::string(100, 'p'));
  return tar_member("a/0.jpg", "image zero") + tar_member("a/0.cls", "3\n") +
         tar_header("a/deeper/", 0, '5') + tar_member("a/1.x.npy", array_of_floats()) +
         tar_member("a/1.cls", "5") +
         tar_member("././@LongLink", std::string(120, 'g') + ".txt" + '\0', 'L') +
         tar_member("cut.bin", "gnu") +
         tar_member("pax", std::to_string(path.size() + 3) + path, 'x') +
         tar_member("cut.bin", "pax") + tar_end();
}

// Every block that looks like a header gets the sum of its bytes.
std::string with_tar_sums(std::string tar) {
  for (size_t at = 0; at + 512 <= tar.size(); at += 512) {
    if (tar.compare(at + 257, 5, "ustar") != 0) continue;
    tar.replace(at + 148, 8, "        ");
    unsigned sum = 0;
    for (size_t i = at; i < at + 512; ++i) sum += static_cast<unsigned char>(tar[i]);
    tar.replace(at + 148, 7, fmt::format("{:06o}", sum) + std::string(1, '\0'));
  }
  return tar;
}

std::string example_message() {
  using namespace tfrecord_tests;
  const std::string floats = bytes_of_number(1.5F) + bytes_of_number(-2.5F);
  return message(1, feature("image", 1, message(1, "jpeg")) +
                        feature("label", 3, message(1, "\x07\x80\x01")) +
                        feature("id", 3, "\x08" + varint(static_cast<uint64_t>(-3)) + "\x08\x05") +
                        feature("box", 2, message(1, floats)) +
                        feature("point", 2, "\x0d" + bytes_of_number(4.0F)) +
                        feature("words", 1, message(1, "one") + message(1, "two")));
}

// Four images of 3 x 5 bytes.
std::string idx_images() {
  std::string file("\0\0\x08\x03\0\0\0\x04\0\0\0\x03\0\0\0\x05", 16);
  for (int i = 0; i < 4 * 15; ++i) file += static_cast<char>(i);
  return file;
}

std::string cifar_records(const std::string& labels) {
  std::string records;
  for (int i = 0; i < 4; ++i) records += labels + std::string(3072, static_cast<char>('a' + i));
  return records;
}

std::vector<Subject> text_subjects() {
  OpenOptions chosen = of_format("csv");
  chosen.columns = {"weight", "name"};
  chosen.label = "count";
  OpenOptions headless = of_format("csv");
  headless.header = false;
  OpenOptions scientific = headless;
  scientific.delimiter = "whitespace";
  scientific.skip_lines = 1;
  scientific.comment = "#";
  OpenOptions members = of_format("jsonl");
  members.columns = {"text", "x"};
  members.label = "id";
  OpenOptions characters = of_format("text");
  characters.block = 8;
  const std::string list = "i/a.jpg 0\ni/b.png,1\n\ni/c.webp\t2\ni/a.jpg 7\n";
  return {
      {.name = "Csv",
       .file = "x.csv",
       .valid = csv_rows(),
       .content = Content::text,
       .options = of_format("csv")},
      {.name = "CsvWithChosenColumns",
       .file = "x.csv",
       .valid = csv_rows(),
       .content = Content::text,
       .options = chosen},
      {.name = "CsvWithoutHeader",
       .file = "x.csv",
       .valid = csv_rows(),
       .content = Content::text,
       .options = headless},
      {.name = "CsvOfWhitespace",
       .file = "x.dat",
       .valid = "made by \"a\n# x y\n 1.5\t 2 \"a  b\"\n\n3 4   c\n  # end\n-1e3 \"5\" \"\n\"\n",
       .content = Content::text,
       .options = scientific},
      {.name = "CsvInGzip",
       .file = "x.csv.gz",
       .valid = csv_rows(),
       .content = Content::text,
       .options = of_format("csv"),
       .finish = gzipped},
      {.name = "Jsonl",
       .file = "x.jsonl",
       .valid = json_rows(),
       .content = Content::text,
       .options = of_format("jsonl")},
      {.name = "JsonlWithChosenMembers",
       .file = "x.jsonl",
       .valid = json_rows(),
       .content = Content::text,
       .options = members,
       .least_read_percent = 5},
      {.name = "JsonlInZstd",
       .file = "x.jsonl.zst",
       .valid = json_rows(),
       .content = Content::text,
       .options = of_format("jsonl"),
       .finish = zstd_packed},
      {.name = "Lines",
       .file = "x.txt",
       .valid = words(),
       .content = Content::text,
       .options = of_format("lines"),
       // Every text has lines.
       .least_refused_percent = 0},
      {.name = "TextOfCharacters",
       .file = "x.txt",
       .valid = words() + "\xc3\xa9\xe2\x82\xac",
       .content = Content::text,
       .options = characters,
       // Most changed texts are texts.
       .least_refused_percent = 1},
      {.name = "TextInGzip",
       .file = "x.txt.gz",
       .valid = words(),
       .content = Content::text,
       .options = characters,
       .finish = gzipped,
       .least_refused_percent = 0},
      {.name = "ImageList",
       .file = "list.txt",
       .valid = list,
       .content = Content::text,
       .options = of_format("image_list"),
       .beside = {{"i/a.jpg", "a"}, {"i/b.png", "bb"}, {"i/c.webp", "ccc"}},
       // Most changes of a list name a file that is not there.
       .least_read_percent = 5},
  };
}

std::vector<Subject> binary_subjects() {
  using namespace std::string_literals;
  OpenOptions labelled = of_format("npy");
  labelled.label = "y";
  OpenOptions blocks = of_format("tokens");
  blocks.block = 4;
  OpenOptions bytes = of_format("tokens");
  bytes.dtype = "uint8";
  bytes.separator = '\n';
  const std::string labels = "\0\0\x08\x01\0\0\0\x04\x03\x01\x04\x01"s;
  // Bytes behind the tables have no meaning.
  const std::string index = tokens_tests::Megatron().index() + std::string(64, '\0');
  return {
      // A checksum refuses nearly every change of what is packed.
      {.name = "Gzip",
       .file = "x.txt",
       .valid = gzipped(words()),
       .options = of_format("lines"),
       .least_read_percent = 0},
      {.name = "Zstd",
       .file = "x.txt",
       .valid = zstd_packed(words()),
       .options = of_format("lines")},
      {.name = "Tar",
       .file = "x.tar",
       .valid = tar_of_all_kinds(),
       .options = of_format("webdataset")},
      {.name = "TarWithRightSums",
       .file = "x.tar",
       .valid = tar_of_all_kinds(),
       .options = of_format("webdataset"),
       .finish = with_tar_sums},
      {.name = "TarInZstd",
       .file = "x.tar.zst",
       .valid = tar_of_all_kinds(),
       .options = of_format("webdataset"),
       .finish = [](const std::string& tar) { return zstd_packed(with_tar_sums(tar)); }},
      {.name = "TfRecord",
       .file = "x.tfrecord",
       .valid = tfrecord_tests::small_file() + tfrecord_tests::small_file(),
       .options = of_format("tfrecord")},
      {.name = "TfRecordWithRightSums",
       .file = "x.tfrecord",
       .valid = example_message(),
       .options = of_format("tfrecord"),
       .finish = tfrecord_tests::record_of},
      {.name = "Npy", .file = "x.npy", .valid = array_of_floats(), .options = of_format("npy")},
      {.name = "NpzStored", .file = "a.npz", .valid = small_npz(false), .options = labelled},
      {.name = "NpzDeflated", .file = "a.npz", .valid = small_npz(true), .options = labelled},
      {.name = "NpzOfZip64",
       .file = "a.npz",
       .valid = small_npz(false, true),
       .options = labelled},
      {.name = "NpzWithRightSums",
       .file = "a.npz",
       .valid = array_of_floats(),
       .options = of_format("npy"),
       .finish =
           [](const std::string& array) {
             return zip_of({{"x.npy", array}, {"y.npy", array_of_labels()}}, true);
           }},
      {.name = "TokensOfLlmc",
       .file = "x.bin",
       .valid = tokens_tests::llmc_file(20240520, 40, tokens_tests::tokens_from<uint16_t>(0, 40)),
       .options = blocks},
      {.name = "TokensAlone",
       .file = "x.bin",
       .valid = words(),
       .options = bytes,
       .least_refused_percent = 0},
      {.name = "IndexOfMegatron",
       .file = "x.idx",
       .valid = index,
       .options = of_format("tokens"),
       .beside = {{"x.bin", tokens_tests::tokens_from<uint16_t>(0, 9)}}},
      {.name = "Idx",
       .file = "images-idx3-ubyte",
       .valid = idx_images(),
       .options = of_format("idx"),
       .beside = {{"labels-idx1-ubyte", labels}}},
      {.name = "IdxInGzip",
       .file = "images-idx3-ubyte.gz",
       .valid = idx_images(),
       .options = of_format("idx"),
       .finish = gzipped,
       .beside = {{"labels-idx1-ubyte", labels}}},
      {.name = "Cifar10",
       .file = "x.bin",
       .valid = cifar_records("\x03"),
       .options = of_format("cifar")},
      {.name = "Cifar100",
       .file = "x.bin",
       .valid = cifar_records("\x07\x63"),
       .options = of_format("cifar")},
  };
}

class MutatedFile : public testing::TestWithParam<Subject> {};

TEST_P(MutatedFile, GivesRecordsOrAnErrorSoonAndInLittleMemory) {
  const Subject& subject = GetParam();
  const Folder folder;
  for (const auto& [name, content] : subject.beside) folder.write(name, content);
  OpenOptions options = subject.options;
  options.path = folder.path(subject.file);
  options.make_index_anew = true;
  options.memory_bytes = kMemory;
  OpenOptions keeping = options;
  keeping.keeps_damaged = true;
  keeping.needed = names_of_fields;
  folder.write(subject.file, subject.finish ? subject.finish(subject.valid) : subject.valid);
  const DamagedReads whole = read_damaged(options);
  ASSERT_GT(whole.records, 0);
  ASSERT_EQ(whole.errors, 0);
  const MemoryLimit limit(512 << 20);
  MutationCounts counts;
  for (uint32_t seed = 0; seed < kSeeds && !HasFailure(); ++seed) {
    const std::string about = fmt::format("{}, seed {}", subject.name, seed);
    SCOPED_TRACE(about);
    const CrashNote note(about);
    std::string damaged;  // The first one is empty.
    if (seed > 0) damaged = Mutator(seed).mutate(subject.valid, subject.content);
    if (subject.finish) damaged = subject.finish(damaged);
    folder.write(subject.file, damaged);
    expect_to_end_soon([&] {
      const DamagedReads reads = read_damaged(options);
      // A record takes a byte of the file, or of what it unpacks to.
      EXPECT_LE(reads.size, kMemory);
      counts.add(reads.records > 0, reads.errors > 0);
      EXPECT_LE(read_damaged(keeping).size, kMemory);
    });
  }
  counts.expect_shares(subject.least_read_percent, subject.least_refused_percent);
}

std::string name_of_subject(const testing::TestParamInfo<Subject>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Text, MutatedFile, testing::ValuesIn(text_subjects()), name_of_subject);
INSTANTIATE_TEST_SUITE_P(Binary, MutatedFile, testing::ValuesIn(binary_subjects()),
                         name_of_subject);

TEST(MutatedIndex, IsRefused) {
  const Folder folder;
  OpenOptions options = of_format("csv");
  options.path = folder.write("x.csv", csv_rows());
  open_records(options);
  std::filesystem::path index;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    if (entry.path().extension() == ".index") index = entry.path().filename();
  const std::string whole = read_file(folder.path(index));
  for (uint32_t seed = 1; seed <= kSeeds && !HasFailure(); ++seed) {
    const std::string about = fmt::format("index, seed {}", seed);
    SCOPED_TRACE(about);
    const CrashNote note(about);
    const std::string damaged = Mutator(seed).mutate(whole, Content::bytes);
    if (damaged == whole) continue;
    folder.write(index, damaged);
    expect_to_end_soon([&] { message_of(ErrorCode::corrupt, [&] { open_records(options); }); });
  }
}

// The library checks no pages, so only values and the end of the file are damaged.
TEST(MutatedLmdb, GivesRecordsOrAnErrorSoon) {
  const Folder folder;
  const std::string large(30'000, 'v');
  write_lmdb(folder.path("db"), {{"a", large}, {"b", "\xff\xd8\xff jpeg"}, {"c", ""}});
  const std::string whole = read_file(folder.path("db/data.mdb"));
  const size_t values = whole.find(large);
  ASSERT_NE(values, std::string::npos);
  OpenOptions options = of_format("lmdb");
  options.path = folder.path("db/data.mdb");
  options.make_index_anew = true;
  options.memory_bytes = kMemory;
  MutationCounts counts;
  for (uint32_t seed = 1; seed <= kSeeds && !HasFailure(); ++seed) {
    const std::string about = fmt::format("LMDB, seed {}", seed);
    SCOPED_TRACE(about);
    const CrashNote note(about);
    Mutator mutator(seed);
    std::string damaged = whole;
    if (mutator.below(2) == 0) damaged.resize(mutator.below(whole.size()));
    if (damaged.size() > values + large.size()) {
      std::string other = mutator.mutate(large, Content::bytes);
      other.resize(large.size());
      damaged.replace(values, large.size(), other);
    }
    folder.write("db/data.mdb", damaged);
    expect_to_end_soon([&] {
      const DamagedReads reads = read_damaged(options);
      counts.add(reads.records > 0, reads.errors > 0);
    });
  }
  counts.expect_shares(10, 10);
}

}  // namespace fuzz_tests
}  // namespace trireme::records
