// The JSON header of a safetensors file, read with suspicion and written with alignment. No torch.
#pragma once
#include <trireme/plan/tensor_spec.h>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::checkpoint {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // The limit of the format's own reader.
constexpr uint64_t kDataAlignment = 64;            // Of the first data byte in files that we write.

struct HeaderTensor {
  plan::TensorSpec spec;
  uint64_t begin = 0, end = 0;  // Of its bytes, from the first data byte on.
};

struct SafetensorsHeader {
  std::vector<HeaderTensor> tensors;  // In the order of their bytes.
  std::map<std::string, std::string> metadata;
};

// Checks every statement of the header against the `data_bytes` that follow it: known dtypes,
// offsets that match shapes and cover the data without hole or overlap, no name twice. `where`
// names the file in messages. Throws Error(corrupt), or Error(unsupported) for a dtype that Trireme
// has no name for.
SafetensorsHeader parse_header(std::string_view json, uint64_t data_bytes,
                               const std::string& where);

// The header with its length in front, padded with blanks so that the data starts at
// kDataAlignment. Throws Error(invalid_argument) naming the tensor if a name is used twice,
// reserved or no UTF-8.
std::string header_bytes(const SafetensorsHeader& header);

}  // namespace trireme::checkpoint
