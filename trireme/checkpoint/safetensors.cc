#include <trireme/checkpoint/safetensors.h>

#include <fmt/format.h>
#include <sys/mman.h>
#include <trireme/base/error.h>
#include <trireme/checkpoint/file_system.h>
#include <trireme/checkpoint/input_file.h>
#include <trireme/checkpoint/safetensors_header.h>
#include <cerrno>
#include <string_view>
#include <unordered_map>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

class Mapping {
 public:
  explicit Mapping(const fs::path& path) {
    const InputFile file(path);
    size_ = file.size();
    if (size_ == 0) return;
    start_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
    if (start_ == MAP_FAILED) refuse("map", path, errno);
  }
  ~Mapping() {
    if (start_ != nullptr) ::munmap(start_, size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(start_), size_};
  }

 private:
  void* start_ = nullptr;
  size_t size_ = 0;
};

// Splits a file into the header's JSON and the data after it.
std::pair<std::string_view, std::span<const std::byte>> cut(std::span<const std::byte> file,
                                                            const std::string& where) {
  const auto damaged = [&](const std::string& what) {
    return Error(ErrorCode::corrupt, "checkpoint", fmt::format("{} is damaged: {}", where, what),
                 "an older checkpoint or a fresh copy");
  };
  if (file.size() < 8)
    throw damaged(fmt::format("{} bytes are too few for a safetensors file", file.size()));
  uint64_t length = 0;
  for (int byte = 7; byte >= 0; --byte)
    length = length << 8 | static_cast<uint64_t>(file[static_cast<size_t>(byte)]);
  if (length > file.size() - 8 || length > kMaxHeaderBytes)
    throw damaged(
        fmt::format("its header claims {} bytes of a file of {}; the format's limit is {}", length,
                    file.size(), kMaxHeaderBytes));
  return {{reinterpret_cast<const char*>(file.data()) + 8, length}, file.subspan(8 + length)};
}

}  // namespace

struct SafetensorsFile::Impl {
  explicit Impl(const fs::path& path) : mapping(path) {
    const auto [json, data] = cut(mapping.bytes(), path.string());
    SafetensorsHeader header = parse_header(json, data.size(), path.string());
    for (HeaderTensor& tensor : header.tensors)
      tensors.push_back(
          {std::move(tensor.spec), data.subspan(tensor.begin, tensor.end - tensor.begin)});
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
const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return impl_->metadata;
}

uint64_t SafetensorsFile::offset_of(const TensorView& tensor) const {
  return static_cast<uint64_t>(tensor.bytes.data() - impl_->mapping.bytes().data());
}

const TensorView* SafetensorsFile::find(const std::string& name) const {
  const auto found = impl_->index.find(name);
  return found == impl_->index.end() ? nullptr : &impl_->tensors[found->second];
}

}  // namespace trireme::checkpoint
