#include <ATen/ops/from_blob.h>
#include <fmt/ranges.h>
#include <trireme/capi/handles.h>

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

at::ScalarType type_of(const trireme_tensor& tensor, const std::string& name) {
  constexpr int kSigned = 0, kUnsigned = 1, kFloat = 2, kBfloat = 4;
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
  constexpr int kCpu = 1;
  if (tensor->device.device_type != kCpu)
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
