#include <dlfcn.h>

#include <trireme/records/formats/lmdb_library.h>
#include <trireme/records/network_files.h>
#include "files.h"

namespace trireme::records {
namespace lmdb_tests {

namespace fs = std::filesystem;

// Writes a database with the library itself.
void write_lmdb(const fs::path& folder,
                const std::vector<std::pair<std::string, std::string>>& records) {
  const LmdbLibrary& lmdb = lmdb_library();
  void* const handle = ::dlopen("liblmdb.so.0", RTLD_NOW);
  const auto put =
      reinterpret_cast<int (*)(LmdbTxn*, LmdbDatabase, LmdbValue*, LmdbValue*, unsigned)>(
          ::dlsym(handle, "mdb_put"));
  const auto commit = reinterpret_cast<int (*)(LmdbTxn*)>(::dlsym(handle, "mdb_txn_commit"));
  fs::create_directories(folder);
  LmdbEnv* env = nullptr;
  LmdbTxn* txn = nullptr;
  LmdbDatabase database = 0;
  ASSERT_EQ(lmdb.env_create(&env), 0);
  ASSERT_EQ(lmdb.env_open(env, folder.c_str(), 0, 0644), 0);
  ASSERT_EQ(lmdb.txn_begin(env, nullptr, 0, &txn), 0);
  ASSERT_EQ(lmdb.dbi_open(txn, nullptr, 0, &database), 0);
  for (const auto& [key, value] : records) {
    LmdbValue k{key.size(), const_cast<char*>(key.data())};
    LmdbValue v{value.size(), const_cast<char*>(value.data())};
    ASSERT_EQ(put(txn, database, &k, &v, 0), 0);
  }
  ASSERT_EQ(commit(txn), 0);
  lmdb.env_close(env);
  ::dlclose(handle);
}

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

TEST(Lmdb, RefusesFilesThatAreCutOrNone) {
  const Folder folder;
  write_lmdb(folder.path("db"), {{"a", std::string(50'000, 'v')}});
  const fs::path file = folder.path("db/data.mdb");
  const auto reader = open_records(lmdb(file));
  fs::resize_file(file, 3 * 4096);
  EXPECT_NE(message_of(ErrorCode::corrupt, [&] { read_record(*reader, 0); }).find("now has 12288"),
            std::string::npos);
  EXPECT_NE(message_of(ErrorCode::corrupt, [&] { open_records(lmdb(file)); }).find("is cut"),
            std::string::npos);
  fs::resize_file(file, 10);
  message_of(ErrorCode::corrupt, [&] { open_records(lmdb(file)); });
  folder.write("x.mdb", std::string(8192, 'x'));
  EXPECT_NE(message_of(ErrorCode::corrupt, [&] { open_records(lmdb(folder.path("x.mdb"))); })
                .find("magic"),
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

}  // namespace lmdb_tests
}  // namespace trireme::records
