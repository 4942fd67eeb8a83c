#include <trireme/checkpoint/pytorch_file.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/checkpoint/pickle.h>
#include <trireme/checkpoint/pytorch_types.h>
#include <trireme/checkpoint/zip_archive.h>
#include <algorithm>
#include <cstring>
#include <set>
#include <tuple>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using Kind = PickleNode::Kind;

constexpr int kDeepest = 64;      // The limit for modules in modules.
constexpr size_t kMostDims = 64;  // LibTorch's own limit.

class PytorchReader {
 public:
  explicit PytorchReader(const fs::path& path) : path_(path), zip_(path) {
    // All entries lie in one folder. It is named after the file as it was
    // called when it was written.
    for (const auto& [name, entry] : zip_.entries())
      if (name.ends_with("/data.pkl")) folder_ = name.substr(0, name.size() - 8);
    if (folder_.empty()) fail(ErrorCode::corrupt, "it has no data.pkl");
    if (zip_.entries().contains(folder_ + "byteorder")) {
      const auto order = zip_.read(folder_ + "byteorder");
      if (std::string_view(reinterpret_cast<const char*>(order.data()), order.size()) != "little")
        fail(ErrorCode::unsupported, "its bytes are not little-endian");
    }
  }

  std::vector<LoadedTensor> read() {
    const Pickle pickle = read_pickle(zip_.read(folder_ + "data.pkl"), path_.string());
    walk(pickle.root, "", 0);
    if (tensors_.empty()) fail(ErrorCode::unsupported, "it holds no tensors by name");
    return std::move(tensors_);
  }

 private:
  [[noreturn]] void fail(ErrorCode code, const std::string& what) const {
    throw Error(code, "checkpoint", fmt::format("{}: {}", path_.string(), what),
                "a state dict: torch.save(model.state_dict(), path)");
  }

  void walk(PickleValue value, const std::string& name, int depth) {
    if (depth > kDeepest)
      fail(ErrorCode::corrupt, fmt::format("'{}...' is nested too deep", name.substr(0, 100)));
    if (value->kind == Kind::dict) return walk_entries(*value, name, depth);
    if (value->kind != Kind::object) return;
    if (value->text == kRebuildFromType) {
      PickleNode inner;
      inner.kind = Kind::object;
      inner.text = argument(*value, 0)->text;
      inner.arguments = argument(*value, 2);
      return walk(&inner, name, depth + 1);
    }
    if (value->text == "torch._utils._rebuild_parameter" ||
        value->text == "torch._utils._rebuild_parameter_with_state")
      return walk(argument(*value, 0), name, depth + 1);
    if (value->text == "torch._utils._rebuild_tensor_v2" ||
        value->text == "torch._utils._rebuild_tensor_v3" ||
        value->text == "torch._utils._rebuild_tensor")
      return add(*value, name);
    if (value->text.starts_with("torch._utils._rebuild"))
      fail(ErrorCode::unsupported, fmt::format("'{}' is not a plain tensor", name));
    walk_entries(*value, name, depth);  // This may be a class of dicts.
    if (value->state != nullptr && value->state->kind == Kind::dict)
      walk_entries(*value->state, name, depth);  // This is a module.
  }

  void walk_entries(const PickleNode& dict, const std::string& name, int depth) {
    if ((visited_ += dict.entries.size()) > kMostVisits)
      fail(ErrorCode::corrupt, "its dicts contain each other");
    for (const auto& [key, value] : dict.entries) {
      if (key->kind == Kind::object) continue;  // An optimizer's state is by parameter.
      std::string part = key->kind == Kind::integer ? std::to_string(key->integer) : key->text;
      walk(value, name.empty() ? part : name + "." + part, depth + 1);
    }
  }

  PickleValue argument(const PickleNode& object, size_t index) const {
    if (object.arguments == nullptr || index >= object.arguments->items.size())
      fail(ErrorCode::corrupt, "a tensor lacks an argument");
    return object.arguments->items[index];
  }

  std::vector<int64_t> numbers(const PickleNode& list) const {
    std::vector<int64_t> values;
    if (list.kind != Kind::list || list.items.size() > kMostDims)
      fail(ErrorCode::corrupt, "a tensor has no shape");
    for (const PickleValue item : list.items) {
      if (item->kind != Kind::integer || item->integer < 0)
        fail(ErrorCode::corrupt, "a tensor has an impossible shape");
      values.push_back(item->integer);
    }
    return values;
  }

  plan::DType type_of(const PickleNode& tensor, const PickleNode& storage,
                      const std::string& name) const {
    const auto is = [](const PickleNode& global, std::string_view module, std::string_view each) {
      return global.text == std::string(module).append(each);
    };
    for (const auto& [storage_name, dtype] : kStorages)
      if (is(storage, "torch.", storage_name) || is(storage, "torch.storage.", storage_name))
        return dtype;
    for (const auto& [storage_name, dtype] : kStoragesOfModules)
      if (is(storage, "torch.", storage_name)) return dtype;
    const bool is_of_bytes =
        is(storage, "torch.", kUntypedStorage) || is(storage, "torch.storage.", kUntypedStorage);
    if (!is_of_bytes)
      fail(ErrorCode::unsupported, fmt::format("'{}' lies in a {}", name, storage.text));
    const PickleNode& named = *argument(tensor, 6);
    for (const auto& [storage_name, dtype] : kStoragesOfModules)
      if (is(named, "torch.", plan::to_string(dtype))) return dtype;
    fail(ErrorCode::unsupported, fmt::format("'{}' has the type {}", name, named.text));
  }

