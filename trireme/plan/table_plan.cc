#include <trireme/plan/table_plan.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <algorithm>
#include <cmath>
#include <set>

namespace trireme::plan {
namespace {

constexpr int64_t kMostCounted = 1 << 22;  // Rows of a hashed table that are counted one by one.
constexpr int64_t kSampledRows = 1 << 16;  // Of an unbounded table.

[[noreturn]] void refuse_tables(const std::string& what, const std::string& remedy = {}) {
  throw Error(ErrorCode::invalid_argument, "plan", what, remedy);
}
[[noreturn]] void broken_tables(const std::string& what) {
  throw Error(ErrorCode::internal, "plan", "tables on servers: " + what);
}

// Every `stride`-th row, so that `counted` of them are looked at.
std::vector<int64_t> count_rows(const TablePlan& plan, int table, int64_t counted,
                                int64_t stride) {
  std::vector<int64_t> rows(static_cast<size_t>(plan.facts.servers));
  for (int64_t i = 0; i < counted; ++i) {
    const int server = plan.server_of(table, i * stride);
    if (server < 0 || server >= plan.facts.servers)
      broken_tables(fmt::format("row {} of '{}' lives on server {}", i * stride,
                                plan.facts.tables[static_cast<size_t>(table)].name, server));
    ++rows[static_cast<size_t>(server)];
  }
  return rows;
}

void check_balance(const TablePlan& plan, int table) {
  const TableSpec& spec = plan.facts.tables[static_cast<size_t>(table)];
  const bool hashed = plan.facts.dealing == RowDealing::hash;
  const int64_t all = spec.is_bounded() ? spec.rows : kSampledRows;
  const int64_t counted = std::min(all, hashed ? kMostCounted : kSampledRows);
  const std::vector<int64_t> rows =
      count_rows(plan, table, counted, hashed ? all / counted : int64_t{1});
  const double mean = static_cast<double>(counted) / plan.facts.servers;
  const double most = hashed ? mean + 6 * std::sqrt(mean) + 1 : std::floor(mean) + 1;
  for (size_t server = 0; server < rows.size(); ++server)
    if (static_cast<double>(rows[server]) > most)
      broken_tables(fmt::format("server {} has {} of {} rows of '{}'", server, rows[server],
                                counted, spec.name));
}

}  // namespace

std::string_view to_string(RowDealing dealing) {
  return dealing == RowDealing::hash ? "hash" : "modulo";
}

std::string TableSpec::describe() const {
  return is_bounded() ? fmt::format("{} [{}, {}]", name, rows, width)
                      : fmt::format("{} [unbounded, {}]", name, width);
}

int TablePlan::server_of(int table, int64_t row) const {
  const auto servers = static_cast<uint64_t>(facts.servers);
  if (servers == 1) return 0;
  if (facts.dealing == RowDealing::hash) {
    const uint64_t mixed = mix64(static_cast<uint64_t>(table), static_cast<uint64_t>(row));
    return static_cast<int>((mixed >> 32) * servers >> 32);  // Even, without a division.
  }
  const int64_t rest = row % facts.servers;
  return static_cast<int>((rest + table % facts.servers + facts.servers) % facts.servers);
}

int TablePlan::find(std::string_view table) const {
  const auto found = std::ranges::find(facts.tables, table, &TableSpec::name);
  return found == facts.tables.end() ? -1 : static_cast<int>(found - facts.tables.begin());
}

std::vector<int64_t> TablePlan::rows_of_servers(int table) const {
  const int64_t all = facts.tables[static_cast<size_t>(table)].rows;
  if (facts.dealing == RowDealing::hash) {
    const int64_t counted = std::min(all, kMostCounted);
    std::vector<int64_t> rows =
        count_rows(*this, table, counted, counted > 0 ? all / counted : int64_t{1});
    for (int64_t& count : rows)
      count = static_cast<int64_t>(static_cast<double>(count) * static_cast<double>(all) /
                                   static_cast<double>(std::max<int64_t>(1, counted)));
    return rows;
  }
  std::vector<int64_t> rows(static_cast<size_t>(facts.servers), all / facts.servers);
  for (int64_t row = all / facts.servers * facts.servers; row < all; ++row)
    ++rows[static_cast<size_t>(server_of(table, row))];
  return rows;
}

TablePlan plan_tables(TableFacts facts) {
  if (facts.servers < 1)
    refuse_tables(fmt::format("{} parameter servers", facts.servers), "--ps 1 or more");
  std::set<std::string_view> names;
  for (const TableSpec& table : facts.tables) {
    if (table.name.empty()) refuse_tables("a table has no name");
    if (!names.insert(table.name).second)
      refuse_tables(fmt::format("table '{}' is there twice", table.name), "names that differ");
    if (table.rows < 0)
      refuse_tables(fmt::format("table '{}' has {} rows", table.name, table.rows),
                    "1 or more, or 0 for a table that is unbounded");
    if (table.width < 1)
      refuse_tables(fmt::format("a row of table '{}' has {} values", table.name, table.width),
                    "1 or more");
  }
  return {std::move(facts)};
}

std::string TablePlan::describe() const {
  std::string text =
      fmt::format("{} table{} on {} server{}, rows dealt out by {}\n", facts.tables.size(),
                  facts.tables.size() == 1 ? "" : "s", facts.servers,
                  facts.servers == 1 ? "" : "s", to_string(facts.dealing));
  for (size_t i = 0; i < facts.tables.size(); ++i) {
    text += "  " + facts.tables[i].describe();
    if (facts.tables[i].is_bounded())
      text += fmt::format(": {} rows", fmt::join(rows_of_servers(static_cast<int>(i)), " + "));
    text += "\n";
  }
  return text;
}

Json TablePlan::to_json() const {
  Json tables = Json::array();
  for (const TableSpec& table : facts.tables)
    tables.push_back({{"name", table.name}, {"rows", table.rows}, {"width", table.width}});
  return {{"servers", facts.servers},
          {"dealing", std::string(to_string(facts.dealing))},
          {"tables", std::move(tables)}};
}

std::string TablePlan::digest() const { return sha256_hex(to_json().dump()).substr(0, 16); }

void check(const TablePlan& plan) {
  for (size_t i = 0; i < plan.facts.tables.size(); ++i) check_balance(plan, static_cast<int>(i));
}

}  // namespace trireme::plan
