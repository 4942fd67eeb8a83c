#include <trireme/data/pipeline/kept_tensors.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <trireme/data/sample_types.h>
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

namespace trireme::data {
namespace {

constexpr size_t kWord = sizeof(int64_t);
constexpr int64_t kMostTensors = 4096, kMostSizes = 64;

// The bytes of something in whole words.
size_t in_words(size_t bytes) { return (bytes + kWord - 1) / kWord * kWord; }

struct Named {
  std::string name;
  at::Tensor tensor;
};

std::vector<Named> named_tensors(const Example& example) {
  std::vector<Named> all{{"data", example.data}, {"target", example.target}};
  for (const auto& [name, tensor] : example.more) all.push_back({name, tensor});
  return all;
}

bool can_be_kept(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cpu() && tensor.layout() == at::kStrided &&
         tensor.dim() <= kMostSizes && !tensor.is_conj() && !tensor.is_neg() &&
         std::ranges::find(kSampleTypes, tensor.scalar_type()) != std::end(kSampleTypes);
}

void append(std::vector<std::byte>& all, const void* from, size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(from);
  all.insert(all.end(), begin, begin + bytes);
  all.resize(in_words(all.size()));
}

void append(std::vector<std::byte>& all, int64_t word) { append(all, &word, kWord); }

// Takes one thing after the other from bytes that may be anything.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : rest_(bytes) {}

  std::optional<int64_t> word(int64_t least, int64_t most) {
    int64_t value = 0;
    const auto bytes = take(kWord);
    if (!bytes) return std::nullopt;
    std::memcpy(&value, bytes->data(), kWord);
    return value >= least && value <= most ? std::optional(value) : std::nullopt;
  }
  std::optional<std::span<const std::byte>> take(size_t bytes) {
    if (bytes > rest_.size() || in_words(bytes) > rest_.size()) return std::nullopt;
    const auto taken = rest_.first(bytes);
    rest_ = rest_.subspan(in_words(bytes));
    return taken;
  }
  int64_t left() const { return std::ssize(rest_); }

 private:
  std::span<const std::byte> rest_;
};

struct Announced {
  std::string name;
  at::ScalarType type = at::kByte;
  std::vector<int64_t> sizes;
  size_t bytes = 0;
};

std::optional<Announced> announced_at(Cursor& cursor) {
  const auto type = cursor.word(0, std::size(kSampleTypes) - 1);
  const auto dims = type ? cursor.word(0, kMostSizes) : std::nullopt;
  if (!dims) return std::nullopt;
  Announced tensor{.type = kSampleTypes[*type]};
  auto bytes = static_cast<int64_t>(c10::elementSize(tensor.type));
  for (int64_t i = 0; i < *dims; ++i) {
    const int64_t most = cursor.left() / std::max<int64_t>(1, bytes);
    const auto size = cursor.word(0, most);
    if (!size) return std::nullopt;
    bytes *= *size;
    tensor.sizes.push_back(*size);
  }
  tensor.bytes = static_cast<size_t>(bytes);
  const auto length = cursor.word(0, cursor.left());
  const auto name = length ? cursor.take(static_cast<size_t>(*length)) : std::nullopt;
  if (!name) return std::nullopt;
  tensor.name.assign(reinterpret_cast<const char*>(name->data()), name->size());
  return tensor;
}

at::Tensor tensor_of(const Announced& announced, std::span<const std::byte> bytes, bool as_view) {
  // Nothing writes to a view.
  if (as_view)
    return at::from_blob(const_cast<std::byte*>(bytes.data()), announced.sizes, announced.type);
  at::Tensor own = at::empty(announced.sizes, announced.type);
  if (!bytes.empty()) std::memcpy(own.mutable_data_ptr(), bytes.data(), bytes.size());
  return own;
}

}  // namespace

std::vector<std::byte> bytes_of_left_out() {
  std::vector<std::byte> all;
  append(all, 0);
  return all;
}

std::vector<std::byte> bytes_of_tensors(const Example& example) {
  std::vector<std::byte> all;
  std::vector<Named> tensors = named_tensors(example);
  if (std::ssize(tensors) > kMostTensors) return {};
  append(all, std::ssize(tensors));
  size_t bytes = 0;
  for (auto& [name, tensor] : tensors) {
    if (!can_be_kept(tensor)) return {};
    tensor = tensor.contiguous();
    append(all, std::ranges::find(kSampleTypes, tensor.scalar_type()) - std::begin(kSampleTypes));
    append(all, tensor.dim());
    for (const int64_t size : tensor.sizes()) append(all, size);
    append(all, std::ssize(name));
    append(all, name.data(), name.size());
    bytes += in_words(tensor.nbytes());
  }
  all.reserve(all.size() + bytes);
  for (const auto& [name, tensor] : tensors)
    if (tensor.nbytes() > 0) append(all, tensor.const_data_ptr(), tensor.nbytes());
  return all;
}

std::optional<KeptTensors> tensors_in(std::span<const std::byte> bytes, bool as_views) {
  Cursor cursor(bytes);
  const auto count = cursor.word(0, kMostTensors);
  if (!count || *count == 1) return std::nullopt;  // A sample has data and a target.
  KeptTensors kept{.is_left_out = *count == 0, .example = {}};
  std::vector<Announced> announced;
  for (int64_t i = 0; i < *count; ++i) {
    auto tensor = announced_at(cursor);
    if (!tensor) return std::nullopt;
    announced.push_back(std::move(*tensor));
  }
  for (size_t i = 0; i < announced.size(); ++i) {
    const auto numbers = cursor.take(announced[i].bytes);
    if (!numbers) return std::nullopt;
    at::Tensor tensor = tensor_of(announced[i], *numbers, as_views);
    if (i < 2)
      (i == 0 ? kept.example.data : kept.example.target) = std::move(tensor);
    else
      kept.example.more.emplace(announced[i].name, std::move(tensor));
  }
  return kept;
}

}  // namespace trireme::data
