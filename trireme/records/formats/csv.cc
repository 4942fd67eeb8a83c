// CSV files: a record in each row, with a field for each column.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/records/formats.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include "csv_row.h"
#include "text_rows.h"

namespace trireme::records {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
// Facts by the names of columns: the type of the numbers of a doubtful one, and the first row that
// has no value, as file and line.
constexpr const char* kNumbersFact = "_numbers";
constexpr const char* kMissingFact = "_missing";

std::string_view without_line_end(std::string_view row) {
  if (row.ends_with('\n')) row.remove_suffix(1);
  if (row.ends_with('\r')) row.remove_suffix(1);
  return row;
}

// The cells that say that there is no value.
bool is_missing(const CsvCell& cell) {
  if (cell.is_quoted) return false;
  const std::string_view text = trimmed(cell.text);
  constexpr std::array<std::string_view, 8> kMissing{"",     "NA",   "N/A", "NaN",
                                                     "null", "NULL", "nan", "None"};
  return std::ranges::find(kMissing, text) != kMissing.end();
}

// What the rows show about a column.
struct CsvColumn {
  std::string name;
  bool are_integers = true;        // All numbers are.
  int64_t least = 0, largest = 0;  // The range of the integers.
  uint64_t numbers = 0, texts = 0;
  std::string first_text;                // Its place, and what it is.
  std::optional<Entry> first_missing{};  // The row.

  CellType type_of_numbers() const { return are_integers ? CellType::integer : CellType::real; }
  CellType type() const { return numbers == 0 || texts > 0 ? CellType::text : type_of_numbers(); }
  bool is_doubtful() const { return texts > 0 && numbers >= texts; }
  // Returns whether it is a number.
  bool see(const CsvCell& cell) {
    const auto number = are_integers ? parse_cell<int64_t>(cell.text) : std::nullopt;
    const bool is_number = number || parse_cell<float>(cell.text);
    ++(is_number ? numbers : texts);
    if (is_number) are_integers = number.has_value();
    least = std::min(least, number.value_or(0));
    largest = std::max(largest, number.value_or(0));
    return is_number;
  }
};

class CsvScan {
 public:
  explicit CsvScan(const OpenOptions& options, char delimiter)
      : options_(options), delimiter_(delimiter) {}

  void file(uint32_t file, const Shards& shards, IndexContent& content) {
    Scanner scanner = shards.scanner(file);
    uint64_t at = 0;
    if (scanner.size() >= kByteOrderMark.size() && scanner.line(0).starts_with(kByteOrderMark))
      at = kByteOrderMark.size();
    bool is_first = true;
    for (uint32_t line = 1; at < scanner.size();) {
      std::string_view row;
      Entry entry{.offset = at, .file = file, .extra = line};
      try {
        row = row_at(scanner, at);
        const std::string_view text = without_line_end(row);
        entry.bytes = text.size();
        const bool is_head = !text.empty() && is_first && take_head(text, line);
        is_first = is_first && text.empty();
        if (!text.empty() && !is_head) {
          entry.label = take_row(text, shards, entry);
          content.entries.push_back(entry);
        }
      } catch (const BadRow& bad) {
        if (is_first && options_.header) throw in_head(bad.damage, line);
        // The quote that is missing may be in the first line. The next ones may be rows.
        row = scanner.line(at);
        entry.bytes = row.size();
        content.add_damaged(
            entry, fmt::format("{}, line {} at byte {}", shards.path(file).string(), line, at),
            bad.damage);
      }
      line += static_cast<uint32_t>(std::ranges::count(row, '\n'));
      at += row.size();
    }
  }

