#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/checkpoint/output_file.h>
#include <trireme/checkpoint/pytorch_file.h>
#include <trireme/checkpoint/pytorch_types.h>
#include <trireme/checkpoint/zip_archive.h>
#include <algorithm>
#include <optional>
#include <set>

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using Ties = std::map<std::string, std::string>;

// ---- Pickles ----

void put_number(std::string& pickle, uint64_t value, int size) {
  for (int i = 0; i < size; ++i) pickle += static_cast<char>(value >> (8 * i) & 0xff);
}
void put_text(std::string& pickle, std::string_view text) {
  pickle += 'X';
  put_number(pickle, text.size(), 4);
  pickle += text;
}
void put_integer(std::string& pickle, int64_t value) {
  pickle += "\x8a\x08";
  put_number(pickle, static_cast<uint64_t>(value), 8);
}
void put_global(std::string& pickle, std::string_view module, std::string_view name) {
  pickle.append("c").append(module).append("\n").append(name).append("\n");
}
void put_integers(std::string& pickle, const std::vector<int64_t>& values) {
  pickle += '(';
  for (const int64_t value : values) put_integer(pickle, value);
  pickle += 't';
}
void put_boolean(std::string& pickle, bool value) { pickle += value ? '\x88' : '\x89'; }

// The name of a type's storage in one of the tables; empty: it has none there.
template <typename Table>
std::string_view storage_in(const Table& table, plan::DType dtype) {
  const auto* const found = std::find_if(std::begin(table), std::end(table),
                                         [&](const auto& each) { return each.second == dtype; });
  return found == std::end(table) ? std::string_view{} : found->first;
}

// `type` is the name of the storage's type in `module`.
void put_storage(std::string& pickle, size_t number, std::string_view module,
                 std::string_view type, int64_t elements) {
  pickle += '(';
  put_text(pickle, "storage");
  put_global(pickle, module, type);
  put_text(pickle, std::to_string(number));
  put_text(pickle, "cpu");
  put_integer(pickle, elements);
  pickle += "tQ";
}

// The arguments behind the storage that Python and C++ have in common.
void put_form(std::string& pickle, const plan::TensorSpec& spec, bool requires_grad) {
  put_integer(pickle, 0);
  put_integers(pickle, spec.shape);
  std::vector<int64_t> strides(spec.shape.size(), 1);
  for (size_t dim = strides.size(); dim-- > 1;)
    strides[dim - 1] = strides[dim] * std::max<int64_t>(spec.shape[dim], 1);
  put_integers(pickle, strides);
  put_boolean(pickle, requires_grad);
  put_global(pickle, "collections", "OrderedDict");
  pickle += ")R";
}

