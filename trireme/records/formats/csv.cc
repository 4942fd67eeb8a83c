// CSV files: a record in each row, with a field for each column.
#include <fmt/format.h>
#include <trireme/records/formats.h>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>
#include "csv_scan.h"

namespace trireme::records {
namespace {

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

// The name of kWhitespace.
constexpr std::string_view kWhitespaceName = "whitespace";

char delimiter_of(const OpenOptions& options) {
  if (options.delimiter.empty())
    return options.path.find(".tsv") != std::string::npos ? '\t' : ',';
  if (options.delimiter == kWhitespaceName) return kWhitespace;
  const std::string text = options.delimiter == "\\t" ? "\t" : options.delimiter;
  if (text.size() != 1 || text == "\"" || text == "\n" || text == "\r")
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("the delimiter is '{}', but must be one character, or {}",
                            options.delimiter, kWhitespaceName),
                fmt::format("a comma, a semicolon or a tab (\\t); {} for any number of spaces and "
                            "tabs",
                            kWhitespaceName));
  return text[0];
}

void check_comment(const OpenOptions& options) {
  const std::string& comment = options.comment;
  if (comment == trimmed(comment) && comment.find_first_of("\"\n\r") == std::string::npos) return;
  throw Error(ErrorCode::invalid_argument, "data",
              fmt::format("{} is '{}', but must have no quote and no white space at its ends",
                          options.name_of("comment"), comment),
              "the text with which a line begins that is no row, such as #");
}

// The options that decide which rows there are. Indexes of earlier versions lack the options that
// came later, so these are there only if they are given.
Json options_of_index(const OpenOptions& options, char delimiter) {
  Json decisive{{"delimiter", delimiter == kWhitespace ? std::string(kWhitespaceName)
                                                       : std::string(1, delimiter)},
                {"header", options.header},
                {"columns", options.columns},
                {"label", options.label}};
  if (options.skip_lines > 0) decisive["skip_lines"] = options.skip_lines;
  if (!options.comment.empty()) decisive["comment"] = options.comment;
  return decisive;
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
  check_comment(options);
  CsvScan scan(options, delimiter);
  const auto shards = shards_of(options, "csv");
  IndexedFiles files = index_files(
      options, "csv", shards, options_of_index(options, delimiter),
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