  void finish(IndexContent& content) const {
    if (columns_.empty() && !content.damaged.empty()) {
      const auto& [place, damage] = content.damaged.begin()->second;
      throw damage.at(place);
    }
    std::vector<TextColumn> all;
    for (const CsvColumn& column : columns_)
      all.push_back({.name = column.name, .type = column.type()});
    content.facts["columns"] = json_of_columns(all);
    for (const CsvColumn& column : columns_) {
      if (column.is_doubtful()) {
        content.doubtful[column.name] = column.first_text;
        content.facts[kNumbersFact][column.name] = static_cast<int>(column.type_of_numbers());
      }
      const bool has_numbers = column.type() != CellType::text || column.is_doubtful();
      if (has_numbers && column.are_integers && column.least >= 0)
        content.largest[column.name] = column.largest;
      if (has_numbers && column.first_missing)
        content.facts[kMissingFact][column.name] = {column.first_missing->file,
                                                    column.first_missing->extra};
    }
  }

 private:
  // The damage of a row, and not of its file.
  struct BadRow {
    Damage damage;
  };

  // The lines up to the one that closes the quotes of the first one.
  std::string_view row_at(Scanner& scanner, uint64_t at) {
    const std::string_view first = scanner.line(at);
    if (std::ranges::count(first, '"') % 2 == 0) return first;
    uint64_t bytes = first.size();
    for (bool is_open = true; is_open;) {
      if (at + bytes == scanner.size())
        throw BadRow{Damage("a quote is not closed until the end of the file",
                            "a second quote at the end of the cell")};
      const std::string_view more = scanner.line(at + bytes);
      is_open = std::ranges::count(more, '"') % 2 == 0;
      bytes += more.size();
    }
    const auto all = scanner.at(at, bytes);
    return {reinterpret_cast<const char*>(all.data()), all.size()};
  }

  // Returns true if the row has the names of the columns.
  bool take_head(std::string_view row, uint32_t line) {
    try {
      return take_names(row);
    } catch (const Damage& damage) {
      if (!options_.header && damage.code == ErrorCode::corrupt) throw BadRow{damage};
      throw in_head(damage, line);
    }
  }

  // Without its names no row can be read.
  static Damage in_head(const Damage& damage, uint32_t line) {
    return Damage(fmt::format("line {}: {}", line, damage.what), damage.remedy,
                  ErrorCode::invalid_argument);
  }

  bool take_names(std::string_view row) {
    std::vector<std::string> names;
    CsvCell cell;
    for (CsvRow cells(row, delimiter_); cells.next(cell);)
      names.push_back(options_.header ? std::string(trimmed(cell.text))
                                      : fmt::format("c{}", names.size()));
    if (columns_.empty()) {
      for (std::string& name : names) columns_.push_back({.name = std::move(name)});
      check_names();
    } else if (options_.header && !std::ranges::equal(names, columns_, {}, {}, &CsvColumn::name)) {
      throw Damage(
          fmt::format("its columns ({}) are not those of the first file", fmt::join(names, ", ")),
          "files with the same columns", ErrorCode::invalid_argument);
    }
    return options_.header;
  }

  void check_names() {
    std::set<std::string_view> names;
    for (const CsvColumn& column : columns_) {
      if (column.name.empty() || !names.insert(column.name).second)
        throw Damage(fmt::format("the name '{}' of a column is empty or there twice", column.name),
                     "names, or no header", ErrorCode::invalid_argument);
    }
    std::vector<std::string> wanted = options_.columns;
    if (!options_.label.empty()) wanted.push_back(options_.label);
    for (const std::string& name : wanted)
      if (!names.contains(name)) throw no_column(name);
  }

  Damage no_column(const std::string& name) const {
    std::vector<std::string_view> names;
    for (const CsvColumn& column : columns_) names.push_back(column.name);
    return Damage(fmt::format("there is no column '{}'", name),
                  fmt::format("one of {}", fmt::join(names, ", ")), ErrorCode::invalid_argument);
  }

