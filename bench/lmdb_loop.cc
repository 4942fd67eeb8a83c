// liblmdb's own loop over an LMDB database: the values in the order of their keys, or the values
// of shuffled keys.
//   lmdb_loop PATH SECONDS none|full
#include <lmdb.h>
#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "record_loop.h"

namespace {

void require(int code) {
  if (code == MDB_SUCCESS) return;
  std::fprintf(stderr, "lmdb_loop: %s\n", mdb_strerror(code));
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const bool shuffles = std::string_view(argv[3]) == "full";
  MDB_env* environment = nullptr;
  MDB_txn* transaction = nullptr;
  MDB_dbi database = 0;
  MDB_cursor* cursor = nullptr;
  require(mdb_env_create(&environment));
  // Records that are read anywhere gain nothing from reading ahead.
  const unsigned flags = MDB_RDONLY | MDB_NOLOCK | (shuffles ? MDB_NORDAHEAD : 0U);
  require(mdb_env_open(environment, argv[1], flags, 0));
  require(mdb_txn_begin(environment, nullptr, MDB_RDONLY, &transaction));
  require(mdb_dbi_open(transaction, nullptr, 0, &database));
  require(mdb_cursor_open(transaction, database, &cursor));

  std::vector<std::string> keys;
  MDB_val key{}, value{};
  while (shuffles && mdb_cursor_get(cursor, &key, &value, MDB_NEXT) == MDB_SUCCESS)
    keys.emplace_back(static_cast<const char*>(key.mv_data), key.mv_size);
  std::vector<size_t> order(keys.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::mt19937_64 numbers(1);

  bench::run_epochs(std::strtod(argv[2], nullptr), [&](bench::BatchMemory& memory, int64_t) {
    if (shuffles) {
      std::shuffle(order.begin(), order.end(), numbers);
      for (const size_t index : order) {
        key = {keys[index].size(), keys[index].data()};
        require(mdb_get(transaction, database, &key, &value));
        memory.put(value.mv_data, value.mv_size);
        memory.end_record();
      }
      return;
    }
    MDB_cursor_op step = MDB_FIRST;
    while (mdb_cursor_get(cursor, &key, &value, step) == MDB_SUCCESS) {
      memory.put(value.mv_data, value.mv_size);
      memory.end_record();
      step = MDB_NEXT;
    }
  });
  mdb_cursor_close(cursor);
  mdb_txn_abort(transaction);
  mdb_env_close(environment);
  return 0;
}