  // torch._utils._rebuild_tensor_v2(storage, offset, size, stride, ...), or
  // _rebuild_tensor_v3(storage, offset, size, stride, requires_grad, hooks, dtype, ...)
  void add(const PickleNode& tensor, const std::string& name) {
    if (!names_.insert(name).second) return;
    const PickleNode& reference = *argument(tensor, 0);
    if (reference.kind != Kind::persistent || reference.arguments == nullptr ||
        reference.arguments->items.size() < 3)
      fail(ErrorCode::corrupt, fmt::format("'{}' has no storage", name));
    const PickleNode &type = *reference.arguments->items[1], &key = *reference.arguments->items[2];
    LoadedTensor loaded{{name, numbers(*argument(tensor, 2)), type_of(tensor, type, name)}, {}};
    const Place place{key.text, argument(tensor, 1)->integer, numbers(*argument(tensor, 3)),
                      loaded.spec.shape, loaded.spec.dtype};
    if (loaded.spec.elements() > 0)
      if (const auto [first, is_new] = places_.emplace(place, name); !is_new)
        loaded.tied_to = first->second;
    const auto storage = storage_of(key.text);
    const PickleNode& offset = *argument(tensor, 1);
    if (offset.kind != Kind::integer || offset.integer < 0)
      fail(ErrorCode::corrupt, fmt::format("'{}' starts outside its storage", name));
    gather(*storage, offset.integer, numbers(*argument(tensor, 3)), loaded);
    tensors_.push_back(std::move(loaded));
  }

  // Returns a storage; tensors that share it read it only once.
  std::shared_ptr<const std::vector<std::byte>> storage_of(const std::string& key) {
    if (key != last_key_ || !last_storage_) {
      last_storage_ = std::make_shared<std::vector<std::byte>>(zip_.read(folder_ + "data/" + key));
      last_key_ = key;
    }
    return last_storage_;
  }

  // Copies the elements that shape, stride and offset select, after a check
  // that all of them exist.
  void gather(const std::vector<std::byte>& storage, int64_t offset,
              const std::vector<int64_t>& strides, LoadedTensor& tensor) {
    const std::vector<int64_t>& shape = tensor.spec.shape;
    const auto lies = [&] {
      fail(ErrorCode::corrupt, fmt::format("'{}' is larger than its storage", tensor.spec.name));
    };
    if (strides.size() != shape.size()) lies();
    const int64_t width = plan::bytes_of(tensor.spec.dtype),
                  elements = static_cast<int64_t>(storage.size()) / width;
    if (std::ranges::find(shape, 0) != shape.end()) return;
    int64_t count = 1, last = offset, contiguous = 1, bytes = 0;
    bool is_contiguous = true;
    for (size_t dim = shape.size(); dim-- > 0;) {
      int64_t reach = 0;
      if (__builtin_mul_overflow(count, shape[dim], &count)) lies();
      if (__builtin_mul_overflow(shape[dim] - 1, strides[dim], &reach) ||
          __builtin_add_overflow(last, reach, &last))
        lies();
      is_contiguous &= shape[dim] == 1 || strides[dim] == contiguous;
      contiguous *= shape[dim];
    }
    if (last >= elements || __builtin_mul_overflow(count, width, &bytes)) lies();
    if ((gathered_ += static_cast<uint64_t>(bytes)) > kMostExpansion * zip_bytes())
      lies();  // Strides of 0 repeat elements.
    tensor.bytes.resize(static_cast<size_t>(bytes));
    if (is_contiguous) {
      std::memcpy(tensor.bytes.data(), storage.data() + offset * width, tensor.bytes.size());
      return;
    }
    std::vector<int64_t> index(shape.size(), 0);
    int64_t from = offset;
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(tensor.bytes.data() + i * width, storage.data() + from * width,
                  static_cast<size_t>(width));
      for (size_t dim = shape.size(); dim-- > 0;) {
        from += strides[dim];
        if (++index[dim] < shape[dim]) break;
        from -= shape[dim] * strides[dim];
        index[dim] = 0;
      }
    }
  }

  uint64_t zip_bytes() const {
    uint64_t bytes = 1 << 20;
    for (const auto& [name, entry] : zip_.entries()) bytes += entry.bytes;
    return bytes;
  }

  // Storage, offset, strides, shape and type.
  using Place =
      std::tuple<std::string, int64_t, std::vector<int64_t>, std::vector<int64_t>, plan::DType>;
  std::map<Place, std::string> places_;
  static constexpr uint64_t kMostExpansion = 64, kMostVisits = 1 << 20;
  fs::path path_;
  ZipReader zip_;
  std::string folder_;
  std::vector<LoadedTensor> tensors_;
  std::set<std::string> names_;
  std::string last_key_;
  std::shared_ptr<std::vector<std::byte>> last_storage_;
  uint64_t visited_ = 0, gathered_ = 0;
};

}  // namespace

std::vector<LoadedTensor> read_pytorch(const fs::path& path) { return PytorchReader(path).read(); }

}  // namespace trireme::checkpoint
