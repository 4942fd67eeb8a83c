#include <trireme/data/click_table.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/data/file_bytes.h>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

namespace trireme::data {
namespace {

constexpr int64_t kClickColumns = 1 + kClickNumbers + kClickCategories;

// Reads the columns of a file's lines, one after the other.
class ClickReader {
 public:
  ClickReader(std::string_view content, ClickTable& table) : rest_(content), table_(table) {}

  void read_all() {
    while (!rest_.empty()) read_line();
  }

 private:
  [[noreturn]] void damaged(const std::string& what) const {
    throw Error(
        ErrorCode::corrupt, "data", fmt::format("{}, line {}: {}", table_.origin, line_, what),
        fmt::format("a file in Criteo's format: a label of 0 or 1, {} whole numbers and {} "
                    "hexadecimal categories, with tabs between them",
                    kClickNumbers, kClickCategories));
  }

  void read_line() {
    const size_t end = std::min(rest_.find('\n'), rest_.size());
    columns_ = rest_.substr(0, end);
    if (columns_.ends_with('\r')) columns_.remove_suffix(1);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    ++line_;
    if (const auto count = std::ranges::count(columns_, '\t') + 1; count != kClickColumns)
      damaged(fmt::format("there are {} columns, but {} are needed", count, kClickColumns));
    column_ = 0;
    const std::string_view label = next();
    if (label != "0" && label != "1")
      damaged(fmt::format("column 1 is {}, but a label is 0 or 1", printable(label)));
    table_.labels.push_back(label == "1");
    for (int64_t i = 0; i < kClickNumbers; ++i) {
      const auto value = std::max<int64_t>(0, parsed<int64_t>(next(), 10, "a whole number"));
      table_.numbers.push_back(static_cast<float>(std::log1p(static_cast<double>(value))));
    }
    for (int64_t i = 0; i < kClickCategories; ++i)
      table_.categories.push_back(
          parsed<uint32_t>(next(), 16, "a category of up to 8 hexadecimal digits"));
    ++table_.count;
  }

  std::string_view next() {
    const size_t tab = std::min(columns_.find('\t'), columns_.size());
    const std::string_view text = columns_.substr(0, tab);
    columns_.remove_prefix(std::min(tab + 1, columns_.size()));
    ++column_;
    return text;
  }

  template <typename Number>
  Number parsed(std::string_view text, int base, const char* kind) const {
    Number value = 0;
    if (text.empty()) return value;  // Missing.
    const auto [end, status] =
        std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (status != std::errc() || end != text.data() + text.size())
      damaged(fmt::format("column {} is {}, not {}", column_, printable(text), kind));
    return value;
  }

  std::string_view rest_, columns_;
  ClickTable& table_;
  int64_t line_ = 0, column_ = 0;
};

template <typename Value>
void append_row(std::vector<Value>& to, const std::vector<Value>& from, int64_t row,
                int64_t width) {
  const auto first = from.begin() + row * width;
  to.insert(to.end(), first, first + width);
}

}  // namespace

ClickTable read_clicks(const std::filesystem::path& file) {
  const std::string content = read_data_file(file);
  ClickTable table;
  table.origin = file.string();
  ClickReader(content, table).read_all();
  return table;
}

ClickTable select(const ClickTable& table, const std::vector<int64_t>& indices) {
  ClickTable rows;
  rows.origin = table.origin;
  rows.count = std::ssize(indices);
  for (const int64_t index : indices) {
    if (index < 0 || index >= table.count)
      throw Error(
          ErrorCode::invalid_argument, "data",
          fmt::format("sample {} is outside 0..{} of {}", index, table.count - 1, table.origin));
    append_row(rows.numbers, table.numbers, index, kClickNumbers);
    append_row(rows.categories, table.categories, index, kClickCategories);
    rows.labels.push_back(table.labels[static_cast<size_t>(index)]);
  }
  return rows;
}

}  // namespace trireme::data