// A tensor of a state dict, as Python reads it.
void put_tensor(std::string& pickle, const plan::TensorSpec& spec, size_t number) {
  const std::string_view storage = storage_in(kStorages, spec.dtype);
  const bool in_bytes = storage.empty();
  put_global(pickle, "torch._utils", in_bytes ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
  pickle += '(';
  if (in_bytes)
    put_storage(pickle, number, "torch.storage", kUntypedStorage, spec.bytes());
  else
    put_storage(pickle, number, "torch", storage, spec.elements());
  put_form(pickle, spec, false);
  if (in_bytes) put_global(pickle, "torch", plan::to_string(spec.dtype));
  pickle += "tR";
}

// ---- Files ----

std::span<const std::byte> bytes_of_text(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// [tensor]: the tensor in whose storage it lies.
std::vector<size_t> storages_of(const std::vector<plan::TensorSpec>& tensors, const Ties& ties) {
  std::vector<size_t> storages(tensors.size());
  std::map<std::string_view, size_t> numbers;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto tie = ties.find(tensors[i].name);
    const auto first = tie != ties.end() ? numbers.find(tie->second) : numbers.end();
    storages[i] = first != numbers.end() ? first->second : i;
    numbers[tensors[i].name] = storages[i];
  }
  return storages;
}

// `texts` are entries by their names in the archive's folder.
void write_file(const fs::path& path,
                const std::vector<std::pair<std::string_view, std::string>>& texts,
                const std::vector<size_t>& storages, const BytesOf& bytes_of_tensor) {
  write_whole_file(path, [&](OutputFile& file) {
    ZipWriter zip(file);
    for (const auto& [name, text] : texts)
      zip.add(fmt::format("archive/{}", name), bytes_of_text(text));
    zip.add("archive/byteorder", bytes_of_text("little"));
    for (size_t i = 0; i < storages.size(); ++i)
      if (storages[i] == i) zip.add(fmt::format("archive/data/{}", i), bytes_of_tensor(i));
    zip.add("archive/version", bytes_of_text("3\n"));
    zip.finish();
  });
}

// ---- Archives of modules ----

// The modules that the names of tensors ask for, and the TorchScript and the pickle that describe
// them. LibTorch reads the attributes of a module from its class, which is source text.
class ModuleTree {
 public:
  ModuleTree(const std::vector<plan::TensorSpec>& tensors, const std::vector<std::string>& modules)
      : tensors_(tensors) {
    add("");
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto [parent, name] = parts_of(tensors[i].name);
      nodes_[add(parent)].tensors.emplace_back(name, i);
    }
    for (const std::string& module : modules) add(module);
    for (const plan::TensorSpec& tensor : tensors)
      if (numbers_.contains(tensor.name))
        refuse(tensor.name, "is the name of a tensor and of a module");
    for (size_t node = 0; node < nodes_.size(); ++node) fill(node);
  }

  std::string classes() const {
    std::string text;
    for (size_t node = 0; node < nodes_.size(); ++node) {
      std::string parameters, buffers, types;
      for (const auto& [name, tensor] : nodes_[node].tensors) {
        (is_parameter(tensor) ? parameters : buffers) += fmt::format("\"{}\", ", name);
        types += fmt::format("  __annotations__[\"{}\"] = Tensor\n", name);
      }
      for (const auto& [name, child] : nodes_[node].modules)
        types += fmt::format("  __annotations__[\"{}\"] = __torch__.Module{}\n", name, child);
      text += fmt::format(
          "class Module{}(Module):\n  __parameters__ = [{}]\n  __buffers__ = [{}]\n"
          "  {} : bool\n{}",
          node, parameters, buffers, kTraining, types);
    }
    return text;
  }

  std::string pickle(const std::vector<size_t>& storages) const {
    std::string text = "\x80\x02";
    std::set<size_t> known;
    put_module(text, 0, storages, known);
    return text + ".";
  }

 private:
  struct Node {
    std::string path;
    std::vector<std::pair<std::string, size_t>> tensors, modules;  // By name.
  };
  static constexpr std::string_view kTraining = "training";  // Each module of LibTorch has it.
  static constexpr size_t kDeepestName = 60;                 // The reader's limit is 64.

  [[noreturn]] static void refuse(const std::string& name, const std::string& what) {
    throw Error(ErrorCode::unsupported, "checkpoint",
                fmt::format("'{}' {}, which no archive of a module can have", name, what),
                "another name for it (--rename)");
  }

  static std::pair<std::string, std::string> parts_of(const std::string& path) {
    const size_t dot = path.rfind('.');
    std::string name = path.substr(dot == std::string::npos ? 0 : dot + 1);
    if (name.empty() || dot == 0 || name == kTraining)
      refuse(path, "has a part that is empty or 'training'");
    for (const char each : name)
      if (each == '"' || each == '\\' || static_cast<unsigned char>(each) < ' ')
        refuse(path, "has a quote, a backslash or a control character");
    if (static_cast<size_t>(std::count(path.begin(), path.end(), '.')) > kDeepestName)
      refuse(path, "has too many dots");
    return {dot == std::string::npos ? "" : path.substr(0, dot), std::move(name)};
  }

  // The number of a module; it and those above it are made if they are not there.
  size_t add(const std::string& path) {
    if (const auto found = numbers_.find(path); found != numbers_.end()) return found->second;
    std::optional<size_t> parent;
    std::string name;
    if (!path.empty()) {
      auto [above, own] = parts_of(path);
      parent = add(above);
      name = std::move(own);
    }
    const size_t number = nodes_.size();
    nodes_.push_back({path, {}, {}});
    numbers_[path] = number;
    if (parent) nodes_[*parent].modules.emplace_back(std::move(name), number);
    return number;
  }

  // Lists have children without tensors too, such as a ReLU. LibTorch asks for each. A module
  // whose tensor has such a number is no list.
  void fill(size_t node) {
    size_t count = 0;
    bool is_list = true;
    for (const auto& [name, child] : nodes_[node].modules) {
      const bool is_number =
          name.size() < 5 && name.find_first_not_of("0123456789") == std::string::npos;
      is_list &= is_number;
      if (is_number) count = std::max(count, static_cast<size_t>(std::stoul(name)) + 1);
    }
    const std::string path = nodes_[node].path;
    for (size_t i = 0; i < count; ++i)
      if (!has_tensor(node, std::to_string(i)))
        add(path.empty() ? std::to_string(i) : fmt::format("{}.{}", path, i));
    if (is_list)
      std::ranges::sort(nodes_[node].modules, {},
                        [](const auto& child) { return std::stoul(child.first); });
  }

  bool has_tensor(size_t node, std::string_view name) const {
    return std::ranges::any_of(nodes_[node].tensors,
                               [&](const auto& tensor) { return tensor.first == name; });
  }

  // A state dict does not tell parameters from buffers. LibTorch takes either for either.
  bool is_parameter(size_t tensor) const {
    const std::string& name = tensors_[tensor].name;
    const std::string_view type = plan::to_string(tensors_[tensor].dtype);
    return (type.find("float") != std::string_view::npos || type.starts_with("complex")) &&
           !name.ends_with("running_mean") && !name.ends_with("running_var");
  }

  // `known` has the storages that the pickle has named. C++ shares a storage only if a tensor
  // recalls it.
  void put_module(std::string& text, size_t node, const std::vector<size_t>& storages,
                  std::set<size_t>& known) const {
    put_global(text, "__torch__", fmt::format("Module{}", node));
    text += ")\x81}(";
    put_text(text, kTraining);
    put_boolean(text, true);
    for (const auto& [name, tensor] : nodes_[node].tensors) {
      const plan::TensorSpec& spec = tensors_[tensor];
      const size_t number = storages[tensor];
      put_text(text, name);
      put_global(text, "torch._utils", "_rebuild_tensor_v2");
      text += '(';
      const bool is_new = known.insert(number).second;
      if (is_new) {
        std::string_view type = storage_in(kStorages, spec.dtype);
        if (type.empty()) type = storage_in(kStoragesOfModules, spec.dtype);
        put_storage(text, number, "torch", type, spec.elements());
      }
      text += is_new ? 'r' : 'j';
      put_number(text, number, 4);
      put_form(text, spec, is_parameter(tensor));
      text += "tR";
    }
    for (const auto& [name, child] : nodes_[node].modules) {
      put_text(text, name);
      put_module(text, child, storages, known);
    }
    text += "ub";
  }

  const std::vector<plan::TensorSpec>& tensors_;
  std::vector<Node> nodes_;
  std::map<std::string, size_t> numbers_;
};

}  // namespace

