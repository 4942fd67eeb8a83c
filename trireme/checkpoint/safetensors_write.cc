#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/checkpoint/output_file.h>
#include <trireme/checkpoint/safetensors.h>
#include <trireme/checkpoint/safetensors_header.h>
#include <algorithm>
#include <numeric>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

void require_fit(const TensorView& tensor) {
  const bool negative = std::any_of(tensor.spec.shape.begin(), tensor.spec.shape.end(),
                                    [](int64_t size) { return size < 0; });
  if (negative || static_cast<uint64_t>(tensor.spec.bytes()) != tensor.bytes.size())
    throw Error(ErrorCode::invalid_argument, "checkpoint",
                fmt::format("the tensor {} is {}, which does not fit its {} bytes",
                            tensor.spec.name, tensor.spec.describe(), tensor.bytes.size()),
                "pass a contiguous tensor's whole storage");
}

SafetensorsLayout lay_out_specs(const std::vector<plan::TensorSpec>& tensors,
                                const std::map<std::string, std::string>& metadata) {
  SafetensorsLayout layout;
  layout.order.resize(tensors.size());
  std::iota(layout.order.begin(), layout.order.end(), size_t{0});
  std::stable_sort(layout.order.begin(), layout.order.end(), [&](size_t a, size_t b) {
    return plan::bytes_of(tensors[a].dtype) > plan::bytes_of(tensors[b].dtype);
  });
  SafetensorsHeader header{{}, metadata};
  uint64_t position = 0;
  for (const size_t i : layout.order) {
    const auto bytes = static_cast<uint64_t>(tensors[i].bytes());
    header.tensors.push_back({tensors[i], position, position + bytes});
    position += bytes;
  }
  layout.header = header_bytes(header);
  layout.bytes = layout.header.size() + position;
  return layout;
}

}  // namespace

SafetensorsLayout lay_out(const std::vector<TensorView>& tensors,
                          const std::map<std::string, std::string>& metadata) {
  std::vector<plan::TensorSpec> specs;
  for (const TensorView& tensor : tensors) {
    require_fit(tensor);
    specs.push_back(tensor.spec);
  }
  return lay_out_specs(specs, metadata);
}

std::string write_safetensors(const fs::path& path, const std::vector<TensorView>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  std::vector<plan::TensorSpec> specs;
  for (const TensorView& tensor : tensors) {
    require_fit(tensor);
    specs.push_back(tensor.spec);
  }
  return write_safetensors(path, specs, [&](size_t i) { return tensors[i].bytes; }, metadata);
}

std::string write_safetensors(const fs::path& path, const std::vector<plan::TensorSpec>& tensors,
                              const BytesOf& bytes_of,
                              const std::map<std::string, std::string>& metadata) {
  const SafetensorsLayout layout = lay_out_specs(tensors, metadata);
  return digest_text(write_whole_file(path, [&](OutputFile& file) {
    file.write(layout.header);
    for (const size_t i : layout.order) file.write(bytes_of(i));
  }));
}

}  // namespace trireme::checkpoint
