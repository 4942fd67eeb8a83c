// Small labelled images, held in memory as bytes and read from files without torch. The formats
// are digits (CSV) and IDX (MNIST's format).
#pragma once
#include <trireme/records/unpack.h>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trireme::data {

struct ImageTable {
  std::string origin;  // The file that the table was read from, for messages.
  int64_t count = 0, channels = 1, height = 0, width = 0;
  float scale = 255.0f;         // The largest value of a pixel: pixels / scale lies in 0..1.
  std::vector<uint8_t> pixels;  // count x channels x height x width
  std::vector<int64_t> labels;  // count
  int64_t classes = 0;          // Labels lie in 0..classes-1.
};

// Checks every label and sets `table.classes` to `classes`, or to the largest label + 1 if
// `classes` is empty. Readers of other formats may call it too. Throws Error(invalid_argument)
// naming sample and label if a label is below 0 or not below `classes`, or if `classes` is below
// 1.
void settle_classes(ImageTable& table, std::optional<int64_t> classes);

// Reads scikit-learn's digits.csv.gz, plain, gzip or zstd: each line has 64 pixel values from 0 to
// 16 and a label. `classes` is the allowed number of labels; if empty, it is the largest label
// + 1. Throws Error(not_found | corrupt) naming file and line, or Error(invalid_argument) naming
// sample and label if a label is out of range.
ImageTable read_digits(const std::filesystem::path& file, std::optional<int64_t> classes = {});

// Reads two IDX files, plain, gzip or zstd (recognized by their first bytes): images (magic
// 0x00000803) and labels (0x00000801). Throws as read_digits() does. For a truncated file the
// error gives the number of bytes that are there, and the number that its header promises.
ImageTable read_idx(const std::filesystem::path& images, const std::filesystem::path& labels,
                    std::optional<int64_t> classes = {},
                    const records::UnpackLimits& limits = records::UnpackLimits::of_whole_file());

// Returns the rows `indices` of a table, with its scale and classes. Throws
// Error(invalid_argument) naming an index outside it.
ImageTable select(const ImageTable& table, const std::vector<int64_t>& indices);

}  // namespace trireme::data
