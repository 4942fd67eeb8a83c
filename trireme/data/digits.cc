#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/data/file_bytes.h>
#include <trireme/data/image_table.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

namespace trireme::data {
namespace {

constexpr int kSide = 8, kPixels = kSide * kSide, kColumns = kPixels + 1, kBrightest = 16;

struct Place {
  std::string file;
  int64_t line = 0;
};

Error corrupt(const Place& place, std::string_view what) {
  return Error(
      ErrorCode::corrupt, "data", fmt::format("{}, line {}: {}", place.file, place.line, what),
      "a file as scikit-learn's digits.csv.gz: 64 pixels of 0 to 16 and a label on each line");
}

int64_t whole_number(std::string_view text, int column, const Place& place) {
  int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size())
    throw corrupt(place,
                  fmt::format("column {} is {}, not a whole number", column, printable(text)));
  return value;
}

std::array<std::string_view, kColumns> columns_of(std::string_view line, const Place& place) {
  std::array<std::string_view, kColumns> columns;
  int count = 0;
  for (size_t start = 0; start <= line.size(); ++count) {
    const size_t comma = std::min(line.find(',', start), line.size());
    if (count < kColumns) columns[static_cast<size_t>(count)] = line.substr(start, comma - start);
    start = comma + 1;
  }
  if (count != kColumns)
    throw corrupt(place, fmt::format("there are {} columns, but {} are needed", count, kColumns));
  return columns;
}

void add_line(ImageTable& table, std::string_view line, const Place& place) {
  const auto columns = columns_of(line, place);
  for (int column = 0; column < kPixels; ++column) {
    const int64_t pixel = whole_number(columns[static_cast<size_t>(column)], column + 1, place);
    if (pixel < 0 || pixel > kBrightest)
      throw corrupt(place, fmt::format("pixel {} in column {} is outside 0..{}", pixel, column + 1,
                                       kBrightest));
    table.pixels.push_back(static_cast<uint8_t>(pixel));
  }
  table.labels.push_back(whole_number(columns.back(), kColumns, place));
  ++table.count;
}

}  // namespace

ImageTable read_digits(const std::filesystem::path& file, std::optional<int64_t> classes) {
  const std::string content = read_data_file(file);
  ImageTable table;
  table.origin = file.string();
  table.height = kSide, table.width = kSide;
  table.scale = kBrightest;
  Place place{table.origin};
  for (std::string_view rest = content; !rest.empty();) {
    const size_t newline = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, newline);
    if (line.ends_with('\r')) line.remove_suffix(1);
    rest.remove_prefix(std::min(newline + 1, rest.size()));
    ++place.line;
    add_line(table, line, place);
  }
  settle_classes(table, classes);
  return table;
}

}  // namespace trireme::data
