// The files of MNIST's format IDX: their names, and what their headers say.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::records {

enum class IdxKind { images, labels };

struct IdxHeader {
  uint64_t bytes = 0;           // The size of the header. The values follow it.
  std::vector<uint64_t> sizes;  // images: number, height and width; labels: number.
};

// `bytes` are the whole file, unpacked. Throws Error(corrupt) naming the file if it begins with
// another magic number, is cut or too long, or has no values.
IdxHeader parse_idx_header(std::span<const std::byte> bytes, IdxKind kind,
                           const std::string& file);
// Throws Error(invalid_argument) naming both files and their counts if these differ.
void require_label_for_each_image(const std::string& images_file, const IdxHeader& images,
                                  const std::string& labels_file, const IdxHeader& labels);

// The name of a file of MNIST, without .gz. `part` is train or test.
std::string usual_idx_name(std::string_view part, IdxKind kind);
// The file with this name in the folder, or the one with .gz behind it. Empty if there is neither.
std::filesystem::path find_idx_file(const std::filesystem::path& folder, const std::string& name);
// The file of labels that has the name of a file of images, with labels-idx1 for images-idx3, in
// the same folder, plain or with .gz. Empty if there is none. For the address of a file of images,
// the address of labels with the same packing; empty if it has a '?'. No server is asked.
std::filesystem::path labels_beside(const std::filesystem::path& images);

}  // namespace trireme::records
