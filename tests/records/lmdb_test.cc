#include <trireme/base/files.h>
#include <trireme/records/damage.h>
#include <trireme/records/mapped_file.h>
#include <trireme/records/network_files.h>

#include "gone_server.h"
#include "lmdb_files.h"

namespace trireme::records {
namespace lmdb_tests {

namespace fs = std::filesystem;

OpenOptions lmdb(const fs::path& path) {
  OpenOptions options;
  options.format = "lmdb";
  options.path = path;
  return options;
}

TEST(Lmdb, GivesKeysInOrderAndImagesByTheirBeginning) {
  const Folder folder;
  const std::string large(20'000, 'v');
  write_lmdb(folder.path("db"), {{"b", large}, {"a", "\xff\xd8\xff jpeg"}, {"c", ""}});
  for (const char* const path : {"db", "db/data.mdb"}) {
    const auto reader = open_records(lmdb(folder.path(path)));
    ASSERT_EQ(reader->size(), 3);
    Record record;
    reader->read(0, record);
    EXPECT_EQ(record.at("key").text(), "a");
    EXPECT_EQ(record.at("image").text(), "\xff\xd8\xff jpeg");
    reader->read(1, record);
    EXPECT_EQ(record.at("value").text(), large);
    EXPECT_EQ(record.find("image"), nullptr);
    reader->read(2, record);
    EXPECT_EQ(record.at("value").text(), "");
    EXPECT_EQ(reader->fields().size(), 3U);
  }
}

// Keys on several levels of pages, and values in pages of keys and in pages of their own.
TEST(Lmdb, KnowsThePlaceOfEachValue) {
  const Folder folder;
  std::vector<std::pair<std::string, std::string>> records;
  for (int i = 0; i < 250; ++i) {
    const std::string content = fmt::format("value {}", i);
    records.emplace_back(fmt::format("{:06}", i), content + std::string(37 * i % 3000, 'v'));
  }
  write_lmdb(folder.path("db"), records);
  const auto reader = open_records(lmdb(folder.path("db")));
  ASSERT_EQ(reader->size(), 250);
  for (int64_t i = 0; i < 250; ++i) {
    reader->warm(i);
    const auto& [key, value] = records[static_cast<size_t>(i)];
    ASSERT_EQ(text_of(*reader, i, "key"), key);
    ASSERT_EQ(text_of(*reader, i, "value"), value);
  }
}

TEST(Lmdb, RefusesAFileThatIsBeingWritten) {
  const Folder folder;
  write_lmdb(folder.path("db"), {{"a", "one"}});
  const auto reader = open_records(lmdb(folder.path("db")));
  EXPECT_EQ(text_of(*reader, 0, "value"), "one");
  {  // A batch of views looks behind its last record, too.
    const LateChecks checks;
    EXPECT_EQ(text_of(*reader, 0, "value"), "one");
    EXPECT_TRUE(checks.are_whole());
    write_lmdb(folder.path("db"), {{"b", "two"}});
    EXPECT_FALSE(checks.are_whole());
  }
  EXPECT_NE(message_of(ErrorCode::corrupt, [&] { read_record(*reader, 0); }).find("has written"),
            std::string::npos);
}

TEST(Lmdb, ReadsTheFileOfAServer) {
  const Folder folder;
  write_lmdb(folder.path("db"), {{"a", "one"}, {"b", std::string(20'000, 'v')}});
  write_lmdb(folder.path("other"), {{"a", "two"}});
  const GoneServer server;
  const std::string bytes = read_file(folder.path("db/data.mdb"));
  const OpenOptions options = server.options("lmdb", server.put("data.mdb", bytes));
  const auto made = open_records(options);
  expect_same_records(*made, *open_records(lmdb(folder.path("db"))));
  EXPECT_EQ(made->place(1), "http://127.0.0.1:1/data/data.mdb, record 1");
  // The index knows the file: another one that has taken its place is not read.
  server.put("data.mdb", read_file(folder.path("other/data.mdb")));
  EXPECT_EQ(text_of(*made, 0, "value"), "one") << "a file stays open";
  EXPECT_NE(refusal_without_secret(options, ErrorCode::io).find("data.mdb: it cannot be fetched"),
            std::string::npos);
  OpenOptions anew = options;
  anew.make_index_anew = true;
  EXPECT_EQ(text_of(*open_records(anew), 0, "value"), "two");
  anew.path = GoneServer::address("{a,b}.mdb");
  EXPECT_NE(refusal_without_secret(anew, ErrorCode::invalid_argument).find("is not one file"),
            std::string::npos);
}

TEST(Lmdb, RefusesFilesThatAreCutOrNone) {
  const Folder folder;
  write_lmdb(folder.path("db"), {{"a", std::string(50'000, 'v')}});
  const fs::path file = folder.path("db/data.mdb");
  const auto reader = open_records(lmdb(file));
  fs::resize_file(file, 3 * 4096);
  EXPECT_NE(message_of(ErrorCode::corrupt, [&] { read_record(*reader, 0); }).find("now has 12288"),
            std::string::npos);
  OpenOptions anew = lmdb(file);
  anew.make_index_anew = true;
  EXPECT_NE(message_of(ErrorCode::corrupt, [&] { open_records(anew); }).find("is cut"),
            std::string::npos);
  EXPECT_NE(message_of(ErrorCode::corrupt, [&] { open_records(lmdb(file)); })
                .find("became 12288 bytes, from "),
            std::string::npos);
  fs::resize_file(file, 10);
  EXPECT_NE(message_of(ErrorCode::corrupt, [&] { open_records(lmdb(file)); })
                .find("the file ends at byte 10"),
            std::string::npos);
  folder.write("x.mdb", std::string(8192, 'x'));
  EXPECT_NE(message_of(ErrorCode::corrupt, [&] { open_records(lmdb(folder.path("x.mdb"))); })
                .find("magic"),
            std::string::npos);
}

TEST(Lmdb, RefusesMoreKeysThanItsHeadSays) {
  const Folder folder;
  write_lmdb(folder.path("db"), {{"a", "1"}, {"b", "2"}, {"c", "3"}});
  std::string bytes = read_file(folder.path("db/data.mdb"));
  // Each of the first two pages has the number of keys.
  constexpr size_t kKeysAt = 120;
  for (const size_t page : {size_t{0}, static_cast<size_t>(::sysconf(_SC_PAGESIZE))})
    bytes.replace(page + kKeysAt, sizeof(uint64_t), bytes_of_number<uint64_t>(1));
  const std::string file = folder.write("db/data.mdb", bytes);
  EXPECT_NE(message_of(ErrorCode::corrupt, [&] { open_records(lmdb(file)); })
                .find("more than the 1 keys"),
            std::string::npos);
}

TEST(Lmdb, RefusesALinkThatLeadsOutside) {
  const Folder folder, other;
  write_lmdb(other.path("db"), {{"a", "1"}});
  fs::create_symlink(other.path("db/data.mdb"), folder.path("data.mdb"));
  EXPECT_NE(message_of(ErrorCode::invalid_argument, [&] { open_records(lmdb(folder.path())); })
                .find("outside"),
            std::string::npos);
}

TEST(Lmdb, KnowsNetworkFileSystems) {
  EXPECT_EQ(network_file_system(0x6969), "NFS");
  EXPECT_EQ(network_file_system(static_cast<int>(0xff534d42)), "SMB");
  EXPECT_EQ(network_file_system(0xef53), "");      // ext4
  EXPECT_EQ(network_file_system(0x01021994), "");  // tmpfs
}

TEST(Lmdb, RefusesNetworkFileSystems) {
  const auto message = [](long type, bool is_remote) {
    return message_of(ErrorCode::unsupported, [&] {
      with_place([] { return "data.mdb"; }, [&] { require_local_for_lmdb(type, is_remote); });
    });
  };
  EXPECT_EQ(message(0x6969, false),
            "[data] data.mdb: it is on a network file system (NFS), which LMDB cannot use; try: a "
            "copy on a local disk");
  EXPECT_NE(message(0x65735546, true).find("(FUSE)"), std::string::npos);
  EXPECT_NE(message(0x65735546, true).find("try: a data.download_dir"), std::string::npos);
  EXPECT_NO_THROW(require_local_for_lmdb(0xef53, false));
}

}  // namespace lmdb_tests
}  // namespace trireme::records
