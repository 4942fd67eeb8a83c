#include "tar_files.h"
#include "zip_files.h"

namespace trireme::records {
namespace npy_tests {

std::string floats(int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += bytes_of_number(static_cast<float>(i) + 0.5F);
  return bytes;
}

std::string labels(int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += bytes_of_number(static_cast<int64_t>(i * 10));
  return bytes;
}

void expect_three_records(const Reader& reader) {
  ASSERT_EQ(reader.size(), 3);
  Record record;
  for (int64_t i = 0; i < 3; ++i) {
    reader.read(i, record);
    const auto first = static_cast<float>(2 * i) + 0.5F;
    EXPECT_EQ(numbers_of<float>(record.at("x")), (std::vector<float>{first, first + 1}));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(record.at("x").bytes.data()) % sizeof(float), 0U);
    EXPECT_EQ(record.at("x").shape[0], 2);
    EXPECT_EQ(numbers_of<int64_t>(record.at("y")), (std::vector<int64_t>{10 * i}));
    EXPECT_TRUE(record.at("y").shape.empty());
  }
}

const std::string& x_file() {
  static const std::string file = npy_file("'<f4'", "(3, 2)", floats(6));
  return file;
}
const std::string& y_file() {
  static const std::string file = npy_file("'<i8'", "(3,)", labels(3));
  return file;
}

TEST(Npy, ReadsAFolderOfFilesAsFields) {
  const Folder folder;
  folder.write("x.npy", x_file());
  folder.write("y.npy", y_file());
  OpenOptions options;
  options.path = folder.path();
  options.label = "y";
  const auto reader = open_records(options);
  expect_three_records(*reader);
  EXPECT_EQ(reader->label(2), 20);
  EXPECT_EQ(reader->fields()[0].shape, std::vector<int64_t>{2});
}

TEST(Npy, ReadsPackedFiles) {
  const Folder folder;
  folder.write("x.npy.gz", gzipped(x_file()));
  folder.write("y.npy.zst", zstd_packed(y_file()));
  expect_three_records(*open_path(folder.path()));
  expect_three_records(*open_path(folder.path("*.npy.*"), "npy"));
  folder.write("x.npy", x_file());  // The packed twin does not count.
  expect_three_records(*open_path(folder.path()));
  std::filesystem::create_directory(folder.path("more"));
  folder.write("more/x.npy", x_file());
  const std::string message = message_of(
      ErrorCode::invalid_argument, [&] { open_path(folder.path("{x,y,more/x}.npy*"), "npy"); });
  EXPECT_NE(message.find("x.npy have an array 'x'"), std::string::npos) << message;
}

TEST(Npy, ReadsStoredAndDeflatedMembersOfNpz) {
  const Folder folder;
  for (const bool is_zip64 : {false, true})
    for (const bool is_deflated : {false, true})
      expect_three_records(*open_path(folder.write(
          is_deflated ? "b.npz" : "a.npz",
          zip_of({{"x.npy", x_file()}, {"y.npy", y_file()}}, is_deflated, is_zip64))));
}

TEST(Npy, NoticesADamagedMember) {
  const Folder folder;
  for (const bool is_deflated : {false, true}) {
    std::string zip = zip_of({{"x.npy", x_file()}}, is_deflated);
    const size_t at = is_deflated ? 80 : zip.find(floats(6)) + 1;
    zip[at] = static_cast<char>(zip[at] ^ 0x10);
    const std::string file = folder.write("a.npz", zip);
    const std::string message =
        message_of(ErrorCode::corrupt, [&] { open_path(file)->verify_files(); });
    EXPECT_NE(message.find("'x.npy'"), std::string::npos) << message;
  }
}

TEST(Npy, RefusesWhatItCannotReadSafely) {
  const Folder folder;
  const auto expect = [&](const std::string& descr, const std::string& shape,
                          const std::string& order, ErrorCode code, std::string_view part) {
    const std::string file = folder.write("a.npy", npy_file(descr, shape, floats(6), order));
    const std::string message = message_of(code, [&] { open_path(file); });
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(message.find("a.npy"), std::string::npos) << message;
  };
  expect("'|O'", "(3,)", "False", ErrorCode::unsupported, "never unpickled");
  expect("[('a', '<f4')]", "(6,)", "False", ErrorCode::unsupported, "several fields");
  expect("'<U6'", "(1,)", "False", ErrorCode::unsupported, "'<U6'");
  expect("'>f4'", "(6,)", "False", ErrorCode::unsupported, "order of bytes");
  expect("'<f4'", "(3, 2)", "True", ErrorCode::unsupported, "ascontiguousarray");
  expect("'<f4'", "()", "False", ErrorCode::corrupt, "4 bytes of numbers");
  expect("'<f4'", "(7,)", "False", ErrorCode::corrupt, "28 bytes of numbers");
  expect("'<f4'", "(5,)", "False", ErrorCode::corrupt, "20 bytes of numbers");
  expect("'<f4'", "(4611686018427387904, 0)", "False", ErrorCode::corrupt, "more numbers than");
  expect("'<f4'", "(9999999999, 9999999999)", "False", ErrorCode::corrupt, "more numbers than");
}

TEST(Npy, NeedsArraysOfTheSameLength) {
  const Folder folder;
  folder.write("x.npy", x_file());
  folder.write("y.npy", npy_file("'<i8'", "(2,)", labels(2)));
  const std::string message =
      message_of(ErrorCode::invalid_argument, [&] { open_path(folder.path()); });
  EXPECT_NE(message.find("'y' has 2 records, but 'x' has 3"), std::string::npos) << message;
}

TEST(Npy, ComparesAMembersSizeWithTheMemoryFirst) {
  const Folder folder;
  std::string zip = zip_of({{"x.npy", x_file()}}, true);
  const size_t entry = zip.find("PK\x01\x02");
  zip.replace(entry + 24, 4, bytes_of_number<uint32_t>(0xfffffff0));
  const std::string file = folder.write("a.npz", zip);
  const std::string message = message_of(ErrorCode::invalid_argument, [&] { open_path(file); });
  EXPECT_NE(message.find("unpacks to 4.3 GB"), std::string::npos) << message;
}

TEST(Npy, ComparesTheSizesOfAllMembersWithTheMemory) {
  const Folder folder;
  const std::string zeros = npy_file("'<f4'", "(3, 50000)", std::string(600'000, '\0'));
  OpenOptions options;
  options.path = folder.write("a.npz", zip_of({{"x.npy", zeros}, {"y.npy", zeros}}, true));
  EXPECT_EQ(open_records(options)->size(), 3);
  options.memory_bytes = 1 << 20;
  const std::string message =
      message_of(ErrorCode::invalid_argument, [&] { open_records(options); });
  EXPECT_NE(message.find("'y.npy' unpacks to"), std::string::npos) << message;
}

TEST(Npy, RefusesMembersThatOverlap) {
  const Folder folder;
  const std::string zip = zip_of({{"x.npy", x_file()}}, false);
  const size_t entry = zip.find("PK\x01\x02"), end = zip.find("PK\x05\x06");
  std::string file = zip.substr(0, entry), tail = zip.substr(end);
  for (int i = 0; i < 1000; ++i) file += zip.substr(entry, end - entry);
  const auto count = bytes_of_number<uint16_t>(1000);
  tail.replace(8, 4, count + count);
  const std::string path = folder.write("a.npz", file + tail);
  EXPECT_NE(message_of(ErrorCode::corrupt, [&] { open_path(path); }).find("overlap"),
            std::string::npos);
}

TEST(Npy, SurvivesEveryDamage) {
  const Folder folder;
  OpenOptions options;
  options.format = "npy";
  options.path = folder.path("a.npy");
  read_all_damages(folder, "a.npy", x_file(), options);
  options.path = folder.path("a.npz");
  for (const bool is_deflated : {false, true})
    read_all_damages(folder, "a.npz",
                     zip_of({{"x.npy", x_file()}, {"y.npy", y_file()}}, is_deflated), options,
                     1000);
}

TEST(Npy, NoticesAFileThatShrinks) {
  const Folder folder;
  const std::string file = folder.write("x.npy", x_file());
  const auto reader = open_path(file);
  std::filesystem::resize_file(file, 130);
  EXPECT_NE(message_of(ErrorCode::corrupt, [&] { read_record(*reader, 2); }).find("now has 130"),
            std::string::npos);
}

}  // namespace npy_tests
}  // namespace trireme::records
