// Reads and writes the safetensors format: the header's length in 8 bytes, a JSON header, the
// tensors' bytes.
//
// Format: https://github.com/huggingface/safetensors, "Format". A header is checked completely
// before it is used. A file with wrong sizes, overlaps or lengths ends in Error(corrupt), never in
// a read or an allocation beyond the file.
#pragma once
#include <trireme/plan/tensor_spec.h>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
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

// The layout of a file of these tensors: the header, then each tensor's bytes in `order`. Tensors
// with wide elements come first, so that each tensor starts at a multiple of its element size.
// Readers want that.
struct SafetensorsLayout {
  std::string header;
  std::vector<size_t> order;  // Indices of the tensors.
  uint64_t bytes = 0;         // The size of the whole file.
};
// Throws Error(invalid_argument) for a view whose bytes do not fit its spec, or for a name that
// the format cannot hold.
SafetensorsLayout lay_out(const std::vector<TensorView>& tensors,
                          const std::map<std::string, std::string>& metadata = {});

// Writes a file that is not in a checkpoint. It has another name until it is whole and durable,
// and an older file stays until then. Returns its digest (digest.h). Throws Error(io) with path,
// reason and bytes written, and the errors of lay_out().
std::string write_safetensors(const std::filesystem::path& path,
                              const std::vector<TensorView>& tensors,
                              const std::map<std::string, std::string>& metadata = {});

// The same from tensors that need not all be in memory: `bytes_of(i)` is asked once for each, and
// its answer is used before the next question.
using BytesOf = std::function<std::span<const std::byte>(size_t i)>;
std::string write_safetensors(const std::filesystem::path& path,
                              const std::vector<plan::TensorSpec>& tensors,
                              const BytesOf& bytes_of,
                              const std::map<std::string, std::string>& metadata = {});

// A file that is mapped into memory (read-only, private). Its views are valid while it lives.
class SafetensorsFile {
 public:
  // Throws Error(not_found), Error(io), Error(corrupt) that names the file and what is wrong with
  // it, or Error(unsupported) for a dtype that Trireme lacks.
  explicit SafetensorsFile(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  // The tensors in the order of their bytes.
  const std::vector<TensorView>& tensors() const;
  const TensorView* find(const std::string& name) const;
  // Returns the place in the file of the first byte of `tensor`, one of tensors().
  uint64_t offset_of(const TensorView& tensor) const;
  const std::map<std::string, std::string>& metadata() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::checkpoint
