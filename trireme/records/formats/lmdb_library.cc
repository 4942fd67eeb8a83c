#include "lmdb_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <string>

namespace trireme::records {
namespace {

Error lacking_lmdb(std::string_view reason) {
  return Error(
      ErrorCode::unsupported, "data",
      fmt::format("the index of data in LMDB needs liblmdb, which cannot be loaded: {}", reason),
      "install liblmdb (on Debian 12: liblmdb0)");
}

template <typename Function>
void find_in(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
  if (!function) throw lacking_lmdb(fmt::format("it has no {}", name));
}

LmdbLibrary load_lmdb() {
  void* handle = nullptr;
  std::string why;
  for (const char* const file : {"liblmdb.so.0", "liblmdb.so"}) {
    handle = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (handle) break;
    if (why.empty()) why = ::dlerror();
  }
  if (!handle) throw lacking_lmdb(why);
  LmdbLibrary library{};
  find_in(handle, "mdb_strerror", library.strerror);
  find_in(handle, "mdb_env_create", library.env_create);
  find_in(handle, "mdb_env_open", library.env_open);
  find_in(handle, "mdb_env_close", library.env_close);
  find_in(handle, "mdb_env_stat", library.env_stat);
  find_in(handle, "mdb_env_info", library.env_info);
  find_in(handle, "mdb_txn_begin", library.txn_begin);
  find_in(handle, "mdb_txn_abort", library.txn_abort);
  find_in(handle, "mdb_dbi_open", library.dbi_open);
  find_in(handle, "mdb_cursor_open", library.cursor_open);
  find_in(handle, "mdb_cursor_get", library.cursor_get);
  find_in(handle, "mdb_cursor_close", library.cursor_close);
  return library;
}

}  // namespace

const LmdbLibrary& lmdb_library() {
  static const LmdbLibrary library = load_lmdb();
  return library;
}

}  // namespace trireme::records
