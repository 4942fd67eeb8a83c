#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/data/file_bytes.h>
#include <trireme/data/image_table.h>
#include <limits>
#include <string_view>

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

// The last byte of the magic number is the number of dimensions; the byte before it means
// "unsigned bytes".
constexpr uint32_t kImagesMagic = 0x00000803, kLabelsMagic = 0x00000801;
constexpr size_t kNumberBytes = 4;

uint64_t number_at(std::string_view bytes, size_t index) {
  uint64_t value = 0;
  for (const char byte : bytes.substr(index * kNumberBytes, kNumberBytes))
    value = value << 8 | static_cast<unsigned char>(byte);
  return value;
}

void check_magic(std::string_view bytes, uint32_t expected, const fs::path& file) {
  const uint64_t magic = number_at(bytes, 0);
  if (magic == expected) return;
  const bool is_other = magic == kImagesMagic || magic == kLabelsMagic;
  const std::string_view wanted = expected == kImagesMagic ? "images" : "labels";
  throw Error(
      ErrorCode::corrupt, "data",
      fmt::format("{}: the file starts with 0x{:08x}, but an IDX file of {} starts with 0x{:08x}",
                  file.string(), magic, wanted, expected),
      is_other ? "data.images and data.labels the other way round"
               : "a file in MNIST's IDX format of unsigned bytes, plain or gzip");
}

struct Idx {
  std::string bytes;  // Header and values.
  size_t header_bytes = 0;
  std::vector<uint64_t> sizes;
  std::string_view values() const { return std::string_view(bytes).substr(header_bytes); }
};

// Multiplies the sizes; returns the largest uint64_t if the product does not fit in 64 bits.
uint64_t promised_bytes(const std::vector<uint64_t>& sizes) {
  uint64_t product = 1;
  for (const uint64_t size : sizes) {
    if (size == 0) return 0;
    if (__builtin_mul_overflow(product, size, &product))
      product = std::numeric_limits<uint64_t>::max();
  }
  return product;
}

Idx read(const fs::path& file, uint32_t magic) {
  Idx idx;
  idx.bytes = read_data_file(file);
  const size_t dimensions = magic & 0xff;
  idx.header_bytes = (1 + dimensions) * kNumberBytes;
  if (idx.bytes.size() >= kNumberBytes) check_magic(idx.bytes, magic, file);
  if (idx.bytes.size() < idx.header_bytes)
    throw Error(
        ErrorCode::corrupt, "data",
        fmt::format("{}: the file is truncated: it has {} bytes, but its header alone takes {}",
                    file.string(), idx.bytes.size(), idx.header_bytes),
        "fetching the file again");
  for (size_t dim = 0; dim < dimensions; ++dim) idx.sizes.push_back(number_at(idx.bytes, 1 + dim));
  const uint64_t promised = promised_bytes(idx.sizes),
                 present = idx.bytes.size() - idx.header_bytes;
  if (promised != present)
    throw Error(
        ErrorCode::corrupt, "data",
        fmt::format("{}: the file is {}: its header promises {} bytes ({}), but there are {}",
                    file.string(), present < promised ? "truncated" : "too long", promised,
                    fmt::join(idx.sizes, " x "), present),
        "fetching the file again");
  if (promised == 0)
    throw Error(ErrorCode::corrupt, "data",
                fmt::format("{}: the file holds no values ({})", file.string(),
                            fmt::join(idx.sizes, " x ")),
                "a file with at least one sample");
  return idx;
}

}  // namespace

ImageTable read_idx(const fs::path& images_file, const fs::path& labels_file,
                    std::optional<int64_t> classes) {
  const Idx labels = read(labels_file, kLabelsMagic);
  const Idx images = read(images_file, kImagesMagic);
  if (images.sizes[0] != labels.sizes[0])
    throw Error(
        ErrorCode::invalid_argument, "data",
        fmt::format("{} has {} images, but {} has {} labels; each image needs one",
                    images_file.string(), images.sizes[0], labels_file.string(), labels.sizes[0]),
        "the two files of the same set");
  ImageTable table;
  table.count = static_cast<int64_t>(images.sizes[0]);
  table.height = static_cast<int64_t>(images.sizes[1]),
  table.width = static_cast<int64_t>(images.sizes[2]);
  table.pixels.assign(images.values().begin(), images.values().end());
  for (const char label : labels.values())
    table.labels.push_back(static_cast<unsigned char>(label));
  // An error about a label names the labels file.
  table.origin = labels_file.string();
  settle_classes(table, classes);
  table.origin = images_file.string();
  return table;
}

}  // namespace trireme::data
