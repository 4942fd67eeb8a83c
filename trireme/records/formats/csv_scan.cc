#include "csv_scan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/units.h>
#include <algorithm>
#include <array>
#include <set>
#include <utility>

namespace trireme::records {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

std::string_view without_line_end(std::string_view row) {
  if (row.ends_with('\n')) row.remove_suffix(1);
  if (row.ends_with('\r')) row.remove_suffix(1);
  return row;
}

// An odd number of quotes opens a cell that the line does not close, or closes one.
bool has_odd_quotes(std::string_view line) { return std::ranges::count(line, '"') % 2 != 0; }

// Without its names no row can be read.
Damage damage_in_head(const Damage& damage, uint32_t line) {
  return Damage(fmt::format("line {}: {}", line, damage.what), damage.remedy,
                ErrorCode::invalid_argument);
}

}  // namespace

bool is_missing(const CsvCell& cell) {
  if (cell.is_quoted) return false;
  const std::string_view text = trimmed(cell.text);
  constexpr std::array<std::string_view, 8> kMissing{"",     "NA",   "N/A", "NaN",
                                                     "null", "NULL", "nan", "None"};
  return std::ranges::find(kMissing, text) != kMissing.end();
}

bool CsvScan::Column::see(const CsvCell& cell) {
  const auto number = are_integers ? parse_cell<int64_t>(cell.text) : std::nullopt;
  const bool is_number = number || parse_cell<float>(cell.text);
  ++(is_number ? numbers : texts);
  if (is_number) are_integers = number.has_value();
  least = std::min(least, number.value_or(0));
  largest = std::max(largest, number.value_or(0));
  return is_number;
}

void CsvScan::file(uint32_t file, const Shards& shards, IndexContent& content) {
  Scanner scanner = shards.scanner(file);
  bool is_first = true;
  for (auto [at, line] = start_of_rows(scanner); at < scanner.size();) {
    std::string_view row = scanner.line(at);
    if (has_row(row)) {
      Entry entry{.offset = at, .file = file, .extra = line};
      try {
        row = whole_row(scanner, at, row);
        const std::string_view text = without_line_end(row);
        entry.bytes = text.size();
        const bool is_head = is_first && take_head(text, line);
        is_first = false;
        if (!is_head) {
          entry.label = take_row(text, shards, entry);
          content.add(entry);
        }
      } catch (const BadRow& bad) {
        if (is_first && options_.header) throw damage_in_head(bad.damage, line);
        // The quote that is missing may be in the first line. The next ones may be rows.
        row = scanner.line(at);
        entry.bytes = row.size();
        content.add_damaged(
            entry, fmt::format("{}, line {} at byte {}", shards.path(file).string(), line, at),
            bad.damage);
      }
    }
    line += static_cast<uint32_t>(std::ranges::count(row, '\n'));
    at += row.size();
  }
}

void CsvScan::finish(IndexContent& content) const {
  if (columns_.empty() && !content.damaged.empty()) {
    const auto& [place, damage] = content.damaged.begin()->second;
    throw damage.at(place);
  }
  std::vector<TextColumn> all;
  for (const Column& column : columns_)
    all.push_back({.name = column.name, .type = column.type()});
  content.facts["columns"] = json_of_columns(all);
  for (const Column& column : columns_) {
    if (column.is_doubtful()) {
      content.doubtful[column.name] = column.first_text;
      content.facts[kNumbersFact][column.name] = static_cast<int>(column.type_of_numbers());
    }
    const bool has_numbers = column.type() != CellType::text || column.is_doubtful();
    if (has_numbers && column.are_integers)
      content.add_range(column.name, column.least, column.largest);
    if (has_numbers && column.first_missing)
      content.facts[kMissingFact][column.name] = {column.first_missing->file,
                                                  column.first_missing->extra};
  }
}

// Behind the byte order mark and the lines that are skipped.
CsvScan::Place CsvScan::start_of_rows(Scanner& scanner) const {
  Place place;
  if (scanner.size() >= kByteOrderMark.size() && scanner.line(0).starts_with(kByteOrderMark))
    place.at = kByteOrderMark.size();
  for (int64_t skipped = 0; skipped < options_.skip_lines; ++skipped, ++place.line) {
    if (place.at == scanner.size())
      throw Damage(fmt::format("the file has {} lines, but {} is {}", skipped,
                               options_.name_of("skip_lines"), options_.skip_lines),
                   "the number of lines in front of the header", ErrorCode::invalid_argument);
    place.at += scanner.line(place.at).size();
  }
  return place;
}

// Empty lines and comments have none.
bool CsvScan::has_row(std::string_view line) const {
  const std::string_view text = trimmed(line);
  if (delimiter_ == kWhitespace ? text.empty() : without_line_end(line).empty()) return false;
  return options_.comment.empty() || !text.starts_with(options_.comment);
}

