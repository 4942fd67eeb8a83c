// Reads and writes the safetensors format (8 bytes header length, JSON header, tensor bytes). No
// torch.
//
// Format: https://github.com/huggingface/safetensors, "Format". A header is checked before any of
// it is believed: a file that lies about sizes, overlaps or lengths ends in Error(corrupt), never
// in a read or allocation beyond the file.
#pragma once
#include <trireme/plan/tensor_spec.h>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace trireme::checkpoint {

struct TensorView {
  plan::TensorSpec spec;  // Name, shape, dtype.
  std::span<const std::byte> bytes;
};

// A file of these tensors before it is written: the header, then each tensor's bytes in `order`.
// Those with wide elements come first, so that each lies at a multiple of its element size, which
// readers want.
struct SafetensorsLayout {
  std::string header;
  std::vector<size_t> order;  // Indices of the tensors.
  uint64_t bytes = 0;         // Of the whole file.
};
// Throws Error(invalid_argument) for a view whose bytes do not fit its spec, or a name that the
// format cannot hold.
SafetensorsLayout lay_out(const std::vector<TensorView>& tensors,
                          const std::map<std::string, std::string>& metadata = {});

// Writes a file by itself, under another name until it is whole and durable: what was there stays
// until then. Returns its digest (digest.h). Throws Error(io) with path, reason and bytes written,
// and as lay_out() does.
std::string write_safetensors(const std::filesystem::path& path,
                              const std::vector<TensorView>& tensors,
                              const std::map<std::string, std::string>& metadata = {});

// A file mapped into memory (read-only, private); views stay valid as long as it lives.
class SafetensorsFile {
 public:
  // Throws Error(not_found), Error(io), Error(corrupt) naming the file and what is wrong with it,
  // or Error(unsupported) for a dtype we lack.
  explicit SafetensorsFile(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  const std::vector<TensorView>& tensors() const;  // In the order of their bytes.
  const TensorView* find(const std::string& name) const;
  uint64_t offset_of(
      const TensorView& tensor) const;  // Of one of tensors(): its first byte's place in the file.
  const std::map<std::string, std::string>& metadata() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::checkpoint