  // Columns know only rows that are whole. Returns the label.
  int64_t take_row(std::string_view row, const Shards& shards, const Entry& entry) {
    int64_t label = kNoLabel;
    try {
      take_cells(row);
      label = label_of_cells();
    } catch (const Damage& damage) {
      throw BadRow{damage};
    }
    for (size_t i = 0; i < columns_.size(); ++i) {
      CsvColumn& column = columns_[i];
      if (is_missing(cells_[i])) {
        if (!column.first_missing) column.first_missing = entry;
      } else if (!column.see(cells_[i]) && column.texts == 1) {
        column.first_text = fmt::format("{}: line {} has '{}' there, which is no number",
                                        shards.files().names[entry.file], entry.extra,
                                        cells_[i].text.substr(0, 24));
      }
    }
    return label;
  }

  void take_cells(std::string_view row) {
    cells_.resize(columns_.size());
    size_t count = 0;
    CsvCell cell;
    for (CsvRow cells(row, delimiter_); cells.next(cell); ++count)
      if (count < cells_.size()) cells_[count] = cell;
    if (count != columns_.size())
      throw Damage(
          fmt::format("it has {} cells, but the first row has {}", count, columns_.size()),
          "quotes around a cell that has the delimiter", ErrorCode::invalid_argument);
  }

  int64_t label_of_cells() const {
    if (options_.label.empty()) return kNoLabel;
    const auto column = std::ranges::find(columns_, options_.label, &CsvColumn::name);
    const CsvCell& cell = cells_[static_cast<size_t>(column - columns_.begin())];
    const auto number = parse_cell<int64_t>(cell.text);
    if (!number)
      throw Damage(fmt::format("the label in column '{}' is '{}', but must be a whole number",
                               column->name, cell.text.substr(0, 24)),
                   "labels as numbers", ErrorCode::invalid_argument);
    return *number;
  }

  const OpenOptions& options_;
  char delimiter_;
  std::vector<CsvColumn> columns_;
  std::vector<CsvCell> cells_;  // Those of the row in hand.
};

class CsvReader : public IndexedReader {
 public:
  CsvReader(IndexedFiles files, const std::vector<TextColumn>& all,
            const std::vector<TextColumn>& chosen, char delimiter)
      : IndexedReader(std::move(files.shards), std::move(files.index), specs_of_columns(chosen)),
        chosen_(chosen),
        delimiter_(delimiter) {
    std::map<std::string_view, size_t> slots;
    for (size_t i = 0; i < chosen_.size(); ++i) slots.emplace(chosen_[i].name, i);
    for (const TextColumn& column : all) {
      const auto slot = slots.find(column.name);
      slots_.push_back(slot == slots.end() ? chosen_.size() : slot->second);
    }
  }

 protected:
  void read_entry(const Entry& entry, Record& record) const override {
    const uint64_t aligned = (entry.bytes + 7) / 8 * 8;
    const auto memory =
        shards().copy(entry.file, entry.offset, entry.bytes,
                      aligned - entry.bytes + chosen_.size() * sizeof(int64_t), record);
    const std::string_view row(reinterpret_cast<const char*>(memory.data()), entry.bytes);
    record.fields.resize(chosen_.size());
    size_t count = 0;
    CsvCell cell;
    for (CsvRow cells(row, delimiter_); cells.next(cell) && count < slots_.size(); ++count) {
      const size_t slot = slots_[count];
      if (slot == chosen_.size()) continue;
      const auto place = memory.subspan(aligned + slot * sizeof(int64_t), sizeof(int64_t));
      record.fields[slot] = field_of(chosen_[slot], cell, place);
    }
    if (count != slots_.size())
      throw Damage("the row is another one than when it was indexed", "trireme data index");
  }
  std::string name_of(const Entry& entry, int64_t) const override {
    return fmt::format("line {}", entry.extra);
  }

