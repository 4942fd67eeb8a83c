#include <trireme/checkpoint/safetensors.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/checkpoint/output_file.h>
#include <trireme/checkpoint/safetensors_header.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <unordered_map>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

// Wide elements first: the format allows no gaps, and readers want each tensor at a multiple of its element size.
std::vector<const TensorView*> aligned_order(const std::vector<TensorView>& tensors) {
  std::vector<const TensorView*> order;
  for (const TensorView& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(),
                   [](const TensorView* a, const TensorView* b) { return plan::bytes_of(a->spec.dtype) > plan::bytes_of(b->spec.dtype); });
  return order;
}

SafetensorsHeader header_of(const std::vector<const TensorView*>& tensors, const std::map<std::string, std::string>& metadata) {
  SafetensorsHeader header{{}, metadata};
  uint64_t position = 0;
  for (const TensorView* tensor : tensors) {
    const bool negative = std::any_of(tensor->spec.shape.begin(), tensor->spec.shape.end(), [](int64_t size) { return size < 0; });
    if (negative || static_cast<uint64_t>(tensor->spec.bytes()) != tensor->bytes.size())
      throw Error(ErrorCode::invalid_argument, "checkpoint",
                  fmt::format("the tensor {} is {}, which does not fit its {} bytes", tensor->spec.name, tensor->spec.describe(),
                              tensor->bytes.size()),
                  "pass a contiguous tensor's whole storage");
    header.tensors.push_back({tensor->spec, position, position + tensor->bytes.size()});
    position += tensor->bytes.size();
  }
  return header;
}

class Mapping {
 public:
  explicit Mapping(const fs::path& path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);  // A pipe must not block.
    if (descriptor < 0) fail(path, errno);
    struct stat status {};
    const int failure = ::fstat(descriptor, &status) != 0 ? errno
                        : S_ISDIR(status.st_mode)         ? EISDIR
                        : !S_ISREG(status.st_mode)        ? EINVAL
                                                          : 0;
    size_ = static_cast<size_t>(status.st_size);
    if (failure == 0 && size_ > 0) start_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    const int error_number = start_ == MAP_FAILED ? errno : failure;
    ::close(descriptor);
    if (error_number != 0) fail(path, error_number);
  }
  ~Mapping() {
    if (start_ != nullptr) ::munmap(start_, size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(start_), size_}; }

 private:
  [[noreturn]] static void fail(const fs::path& path, int error_number) {
    throw Error(error_number == ENOENT ? ErrorCode::not_found : ErrorCode::io, "checkpoint",
                fmt::format("cannot open {}: {}", path.string(), std::generic_category().message(error_number)),
                "correct the path, or check its permissions");
  }

  void* start_ = nullptr;
  size_t size_ = 0;
};

// The header's JSON and the data after it.
std::pair<std::string_view, std::span<const std::byte>> cut(std::span<const std::byte> file, const std::string& where) {
  const auto damaged = [&](const std::string& what) {
    return Error(ErrorCode::corrupt, "checkpoint", fmt::format("{} is damaged: {}", where, what), "an older checkpoint or a fresh copy");
  };
  if (file.size() < 8) throw damaged(fmt::format("{} bytes are too few for a safetensors file", file.size()));
  uint64_t length = 0;
  for (int byte = 7; byte >= 0; --byte) length = length << 8 | static_cast<uint64_t>(file[static_cast<size_t>(byte)]);
  if (length > file.size() - 8 || length > kMaxHeaderBytes)
    throw damaged(
        fmt::format("its header claims {} bytes of a file of {}; the format's limit is {}", length, file.size(), kMaxHeaderBytes));
  return {{reinterpret_cast<const char*>(file.data()) + 8, length}, file.subspan(8 + length)};
}

}  // namespace

std::string write_safetensors(const fs::path& path, const std::vector<TensorView>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  const auto order = aligned_order(tensors);
  const std::string header = header_bytes(header_of(order, metadata));
  OutputFile file(path);
  file.write(header);
  for (const TensorView* tensor : order) file.write(tensor->bytes);
  return file.finish();
}

struct SafetensorsFile::Impl {
  explicit Impl(const fs::path& path) : mapping(path) {
    const auto [json, data] = cut(mapping.bytes(), path.string());
    SafetensorsHeader header = parse_header(json, data.size(), path.string());
    for (HeaderTensor& tensor : header.tensors)
      tensors.push_back({std::move(tensor.spec), data.subspan(tensor.begin, tensor.end - tensor.begin)});
    for (size_t i = 0; i < tensors.size(); ++i) index.emplace(tensors[i].spec.name, i);
    metadata = std::move(header.metadata);
  }

  Mapping mapping;
  std::vector<TensorView> tensors;
  std::unordered_map<std::string_view, size_t> index;
  std::map<std::string, std::string> metadata;
};

SafetensorsFile::SafetensorsFile(const fs::path& path) : impl_(std::make_unique<Impl>(path)) {}
SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;

const std::vector<TensorView>& SafetensorsFile::tensors() const { return impl_->tensors; }
const std::map<std::string, std::string>& SafetensorsFile::metadata() const { return impl_->metadata; }

const TensorView* SafetensorsFile::find(const std::string& name) const {
  const auto found = impl_->index.find(name);
  return found == impl_->index.end() ? nullptr : &impl_->tensors[found->second];
}

std::string SafetensorsFile::sha256() const {
  Sha256 sha;
  sha.update(impl_->mapping.bytes());
  return sha.hex();
}

}  // namespace trireme::checkpoint
