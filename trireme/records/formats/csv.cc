// CSV files: a record in each row, with a field for each column.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/records/formats.h>
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>
#include "csv_row.h"
#include "text_rows.h"

namespace trireme::records {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

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
  bool has_values = false, are_integers = true, are_reals = true;
  std::string first_missing;       // Its place.
  int64_t least = 0, largest = 0;  // The range of the integers.
  uint64_t numbers = 0, texts = 0;
  std::string first_text;  // Its place, and what it is.

  CellType type() const {
    if (!has_values || !are_reals) return CellType::text;
    return are_integers ? CellType::integer : CellType::real;
  }
  // Returns whether it is a number.
  bool see(const CsvCell& cell) {
    has_values = true;
    if (are_integers) {
      const std::optional<int64_t> number = parse_cell<int64_t>(cell.text);
      are_integers = number.has_value();
      least = std::min(least, number.value_or(0));
      largest = std::max(largest, number.value_or(0));
    }
    const bool is_number = are_integers || parse_cell<float>(cell.text).has_value();
    are_reals = are_reals && is_number;
    ++(is_number ? numbers : texts);
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
    uint64_t line = 1;
    bool is_first = true;
    while (at < scanner.size()) {
      const std::string_view row = row_at(scanner, at, line);
      const uint64_t row_line = line, row_at_byte = at;
      line += static_cast<uint64_t>(std::ranges::count(row, '\n'));
      at += row.size();
      const std::string_view text = without_line_end(row);
      if (text.empty()) continue;
      try {
        if (std::exchange(is_first, false) && take_head(text)) continue;
        const int64_t label = take_row(text, shards, file, row_line);
        content.entries.push_back({.offset = row_at_byte,
                                   .bytes = text.size(),
                                   .label = label,
                                   .file = file,
                                   .extra = static_cast<uint32_t>(row_line)});
      } catch (Damage& damage) {
        damage.what = fmt::format("line {}: {}", row_line, damage.what);
        throw;
      }
    }
  }

  void finish(IndexContent& content) const {
    std::vector<TextColumn> all;
    for (const CsvColumn& column : columns_)
      all.push_back({.name = column.name, .type = column.type()});
    content.facts["columns"] = json_of_columns(all);
    for (const CsvColumn& column : columns_)
      if (column.texts > 0 && column.numbers >= column.texts)
        content.doubtful[column.name] = column.first_text;
    for (const CsvColumn& column : columns_)
      if (column.type() == CellType::integer && column.first_missing.empty() && column.least >= 0)
        content.largest[column.name] = column.largest;
    for (const CsvColumn& column : columns_)
      if (is_wanted(column.name) && column.type() != CellType::text &&
          !column.first_missing.empty())
        throw Error(ErrorCode::invalid_argument, "data",
                    fmt::format("{}: the column '{}' of numbers has no value there",
                                column.first_missing, column.name),
                    "a value, or the other columns alone");
  }

 private:
  std::string_view row_at(Scanner& scanner, uint64_t at, uint64_t line) {
    std::string_view text = scanner.line(at);
    while (std::ranges::count(text, '"') % 2 != 0) {
      const uint64_t bytes = text.size();
      if (at + bytes == scanner.size())
        throw Damage(fmt::format("line {}: a quote is not closed until the end of the file", line),
                     "a second quote at the end of the cell");
      const uint64_t more = scanner.line(at + bytes).size();
      const auto all = scanner.at(at, bytes + more);
      text = {reinterpret_cast<const char*>(all.data()), all.size()};
    }
    return text;
  }

  // Returns true if the row has the names of the columns.
  bool take_head(std::string_view row) {
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
    std::vector<std::string> names;
    for (const CsvColumn& column : columns_) {
      if (column.name.empty() || std::ranges::find(names, column.name) != names.end())
        throw Damage(fmt::format("the name '{}' of a column is empty or there twice", column.name),
                     "names, or no header", ErrorCode::invalid_argument);
      names.push_back(column.name);
    }
    std::vector<std::string> wanted = options_.columns;
    if (!options_.label.empty()) wanted.push_back(options_.label);
    for (const std::string& name : wanted)
      if (std::ranges::find(names, name) == names.end())
        throw Damage(fmt::format("there is no column '{}'", name),
                     fmt::format("one of {}", fmt::join(names, ", ")),
                     ErrorCode::invalid_argument);
  }

  int64_t take_row(std::string_view row, const Shards& shards, uint32_t file, uint64_t line) {
    int64_t label = kNoLabel;
    size_t count = 0;
    CsvCell cell;
    for (CsvRow cells(row, delimiter_); cells.next(cell); ++count) {
      if (count >= columns_.size()) continue;
      CsvColumn& column = columns_[count];
      if (column.name == options_.label) {
        const auto number = parse_cell<int64_t>(cell.text);
        if (!number)
          throw Damage(fmt::format("the label in column '{}' is '{}', but must be a whole number",
                                   column.name, cell.text.substr(0, 24)),
                       "labels as numbers", ErrorCode::invalid_argument);
        label = *number;
      }
      if (!is_missing(cell)) {
        if (!column.see(cell) && column.texts == 1)
          column.first_text =
              fmt::format("{}: line {} has '{}' there, which is no number",
                          shards.files().names[file], line, cell.text.substr(0, 24));
      } else if (column.first_missing.empty()) {
        column.first_missing = fmt::format("{}: line {}", shards.path(file).string(), line);
      }
    }
    if (count != columns_.size())
      throw Damage(
          fmt::format("it has {} cells, but the first row has {}", count, columns_.size()),
          "quotes around a cell that has the delimiter", ErrorCode::invalid_argument);
    return label;
  }

  bool is_wanted(const std::string& name) const {
    const auto& wanted = options_.columns;
    return wanted.empty() || std::ranges::find(wanted, name) != wanted.end();
  }

  const OpenOptions& options_;
  char delimiter_;
  std::vector<CsvColumn> columns_;
};

class CsvReader : public IndexedReader {
 public:
  CsvReader(IndexedFiles files, const std::vector<TextColumn>& all,
            const std::vector<TextColumn>& chosen, char delimiter)
      : IndexedReader(std::move(files.shards), std::move(files.index), specs_of_columns(chosen)),
        chosen_(chosen),
        delimiter_(delimiter) {
    for (const TextColumn& column : all) {
      const auto found = std::ranges::find(chosen_, column.name, &TextColumn::name);
      slots_.push_back(static_cast<size_t>(found - chosen_.begin()));
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
    if (!integer && !real)
      throw Damage(fmt::format("the column '{}' has '{}', which is not a number", column.name,
                               cell.text.substr(0, 24)),
                   "trireme data index, if the change was meant");
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

}  // namespace

SharedReader open_csv(const OpenOptions& options) {
  const char delimiter = delimiter_of(options);
  CsvScan scan(options, delimiter);
  IndexedFiles files = index_files(
      options, "csv", shards_of(options, "csv"),
      {{"delimiter", std::string(1, delimiter)},
       {"header", options.header},
       {"columns", options.columns},
       {"label", options.label}},
      [&](uint32_t file, const Shards& shards, IndexContent& content) {
        scan.file(file, shards, content);
      },
      [&](IndexContent& content) { scan.finish(content); });
  const auto all = columns_of_json(files.index->facts().at("columns"));
  std::vector<TextColumn> chosen = options.columns.empty() ? all : std::vector<TextColumn>();
  for (const std::string& name : options.columns)
    chosen.push_back(*std::ranges::find(all, name, &TextColumn::name));
  return std::make_shared<CsvReader>(std::move(files), all, chosen, delimiter);
}

}  // namespace trireme::records