// The lines up to the one that closes the quotes of the first one. Each search ends at the next
// line with an odd number of quotes, so all of them together pass over a file once.
std::string_view CsvScan::whole_row(Scanner& scanner, uint64_t at, std::string_view first) {
  if (!has_odd_quotes(first)) return first;
  const uint64_t most = scanner.memory_bytes();
  uint64_t bytes = first.size();
  for (bool is_open = true; is_open;) {
    if (at + bytes == scanner.size())
      throw BadRow{Damage("a quote is not closed until the end of the file",
                          "a second quote at the end of the cell")};
    const std::string_view more = scanner.line(at + bytes);
    is_open = !has_odd_quotes(more);
    bytes += more.size();
    if (bytes > most)
      throw BadRow{Damage(
          fmt::format("a quote is not closed within the {} of memory for a record",
                      format_bytes(static_cast<int64_t>(most))),
          "a second quote at the end of the cell, or " + scanner.limits().remedy_of_memory)};
  }
  const auto all = scanner.at(at, bytes);
  return {reinterpret_cast<const char*>(all.data()), all.size()};
}

// Returns true if the row has the names of the columns.
bool CsvScan::take_head(std::string_view row, uint32_t line) {
  try {
    return take_names(row);
  } catch (const Damage& damage) {
    if (!options_.header && damage.code == ErrorCode::corrupt) throw BadRow{damage};
    throw damage_in_head(damage, line);
  }
}

bool CsvScan::take_names(std::string_view row) {
  std::vector<std::string> names;
  CsvCell cell;
  for (CsvRow cells(row, delimiter_); cells.next(cell);)
    names.push_back(options_.header ? std::string(trimmed(cell.text))
                                    : fmt::format("c{}", names.size()));
  if (columns_.empty()) {
    for (std::string& name : names) columns_.push_back({.name = std::move(name)});
    check_names();
  } else if (options_.header && !std::ranges::equal(names, columns_, {}, {}, &Column::name)) {
    throw Damage(
        fmt::format("its columns ({}) are not those of the first file", fmt::join(names, ", ")),
        "files with the same columns", ErrorCode::invalid_argument);
  }
  return options_.header;
}

void CsvScan::check_names() const {
  std::set<std::string_view> names;
  for (const Column& column : columns_) {
    if (column.name.empty() || !names.insert(column.name).second)
      throw Damage(fmt::format("the name '{}' of a column is empty or there twice", column.name),
                   "names, or no header", ErrorCode::invalid_argument);
  }
  std::vector<std::string> wanted = options_.columns;
  if (!options_.label.empty()) wanted.push_back(options_.label);
  for (const std::string& name : wanted)
    if (!names.contains(name)) throw no_column(name);
}

Damage CsvScan::no_column(const std::string& name) const {
  std::vector<std::string_view> names;
  for (const Column& column : columns_) names.push_back(column.name);
  return Damage(fmt::format("there is no column '{}'", name),
                fmt::format("one of {}", fmt::join(names, ", ")), ErrorCode::invalid_argument);
}

// Columns know only rows that are whole. Returns the label.
int64_t CsvScan::take_row(std::string_view row, const Shards& shards, const Entry& entry) {
  int64_t label = kNoLabel;
  try {
    take_cells(row);
    label = label_of_cells();
  } catch (const Damage& damage) {
    throw BadRow{damage};
  }
  for (size_t i = 0; i < columns_.size(); ++i) {
    Column& column = columns_[i];
    if (is_missing(cells_[i])) {
      if (!column.first_missing) column.first_missing = entry;
    } else if (!column.see(cells_[i]) && column.texts == 1) {
      column.first_text =
          fmt::format("{}: line {} has '{}' there, which is no number", shards.name(entry.file),
                      entry.extra, cells_[i].text.substr(0, 24));
    }
  }
  return label;
}

void CsvScan::take_cells(std::string_view row) {
  cells_.resize(columns_.size());
  size_t count = 0;
  CsvCell cell;
  for (CsvRow cells(row, delimiter_); cells.next(cell); ++count)
    if (count < cells_.size()) cells_[count] = cell;
  if (count != columns_.size())
    throw Damage(fmt::format("it has {} cells, but the first row has {}", count, columns_.size()),
                 "quotes around a cell that has the delimiter", ErrorCode::invalid_argument);
}

int64_t CsvScan::label_of_cells() const {
  if (options_.label.empty()) return kNoLabel;
  const auto column = std::ranges::find(columns_, options_.label, &Column::name);
  const CsvCell& cell = cells_[static_cast<size_t>(column - columns_.begin())];
  const auto number = parse_cell<int64_t>(cell.text);
  if (!number)
    throw Damage(fmt::format("the label in column '{}' is '{}', but must be a whole number",
                             column->name, cell.text.substr(0, 24)),
                 "labels as numbers", ErrorCode::invalid_argument);
  return *number;
}

}  // namespace trireme::records
