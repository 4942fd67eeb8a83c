// LMDB databases for tests.
#pragma once
#include <dlfcn.h>
#include <trireme/records/formats/lmdb_library.h>

#include "files.h"

namespace trireme::records {

// Writes a database with the library itself.
inline void write_lmdb(const std::filesystem::path& folder,
                       const std::vector<std::pair<std::string, std::string>>& records) {
  const LmdbLibrary& lmdb = lmdb_library();
  void* const handle = ::dlopen("liblmdb.so.0", RTLD_NOW);
  const auto put =
      reinterpret_cast<int (*)(LmdbTxn*, LmdbDatabase, LmdbValue*, LmdbValue*, unsigned)>(
          ::dlsym(handle, "mdb_put"));
  const auto commit = reinterpret_cast<int (*)(LmdbTxn*)>(::dlsym(handle, "mdb_txn_commit"));
  std::filesystem::create_directories(folder);
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

}  // namespace trireme::records
