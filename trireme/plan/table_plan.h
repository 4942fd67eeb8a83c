// Which rows of embedding tables live on which parameter server. Pure: every worker and server
// computes the same server for a row, so no list of rows travels.
#pragma once
#include <trireme/base/json.h>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::plan {

struct TableSpec {
  std::string name;
  // Rows are 0 to rows - 1. 0: unbounded, and any int64 is a row, such as the hash of a word.
  int64_t rows = 0;
  int64_t width = 1;  // Values in a row.

  bool is_bounded() const { return rows > 0; }
  bool has(int64_t row) const { return !is_bounded() || (row >= 0 && row < rows); }
  std::string describe() const;  // "ads [1000000, 64]", "words [unbounded, 64]"
  bool operator==(const TableSpec&) const = default;
};

enum class RowDealing {
  hash,    // By a hash of table and row: even for any choice of rows.
  modulo,  // Row r of table t on server (r + t) mod servers: even to one row in a bounded table.
};
std::string_view to_string(RowDealing dealing);

struct TableFacts {
  std::vector<TableSpec> tables;  // By unique names.
  int servers = 1;
  RowDealing dealing = RowDealing::hash;
};

struct TablePlan {
  TableFacts facts;

  // Any row that the table has.
  int server_of(int table, int64_t row) const;
  // -1 if there is no such table.
  int find(std::string_view table) const;
  // [server]: the rows of a bounded table. Hashed tables of more than 2^22 rows are sampled.
  std::vector<int64_t> rows_of_servers(int table) const;
  std::string describe() const;  // A line for each table.
  Json to_json() const;
  std::string digest() const;  // Equal plans have equal digests.
};

// Throws Error(invalid_argument) naming the value: no server, a table twice, without a name, with
// negative rows or without values in a row.
TablePlan plan_tables(TableFacts facts);

// Proves that every row of a bounded table lives on one server that exists, and that no server has
// more than its part: one row more under `modulo`; under `hash` six standard deviations more, for
// the rows of bounded tables and for 65,536 rows of the others. Throws Error(internal) naming
// table and server.
void check(const TablePlan& plan);

}  // namespace trireme::plan
