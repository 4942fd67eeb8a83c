// The header of NumPy's files.
#pragma once
#include <trireme/plan/tensor_spec.h>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace trireme::records {

struct NpyHeader {
  plan::DType dtype = plan::DType::float32;
  std::vector<int64_t> shape;
  uint64_t data = 0;   // Where the numbers begin.
  uint64_t bytes = 0;  // What the numbers take.
};

// Reads the header at the front of a file, of which `bytes` has at least the first 64 KiB or all.
// Throws Damage: unsupported for objects (they would be unpickled), records, texts, Fortran's
// order and the other byte order; corrupt otherwise.
NpyHeader parse_npy_header(std::span<const std::byte> bytes, uint64_t file_bytes);

}  // namespace trireme::records
