// Clicks on advertisements in the layout of Criteo's data sets, read without torch. A line is a
// sample: the label (1: clicked, 0: not), 13 whole numbers and 26 categories of up to 8
// hexadecimal digits, with tabs between them. A number or a category may be missing: then it is
// empty.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace trireme::data {

inline constexpr int64_t kClickNumbers = 13, kClickCategories = 26;

struct ClickTable {
  std::string origin;  // The file that the table was read from, for messages.
  int64_t count = 0;
  // count x 13: log(1 + x), as the code of DLRM has it; 0 where x is missing or below 0.
  std::vector<float> numbers;
  std::vector<uint32_t> categories;  // count x 26; 0 where it is missing.
  std::vector<uint8_t> labels;       // count
};

// Reads a file, plain, gzip or zstd. Throws Error(not_found | io | corrupt) naming the file, and
// for a damaged line also the line and the column, which count from 1.
ClickTable read_clicks(const std::filesystem::path& file);

// Returns the rows `indices` of a table. Throws Error(invalid_argument) naming an index outside
// it.
ClickTable select(const ClickTable& table, const std::vector<int64_t>& indices);

}  // namespace trireme::data
