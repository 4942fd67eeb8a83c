// Small labelled images held in memory as bytes, read from files without torch: digits (CSV) and
// IDX (MNIST's format).
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trireme::data {

struct ImageTable {
  std::string origin;  // File it came from, for messages.
  int64_t count = 0, channels = 1, height = 0, width = 0;
  float scale = 255.0f;         // A pixel's largest value: pixels / scale lies in 0..1.
  std::vector<uint8_t> pixels;  // count x channels x height x width.
  std::vector<int64_t> labels;  // count.
  int64_t classes = 0;          // Labels lie in 0..classes-1.
};

// Checks every label and sets `table.classes`: to `classes`, or to the largest label + 1 where it
// is empty. For readers of further formats. Throws Error(invalid_argument) naming sample and label
// if one is below 0 or not below `classes`, or if `classes` is below 1.
void settle_classes(ImageTable& table, std::optional<int64_t> classes);

// scikit-learn's digits.csv.gz: 64 pixel values 0..16 and a label a line; plain or gzip. `classes`:
// the allowed number of labels; empty: largest label + 1. Throws Error(not_found | corrupt) naming
// file and line, or Error(invalid_argument) naming sample and label if one is out of range.
ImageTable read_digits(const std::filesystem::path& file, std::optional<int64_t> classes = {});

// Two IDX files, plain or gzip (told by their first bytes): images (magic 0x00000803) and labels
// (0x00000801). Errors as above; a truncated file names the bytes that are there and the bytes its
// header promises.
ImageTable read_idx(const std::filesystem::path& images, const std::filesystem::path& labels,
                    std::optional<int64_t> classes = {});

// The rows `indices` of a table, with its scale and classes. Throws Error(invalid_argument) naming
// an index outside it.
ImageTable select(const ImageTable& table, const std::vector<int64_t>& indices);

}  // namespace trireme::data