 private:
  static Field field_of(const TextColumn& column, const CsvCell& cell,
                        std::span<std::byte> place) {
    Field field{.name = column.name, .dtype = dtype_of(column.type)};
    if (column.type == CellType::text) {
      const std::string_view text = unescape_in_place(cell);
      field.bytes = std::as_bytes(std::span(text));
      field.encoded = true;
      return field;
    }
    const bool is_integer = column.type == CellType::integer;
    const auto integer = is_integer ? parse_cell<int64_t>(cell.text) : std::nullopt;
    const auto real = is_integer ? std::nullopt : parse_cell<float>(cell.text);
    const bool is_number = integer || (real && !(std::isnan(*real) && is_missing(cell)));
    if (!is_number)
      throw Damage(is_missing(cell)
                       ? fmt::format("the column '{}' has no value", column.name)
                       : fmt::format("the column '{}' has '{}', which is not a number",
                                     column.name, cell.text.substr(0, 24)),
                   "a number there");
    if (is_integer)
      std::memcpy(place.data(), &*integer, sizeof *integer);
    else
      std::memcpy(place.data(), &*real, sizeof *real);
    field.bytes = place.first(is_integer ? sizeof(int64_t) : sizeof(float));
    return field;
  }

  std::vector<TextColumn> chosen_;
  std::vector<size_t> slots_;  // Of each column of the file: its place among the chosen ones.
  char delimiter_;
};

char delimiter_of(const OpenOptions& options) {
  if (options.delimiter.empty())
    return options.path.find(".tsv") != std::string::npos ? '\t' : ',';
  const std::string text = options.delimiter == "\\t" ? "\t" : options.delimiter;
  if (text.size() != 1 || text == "\"" || text == "\n" || text == "\r")
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("the delimiter is '{}', but must be one character", options.delimiter),
                "a comma, a semicolon or a tab (\\t)");
  return text[0];
}

void refuse_missing(const OpenOptions& options, const Shards& shards, const Json& facts) {
  if (options.keeps_damaged) return;
  const Json missing = facts.value(kMissingFact, Json::object());
  for (const TextColumn& column : chosen_columns(options, facts)) {
    const auto row = missing.find(column.name);
    if (row == missing.end() || column.type == CellType::text) continue;
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("{}: line {}: the column '{}' of numbers has no value there",
                            shards.path(row->at(0).get<size_t>()).string(),
                            row->at(1).get<uint32_t>(), column.name),
                or_else("a value, or the other columns alone", options.remedy_of_damage));
  }
}

// A column that has numbers in most rows is one of numbers if it is needed, and otherwise a text.
void choose_numbers(const OpenOptions& options, const Json& facts,
                    std::vector<TextColumn>& columns) {
  const Json numbers = facts.value(kNumbersFact, Json::object());
  const Json missing = facts.value(kMissingFact, Json::object());
  std::vector<TextColumn> as_numbers = columns;
  for (TextColumn& column : as_numbers)
    if (const auto type = numbers.find(column.name); type != numbers.end())
      column.type = static_cast<CellType>(type->get<int>());
  const auto needed = needed_of(options, specs_of_columns(as_numbers));
  for (size_t i = 0; i < columns.size(); ++i) {
    if (needed.contains(columns[i].name))
      columns[i].type = as_numbers[i].type;
    else if (missing.contains(columns[i].name))
      columns[i].type = CellType::text;
  }
}

}  // namespace

SharedReader open_csv(const OpenOptions& options) {
  const char delimiter = delimiter_of(options);
  CsvScan scan(options, delimiter);
  const auto shards = shards_of(options, "csv");
  IndexedFiles files = index_files(
      options, "csv", shards,
      {{"delimiter", std::string(1, delimiter)},
       {"header", options.header},
       {"columns", options.columns},
       {"label", options.label}},
      [&](uint32_t file, const Shards& all, IndexContent& content) {
        scan.file(file, all, content);
      },
      [&](IndexContent& content) {
        scan.finish(content);
        // A file without rows has no columns.
        if (!content.entries.empty()) refuse_missing(options, *shards, content.facts);
      });
  const Json& facts = files.index->facts();
  refuse_missing(options, *shards, facts);
  std::vector<TextColumn> chosen = chosen_columns(options, facts);
  choose_numbers(options, facts, chosen);
  const auto all = columns_of_json(facts.at("columns"));
  return std::make_shared<CsvReader>(std::move(files), all, chosen, delimiter);
}

}  // namespace trireme::records
