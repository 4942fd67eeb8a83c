#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <trireme/base/error.h>
#include <trireme/checkpoint/tensor_file.h>
#include <trireme/comm/dtype.h>
#include <trireme/parallel/load_weights.h>
#include <trireme/parallel/module_state.h>
#include <trireme/tensor/hollow.h>
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>

namespace trireme {
namespace {

constexpr size_t kMostNamed = 8;  // In a message.

std::string listed_names(const std::vector<std::string>& names) {
  const std::vector<std::string> first(
      names.begin(), names.begin() + static_cast<long>(std::min(names.size(), kMostNamed)));
  std::string text = fmt::format("{}", fmt::join(first, ", "));
  if (names.size() > first.size())
    text += fmt::format(" and {} more", names.size() - first.size());
  return text;
}

// The tensors of a file beside those of a model.
class WeightsMatch {
 public:
  WeightsMatch(const torch::nn::Module& module, const std::filesystem::path& path,
               const checkpoint::TensorFile& file, const WeightsOptions& options)
      : path_(path), options_(options), state_(state_of(module)) {
    read_names(file);
    for (const auto* const tensors : {&state_.parameters, &state_.buffers})
      for (const NamedTensor& own : *tensors) match(own);
    for (const auto& [name, index] : by_name_)
      if (!used_.contains(name)) note_unexpected(name);
    refuse();
  }

  LoadedWeights write() {
    const at::NoGradGuard no_grad;
    std::vector<std::byte> memory;
    for (const auto& [own, index] : pairs_) {
      const checkpoint::StoredTensor& stored = all_[index];
      // Nothing reads the values for a tensor that another rank owns. The copy still takes place,
      // because all ranks' operations have to be the same while a model is made.
      std::span<const std::byte> bytes;
      if (!is_hollow(own.tensor)) bytes = checkpoint::assemble(stored, memory);
      // from_blob() has no const version; nothing writes to it.
      const at::Tensor view =
          at::from_blob(const_cast<std::byte*>(bytes.data()), stored.spec.shape,
                        at::TensorOptions(to_torch(stored.spec.dtype)));
      own.tensor.copy_(view);
    }
    return std::move(result_);
  }

 private:
  void read_names(const checkpoint::TensorFile& file) {
    all_ = checkpoint::all_tensors(file);
    std::vector<std::string> names;
    for (const auto& tensor : all_) names.push_back(tensor.spec.name);
    const auto renamed = checkpoint::renamed({options_.rename, options_.drop}, names);
    for (size_t i = 0; i < all_.size(); ++i)
      if (renamed[i]) by_name_[*renamed[i]] = i;
  }

  static bool is_same(const checkpoint::StoredTensor& a, const checkpoint::StoredTensor& b) {
    if (a.spec.describe() != b.spec.describe()) return false;
    std::vector<std::byte> memory_of_a, memory_of_b;
    return std::ranges::equal(checkpoint::assemble(a, memory_of_a),
                              checkpoint::assemble(b, memory_of_b));
  }

  // A tied weight may have another of its names in the file, or several.
  std::optional<size_t> find(const std::string& name) {
    std::optional<size_t> found;
    const auto look = [&](const std::string& each) {
      const auto at = by_name_.find(each);
      if (at == by_name_.end()) return;
      used_.insert(each);
      if (!found)
        found = at->second;
      else if (!is_same(all_[*found], all_[at->second]))
        wrong_.push_back(
            fmt::format("{} has other values than {} in the file, and both are one "
                        "tensor of the model",
                        each, all_[*found].spec.name));
    };
    look(name);
    for (const auto& [alias, first] : state_.aliases)
      if (first == name) look(alias);
    return found;
  }

  void match(const NamedTensor& own) {
    const auto index = find(own.name);
    if (!index) {
      result_.missing.push_back(own.name);
      if (!checkpoint::matches_any(options_.allow_missing, own.name)) missing_.push_back(own.name);
      return;
    }
    const plan::TensorSpec& stored = all_[*index].spec;
    const auto own_type = own.tensor.scalar_type();
    const bool is_shape_equal = own.tensor.sizes() == at::IntArrayRef(stored.shape);
    const bool converts =
        at::isFloatingType(own_type) && at::isFloatingType(to_torch(stored.dtype));
    if (!is_shape_equal || (own_type != to_torch(stored.dtype) && !converts)) {
      wrong_.push_back(fmt::format("{} is {} in the model and {} in the file", own.name,
                                   specs_of({own})[0].describe(), stored.describe()));
      return;
    }
    pairs_.emplace_back(own, *index);
    result_.loaded.push_back(own.name);
  }

  void note_unexpected(const std::string& name) {
    result_.unexpected.push_back(name);
    if (!checkpoint::matches_any(options_.allow_unexpected, name)) unexpected_.push_back(name);
  }

  void refuse() const {
    std::vector<std::string> reasons;
    if (!missing_.empty()) reasons.push_back("the file lacks " + listed_names(missing_));
    if (!unexpected_.empty()) reasons.push_back("the model lacks " + listed_names(unexpected_));
    if (!wrong_.empty()) reasons.push_back(listed_names(wrong_));
    if (reasons.empty()) return;
    throw Error(
        ErrorCode::invalid_argument, "parallel",
        fmt::format("{} does not fit the model: {}", path_.string(), fmt::join(reasons, "; ")),
        "WeightsOptions: rename or drop for other names, allow_missing for new layers, "
        "allow_unexpected for old ones");
  }

  const std::filesystem::path& path_;
  const WeightsOptions& options_;
  const ModuleState state_;
  std::vector<checkpoint::StoredTensor> all_;
  std::map<std::string, size_t> by_name_;
  std::set<std::string> used_;
  std::vector<std::pair<NamedTensor, size_t>> pairs_;
  std::vector<std::string> missing_, unexpected_, wrong_;
  LoadedWeights result_;
};

}  // namespace

LoadedWeights load_weights(torch::nn::Module& module, const std::filesystem::path& path,
                           const WeightsOptions& options) {
  const checkpoint::TensorFile file = checkpoint::open_tensors(path);
  return WeightsMatch(module, path, file, options).write();
}

WeightsFile::WeightsFile(const std::filesystem::path& path, WeightsOptions options)
    : path_(path),
      options_(std::move(options)),
      file_(std::make_unique<checkpoint::TensorFile>(checkpoint::open_tensors(path))) {
  if (!file_->loaded.empty()) file_.reset();
}
WeightsFile::~WeightsFile() = default;

LoadedWeights WeightsFile::write_to(torch::nn::Module& module) const {
  if (file_) return WeightsMatch(module, path_, *file_, options_).write();
  const checkpoint::TensorFile loaded = checkpoint::open_tensors(path_);
  return WeightsMatch(module, path_, loaded, options_).write();
}

}  // namespace trireme
