// The liblmdb of this machine, loaded at the first use: only the index of data in LMDB needs it.
// Its header is not needed to build: these are the parts of its interface (0.9) that the index
// uses.
#pragma once
#include <cstddef>
#include <string_view>

namespace trireme::records {

struct LmdbEnv;
struct LmdbTxn;
struct LmdbCursor;
using LmdbDatabase = unsigned int;

struct LmdbValue {
  size_t bytes = 0;
  void* data = nullptr;
};

struct LmdbStat {
  unsigned int page_bytes = 0, depth = 0;
  size_t branch_pages = 0, leaf_pages = 0, overflow_pages = 0, entries = 0;
};

struct LmdbInfo {
  void* map_address = nullptr;
  size_t map_bytes = 0, last_page = 0, last_transaction = 0;
  unsigned int most_readers = 0, readers = 0;
};

struct LmdbLibrary {
  static constexpr unsigned kNoSubdir = 0x4000, kReadOnly = 0x20000, kNoTls = 0x200000,
                            kNoLock = 0x400000, kNoReadAhead = 0x800000;
  static constexpr int kFirst = 0, kNext = 8;  // Places of a cursor.
  static constexpr int kNotFound = -30798;

  char* (*strerror)(int);
  int (*env_create)(LmdbEnv**);
  int (*env_open)(LmdbEnv*, const char* path, unsigned flags, unsigned mode);
  void (*env_close)(LmdbEnv*);
  int (*env_stat)(LmdbEnv*, LmdbStat*);
  int (*env_info)(LmdbEnv*, LmdbInfo*);
  int (*txn_begin)(LmdbEnv*, LmdbTxn* parent, unsigned flags, LmdbTxn**);
  void (*txn_abort)(LmdbTxn*);
  int (*dbi_open)(LmdbTxn*, const char* name, unsigned flags, LmdbDatabase*);
  int (*cursor_open)(LmdbTxn*, LmdbDatabase, LmdbCursor**);
  int (*cursor_get)(LmdbCursor*, LmdbValue* key, LmdbValue* value, int place);
  void (*cursor_close)(LmdbCursor*);
};

// Any thread. The library stays loaded. Throws Error(unsupported) if it is not on this machine.
const LmdbLibrary& lmdb_library();

}  // namespace trireme::records
