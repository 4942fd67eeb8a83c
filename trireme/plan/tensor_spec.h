// The facts that a plan needs about a tensor, without storage and without torch.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::plan {

// Plans work on the types up to uint8. The others are only stored, in checkpoints and other files
// of tensors.
enum class DType {
  float32,
  float64,
  float16,
  bfloat16,
  int32,
  int64,
  uint8,
  boolean,
  int8,
  int16,
  uint16,
  uint32,
  uint64,
  float8_e4m3fn,
  float8_e5m2,
  // Only files have these: nothing computes with them.
  float8_e4m3fnuz,
  float8_e5m2fnuz,
  float8_e8m0fnu,
  complex32,
  complex64,
  complex128
};
int64_t bytes_of(DType dtype);
std::string_view to_string(DType dtype);
// Throws Error(invalid_argument) naming the choices.
DType dtype_from_string(std::string_view name);

struct TensorSpec {
  std::string name;  // The name in PyTorch's state_dict: "conv1.weight".
  std::vector<int64_t> shape;
  DType dtype = DType::float32;
  bool trainable = true;

  int64_t elements() const;
  int64_t bytes() const { return elements() * bytes_of(dtype); }
  std::string describe() const;  // "float32[32, 1, 3, 3]"
};

}  // namespace trireme::plan
