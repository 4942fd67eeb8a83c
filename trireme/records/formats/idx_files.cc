#include <trireme/records/formats/idx_files.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/records/remote/address.h>
#include <limits>

namespace trireme::records {
namespace {

namespace fs = std::filesystem;

// The last byte of the magic number is the number of dimensions; the byte before it means
// "unsigned bytes".
constexpr uint32_t kImagesMagic = 0x00000803, kLabelsMagic = 0x00000801;
constexpr size_t kIdxNumberBytes = 4;

uint64_t idx_number(std::span<const std::byte> bytes, size_t index) {
  uint64_t value = 0;
  for (const std::byte byte : bytes.subspan(index * kIdxNumberBytes, kIdxNumberBytes))
    value = value << 8 | std::to_integer<uint64_t>(byte);
  return value;
}

void check_idx_magic(std::span<const std::byte> bytes, IdxKind kind, const std::string& file) {
  const uint64_t magic = idx_number(bytes, 0);
  const uint32_t expected = kind == IdxKind::images ? kImagesMagic : kLabelsMagic;
  if (magic == expected) return;
  const bool is_other = magic == kImagesMagic || magic == kLabelsMagic;
  throw Error(
      ErrorCode::corrupt, "data",
      fmt::format("{}: the file starts with 0x{:08x}, but an IDX file of {} starts with 0x{:08x}",
                  file, magic, kind == IdxKind::images ? "images" : "labels", expected),
      is_other ? "the files of images and labels the other way round"
               : "a file in MNIST's IDX format of unsigned bytes, plain, gzip or zstd");
}

// Multiplies the sizes; returns the largest uint64_t if the product does not fit in 64 bits.
uint64_t promised_values(const std::vector<uint64_t>& sizes) {
  uint64_t product = 1;
  for (const uint64_t size : sizes) {
    if (size == 0) return 0;
    if (__builtin_mul_overflow(product, size, &product))
      product = std::numeric_limits<uint64_t>::max();
  }
  return product;
}

// Replaces the last `from` of the text. Returns false if it has none.
bool replace_last(std::string& text, std::string_view from, std::string_view to) {
  const size_t at = text.rfind(from);
  if (at == std::string::npos) return false;
  text.replace(at, from.size(), to);
  return true;
}

// The name of a file of labels. Empty if that of the images does not tell it.
std::string name_of_labels(std::string name) {
  if (!replace_last(name, "images", "labels")) return {};
  replace_last(name, "idx3", "idx1");
  return name;
}

}  // namespace

IdxHeader parse_idx_header(std::span<const std::byte> bytes, IdxKind kind,
                           const std::string& file) {
  const size_t dimensions = (kind == IdxKind::images ? kImagesMagic : kLabelsMagic) & 0xff;
  IdxHeader header{.bytes = (1 + dimensions) * kIdxNumberBytes, .sizes = {}};
  if (bytes.size() >= kIdxNumberBytes) check_idx_magic(bytes, kind, file);
  if (bytes.size() < header.bytes)
    throw Error(
        ErrorCode::corrupt, "data",
        fmt::format("{}: the file is truncated: it has {} bytes, but its header alone takes {}",
                    file, bytes.size(), header.bytes),
        "fetching the file again");
  for (size_t dim = 0; dim < dimensions; ++dim) header.sizes.push_back(idx_number(bytes, 1 + dim));
  const uint64_t promised = promised_values(header.sizes), present = bytes.size() - header.bytes;
  if (promised != present)
    throw Error(
        ErrorCode::corrupt, "data",
        fmt::format("{}: the file is {}: its header promises {} bytes ({}), but there are {}",
                    file, present < promised ? "truncated" : "too long", promised,
                    fmt::join(header.sizes, " x "), present),
        "fetching the file again");
  if (promised == 0)
    throw Error(
        ErrorCode::corrupt, "data",
        fmt::format("{}: the file holds no values ({})", file, fmt::join(header.sizes, " x ")),
        "a file with at least one sample");
  return header;
}

void require_label_for_each_image(const std::string& images_file, const IdxHeader& images,
                                  const std::string& labels_file, const IdxHeader& labels) {
  if (images.sizes[0] == labels.sizes[0]) return;
  throw Error(ErrorCode::invalid_argument, "data",
              fmt::format("{} has {} images, but {} has {} labels; each image needs one",
                          images_file, images.sizes[0], labels_file, labels.sizes[0]),
              "the two files of the same set");
}

std::string usual_idx_name(std::string_view part, IdxKind kind) {
  return fmt::format("{}-{}", part == "test" ? "t10k" : "train",
                     kind == IdxKind::images ? "images-idx3-ubyte" : "labels-idx1-ubyte");
}

fs::path find_idx_file(const fs::path& folder, const std::string& name) {
  for (const fs::path& path : {folder / name, folder / (name + ".gz")}) {
    std::error_code unknown;
    if (fs::is_regular_file(path, unknown)) return path;
  }
  return {};
}

fs::path labels_beside(const fs::path& images) {
  std::string name = images.filename();
  if (is_address(images.string())) {
    // The part behind '?' may be a signature of this file alone.
    const std::string labels = name_of_labels(name);
    const bool is_plain = images.string().find_first_of("?#") == std::string::npos;
    return labels.empty() || !is_plain ? fs::path() : images.parent_path() / labels;
  }
  if (name.ends_with(".gz")) name.resize(name.size() - 3);
  const std::string labels = name_of_labels(name);
  return labels.empty() ? fs::path() : find_idx_file(images.parent_path(), labels);
}

}  // namespace trireme::records