void write_pytorch(const fs::path& path, const std::vector<TensorView>& tensors) {
  std::vector<plan::TensorSpec> specs;
  for (const TensorView& tensor : tensors) specs.push_back(tensor.spec);
  write_pytorch(path, specs, [&](size_t i) { return tensors[i].bytes; });
}

void write_pytorch(const fs::path& path, const std::vector<plan::TensorSpec>& tensors,
                   const BytesOf& bytes_of_tensor, const Ties& ties) {
  const std::vector<size_t> storages = storages_of(tensors, ties);
  std::string pickle = "\x80\x02";
  put_global(pickle, "collections", "OrderedDict");
  pickle += ")R(";
  for (size_t i = 0; i < tensors.size(); ++i) {
    put_text(pickle, tensors[i].name);
    put_tensor(pickle, tensors[i], storages[i]);
  }
  pickle += "u.";
  write_file(path, {{"data.pkl", pickle}}, storages, bytes_of_tensor);
}

void write_module_archive(const fs::path& path, const std::vector<plan::TensorSpec>& tensors,
                          const BytesOf& bytes_of_tensor, const Ties& ties,
                          const std::vector<std::string>& modules) {
  const std::vector<size_t> storages = storages_of(tensors, ties);
  const ModuleTree tree(tensors, modules);
  write_file(path,
             {{"data.pkl", tree.pickle(storages)},
              {"code/__torch__.py", tree.classes()},
              {"constants.pkl", "\x80\x02)."}},
             storages, bytes_of_tensor);
}

}  // namespace trireme::checkpoint
