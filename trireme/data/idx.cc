#include <trireme/data/file_bytes.h>
#include <trireme/data/image_table.h>
#include <trireme/records/formats/idx_files.h>
#include <span>
#include <string_view>

namespace trireme::data {
namespace {

namespace fs = std::filesystem;
using records::IdxKind;

struct IdxBytes {
  std::string bytes;  // Header and values.
  records::IdxHeader header;
  std::string_view values() const { return std::string_view(bytes).substr(header.bytes); }
};

IdxBytes read_idx_bytes(const fs::path& file, IdxKind kind, const records::UnpackLimits& limits) {
  IdxBytes read;
  read.bytes = read_data_file(file, limits);
  read.header =
      records::parse_idx_header(std::as_bytes(std::span(read.bytes)), kind, file.string());
  return read;
}

}  // namespace

ImageTable read_idx(const fs::path& images_file, const fs::path& labels_file,
                    std::optional<int64_t> classes, const records::UnpackLimits& limits) {
  const IdxBytes labels = read_idx_bytes(labels_file, IdxKind::labels, limits);
  const IdxBytes images = read_idx_bytes(images_file, IdxKind::images, limits);
  records::require_label_for_each_image(images_file.string(), images.header, labels_file.string(),
                                        labels.header);
  const auto& sizes = images.header.sizes;
  ImageTable table;
  table.count = static_cast<int64_t>(sizes[0]);
  table.height = static_cast<int64_t>(sizes[1]), table.width = static_cast<int64_t>(sizes[2]);
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
