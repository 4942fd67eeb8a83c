// The JSON header of a safetensors file: parsed without trust, and written
// with alignment.
#pragma once
#include <trireme/plan/tensor_spec.h>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::checkpoint {

// The limit of the format's own reader.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
// The alignment of the first data byte in files that Trireme writes.
constexpr uint64_t kDataAlignment = 64;

struct HeaderTensor {
  plan::TensorSpec spec;
  // The range of its bytes, counted from the first data byte.
  uint64_t begin = 0, end = 0;
};

struct SafetensorsHeader {
  std::vector<HeaderTensor> tensors;  // The tensors in the order of their bytes.
  std::map<std::string, std::string> metadata;
};

// Checks every statement of the header against the `data_bytes` that follow it: dtypes must be
// known, offsets must match shapes and cover the data without hole or overlap, and no name may
// appear twice. `where` names the file in messages. Throws Error(corrupt), or Error(unsupported)
// for a dtype that Trireme has no name for.
SafetensorsHeader parse_header(std::string_view json, uint64_t data_bytes,
                               const std::string& where);

// Returns the header with its length in front, padded with blanks so that the data starts at
// kDataAlignment. Throws Error(invalid_argument) that names the tensor if a name is used twice, is
// reserved or is not UTF-8.
std::string header_bytes(const SafetensorsHeader& header);

}  // namespace trireme::checkpoint
