#include <trireme/data/image_table.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <algorithm>
#include <cstring>

namespace trireme::data {

void settle_classes(ImageTable& table, std::optional<int64_t> classes) {
  if (classes && *classes < 1)
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("the number of classes is {}, but must be at least 1", *classes),
                "data.classes of 1 or more, or leave it out");
  int64_t largest = -1;
  for (size_t sample = 0; sample < table.labels.size(); ++sample) {
    const int64_t label = table.labels[sample];
    if (label < 0 || (classes && label >= *classes)) {
      const std::string allowed =
          classes ? fmt::format("outside 0..{} (data.classes={})", *classes - 1, *classes)
                  : "below 0";
      throw Error(
          ErrorCode::invalid_argument, "data",
          fmt::format("{}: label {} of sample {} is {}", table.origin, label, sample, allowed),
          classes ? "the right data.classes, or labels counted from 0" : "labels counted from 0");
    }
    largest = std::max(largest, label);
  }
  table.classes = classes.value_or(largest + 1);
}

ImageTable select(const ImageTable& table, const std::vector<int64_t>& indices) {
  ImageTable rows;
  rows.origin = table.origin;
  rows.count = static_cast<int64_t>(indices.size());
  rows.channels = table.channels, rows.height = table.height, rows.width = table.width;
  rows.scale = table.scale;
  rows.classes = table.classes;
  const auto image = static_cast<size_t>(table.channels * table.height * table.width);
  rows.pixels.resize(indices.size() * image);
  rows.labels.reserve(indices.size());
  for (size_t row = 0; row < indices.size(); ++row) {
    const int64_t sample = indices[row];
    if (sample < 0 || sample >= table.count)
      throw Error(
          ErrorCode::invalid_argument, "data",
          fmt::format("sample {} is outside 0..{} of {}", sample, table.count - 1, table.origin));
    if (image > 0)
      std::memcpy(rows.pixels.data() + row * image,
                  table.pixels.data() + static_cast<size_t>(sample) * image, image);
    rows.labels.push_back(table.labels[static_cast<size_t>(sample)]);
  }
  return rows;
}

}  // namespace trireme::data
