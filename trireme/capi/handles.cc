#include <ATen/dlpack.h>
#include <ATen/ops/from_blob.h>
#include <fmt/ranges.h>
#include <trireme/capi/handles.h>
#include <cstddef>

namespace trireme::capi {

std::string& last_error() {
  thread_local std::string text;
  return text;
}

trireme_status status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument: return TRIREME_INVALID_ARGUMENT;
    case ErrorCode::not_found: return TRIREME_NOT_FOUND;
    case ErrorCode::unsupported: return TRIREME_UNSUPPORTED;
    case ErrorCode::timeout: return TRIREME_TIMEOUT;
    case ErrorCode::peer_lost: return TRIREME_PEER_LOST;
    case ErrorCode::aborted: return TRIREME_ABORTED;
    case ErrorCode::corrupt: return TRIREME_CORRUPT;
    case ErrorCode::io: return TRIREME_IO;
    case ErrorCode::internal: return TRIREME_INTERNAL;
  }
  return TRIREME_INTERNAL;
}

ErrorCode code_of(trireme_status status) {
  switch (status) {
    case TRIREME_INVALID_ARGUMENT: return ErrorCode::invalid_argument;
    case TRIREME_NOT_FOUND: return ErrorCode::not_found;
    case TRIREME_UNSUPPORTED: return ErrorCode::unsupported;
    case TRIREME_TIMEOUT: return ErrorCode::timeout;
    case TRIREME_PEER_LOST: return ErrorCode::peer_lost;
    case TRIREME_ABORTED: return ErrorCode::aborted;
    case TRIREME_CORRUPT: return ErrorCode::corrupt;
    case TRIREME_IO: return ErrorCode::io;
    case TRIREME_OK:
    case TRIREME_MEET_AGAIN:
    case TRIREME_STOPPED:
    case TRIREME_DISMISSED:
    case TRIREME_INTERNAL: break;
  }
  return ErrorCode::internal;
}

Error refused(const std::string& what, const std::string& remedy) {
  return Error(ErrorCode::invalid_argument, "capi", what, remedy);
}

std::string form_of(const at::Tensor& tensor) {
  return fmt::format("{} [{}]", c10::toString(tensor.scalar_type()),
                     fmt::join(tensor.sizes(), ", "));
}

namespace {

// trireme_c.h allows a pointer to a DLTensor, and names DLPack's numbers.
#define TRIREME_SAME_FIELD(field)                                              \
  static_assert(offsetof(trireme_tensor, field) == offsetof(DLTensor, field)); \
  static_assert(sizeof(trireme_tensor().field) == sizeof(DLTensor().field))
TRIREME_SAME_FIELD(data);
TRIREME_SAME_FIELD(device.device_type);
TRIREME_SAME_FIELD(device.device_id);
TRIREME_SAME_FIELD(ndim);
TRIREME_SAME_FIELD(dtype.code);
TRIREME_SAME_FIELD(dtype.bits);
TRIREME_SAME_FIELD(dtype.lanes);
TRIREME_SAME_FIELD(shape);
TRIREME_SAME_FIELD(strides);
TRIREME_SAME_FIELD(byte_offset);
#undef TRIREME_SAME_FIELD
static_assert(sizeof(trireme_tensor) == sizeof(DLTensor));
static_assert(kDLCPU == 1 && kDLInt == 0 && kDLUInt == 1 && kDLFloat == 2 && kDLBfloat == 4);

at::ScalarType type_of(const trireme_tensor& tensor, const std::string& name) {
  constexpr int kSigned = kDLInt, kUnsigned = kDLUInt, kFloat = kDLFloat, kBfloat = kDLBfloat;
  const int code = tensor.dtype.code, bits = tensor.dtype.bits;
  if (tensor.dtype.lanes == 1) {
    if (code == kFloat && bits == 32) return at::kFloat;
    if (code == kFloat && bits == 64) return at::kDouble;
    if (code == kFloat && bits == 16) return at::kHalf;
    if (code == kBfloat && bits == 16) return at::kBFloat16;
    if (code == kSigned && bits == 32) return at::kInt;
    if (code == kSigned && bits == 64) return at::kLong;
    if (code == kUnsigned && bits == 8) return at::kByte;
  }
  throw refused(fmt::format("{} has the type code {} with {} bits and {} lanes", name, code, bits,
                            tensor.dtype.lanes),
                "float16, float32, float64, bfloat16, int32, int64 or uint8, one lane");
}

}  // namespace

at::Tensor view_of(const trireme_tensor* tensor, const std::string& name) {
  given(tensor, name.c_str());
  if (tensor->device.device_type != kDLCPU)
    throw refused(fmt::format("{} is on a device of type {}", name, tensor->device.device_type),
                  "a tensor in the CPU's memory (type 1)");
  const at::ScalarType type = type_of(*tensor, name);
  std::vector<int64_t> shape;
  int64_t elements = 1;
  for (int i = 0; i < tensor->ndim; ++i) {
    shape.push_back(tensor->shape[i]);
    if (shape.back() < 0) throw refused(name + " has a negative size", "sizes of 0 or more");
    elements *= shape.back();
  }
  int64_t expected = 1;
  for (int i = tensor->ndim - 1; tensor->strides && i >= 0; --i) {
    if (shape[static_cast<size_t>(i)] != 1 && tensor->strides[i] != expected)
      throw refused(name + " is not contiguous", "a contiguous copy");
    expected *= shape[static_cast<size_t>(i)];
  }
  if (!tensor->data && elements > 0) throw refused(name + " has no data", "a pointer to its data");
  return at::from_blob(static_cast<char*>(tensor->data) + tensor->byte_offset, shape,
                       at::TensorOptions().dtype(type));
}

}  // namespace trireme::capi
