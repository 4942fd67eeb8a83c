// The scan of CSV files for their index: where each row is, and what the rows show about the
// columns.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "csv_row.h"
#include "text_rows.h"

namespace trireme::records {

// Facts by the names of columns: the type of the numbers of a doubtful one, and the first row that
// has no value, as file and line.
inline constexpr const char* kNumbersFact = "_numbers";
inline constexpr const char* kMissingFact = "_missing";

// Whether the cell says that there is no value.
bool is_missing(const CsvCell& cell);

class CsvScan {
 public:
  // `options` must live as long.
  CsvScan(const OpenOptions& options, char delimiter) : options_(options), delimiter_(delimiter) {}

  // Finds the rows of a file. Throws Damage.
  void file(uint32_t file, const Shards& shards, IndexContent& content);
  // Adds the facts about all files.
  void finish(IndexContent& content) const;

 private:
  // The facts that the rows show about a column.
  struct Column {
    std::string name;
    bool are_integers = true;        // All numbers are.
    int64_t least = 0, largest = 0;  // The range of the integers.
    uint64_t numbers = 0, texts = 0;
    std::string first_text;                // Its place, and what it is.
    std::optional<Entry> first_missing{};  // The row.

    CellType type_of_numbers() const { return are_integers ? CellType::integer : CellType::real; }
    CellType type() const {
      return numbers == 0 || texts > 0 ? CellType::text : type_of_numbers();
    }
    bool is_doubtful() const { return texts > 0 && numbers >= texts; }
    // Returns whether it is a number.
    bool see(const CsvCell& cell);
  };
  // The damage of a row, and not of its file.
  struct BadRow {
    Damage damage;
  };
  struct Place {
    uint64_t at = 0;
    uint32_t line = 1;
  };

  Place start_of_rows(Scanner& scanner) const;
  bool has_row(std::string_view line) const;
  static std::string_view whole_row(Scanner& scanner, uint64_t at, std::string_view first);
  bool take_head(std::string_view row, uint32_t line);
  bool take_names(std::string_view row);
  void check_names() const;
  Damage no_column(const std::string& name) const;
  int64_t take_row(std::string_view row, const Shards& shards, const Entry& entry);
  void take_cells(std::string_view row);
  int64_t label_of_cells() const;

  const OpenOptions& options_;
  char delimiter_;
  std::vector<Column> columns_;
  std::vector<CsvCell> cells_;  // The cells of the row in hand.
};

}  // namespace trireme::records
