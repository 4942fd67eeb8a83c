// Reads a header event by event. Anything invalid is refused where it stands, so a hostile header
// costs no memory beyond its own size.
#include <trireme/checkpoint/safetensors_header.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/json.h>
#include <trireme/checkpoint/safetensors_dtype.h>
#include <algorithm>
#include <limits>
#include <unordered_set>

namespace trireme::checkpoint {
namespace {

constexpr size_t kMaxDims = 64;  // LibTorch's own limit.

// Returns a name for a message: escaped, and shortened if the file has a very long one.
std::string shown(const std::string& name) {
  return Json(name.substr(0, 100)).dump(-1, ' ', true, Json::error_handler_t::replace);
}

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::corrupt, "checkpoint", fmt::format("{} is damaged: {}", where, what),
              "an older checkpoint or a fresh copy");
}

// Returns the number of bytes of a tensor of this shape. The result is empty if the number exceeds
// 63 bits, or if the strides do (for a shape with zeros).
std::optional<uint64_t> checked_bytes(const plan::TensorSpec& spec) {
  int64_t extent = plan::bytes_of(spec.dtype);
  bool empty = false;
  for (const int64_t size : spec.shape) {
    empty |= size == 0;
    if (__builtin_mul_overflow(extent, std::max<int64_t>(size, 1), &extent)) return {};
  }
  return empty ? 0 : static_cast<uint64_t>(extent);
}

class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(const std::string& where) : where_(where) {}
  SafetensorsHeader take() { return std::move(header_); }

  bool start_object(size_t) override {
    if (at_ == At::start) {
      at_ = At::root;
    } else if (at_ == At::root) {
      at_ = name_ == "__metadata__" ? At::metadata : At::tensor;
      tensor_ = {};
      tensor_.spec.name = name_;
      dtype_.clear();
      offsets_.clear();
      fields_.clear();
    } else {
      misplaced("an object");
    }
    return true;
  }

  bool key(string_t& key) override {
    if (at_ == At::root) {
      if (!names_.insert(key).second) fail(where_, "two tensors are called " + shown(key));
      name_ = key;
    } else if (at_ == At::tensor) {
      if (key != "dtype" && key != "shape" && key != "data_offsets")
        fail(where_, fmt::format("{} has a field {}", shown(name_), shown(key)));
      if (std::find(fields_.begin(), fields_.end(), key) != fields_.end())
        fail(where_, fmt::format("{} has the field {} twice", shown(name_), key));
      fields_.push_back(key);
    } else if (header_.metadata.contains(key)) {
      fail(where_, fmt::format("its metadata has {} twice", shown(key)));
    } else {
      metadata_key_ = key;
    }
    return true;
  }

  bool string(string_t& text) override {
    if (at_ == At::metadata)
      header_.metadata.emplace(metadata_key_, text);
    else if (at_ == At::tensor && fields_.back() == "dtype")
      dtype_ = text;
    else
      misplaced("the text " + shown(text));
    return true;
  }

  bool start_array(size_t) override {
    if (at_ == At::tensor && fields_.back() == "shape")
      at_ = At::shape;
    else if (at_ == At::tensor && fields_.back() == "data_offsets")
      at_ = At::offsets;
    else
      misplaced("a list");
    return true;
  }

  bool number_unsigned(number_unsigned_t number) override {
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      misplaced(fmt::format("the huge number {}", number));
    if (at_ == At::shape && tensor_.spec.shape.size() < kMaxDims)
      tensor_.spec.shape.push_back(static_cast<int64_t>(number));
    else if (at_ == At::offsets && offsets_.size() < 2)
      offsets_.push_back(number);
    else
      misplaced(fmt::format("the number {}", number));
    return true;
  }

  bool end_array() override {
    at_ = At::tensor;
    return true;
  }

  bool end_object() override {
    if (at_ == At::tensor) finish_tensor();
    at_ = at_ == At::root ? At::end : At::root;
    return true;
  }

  bool null() override { misplaced("null"); }
  bool boolean(bool) override { misplaced("a truth value"); }
  bool number_integer(number_integer_t number) override {
    misplaced(fmt::format("the negative number {}", number));
  }
  bool number_float(number_float_t, const string_t& text) override {
    misplaced("the number " + shown(text));
  }
  bool binary(binary_t&) override { misplaced("binary data"); }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    fail(where_, fmt::format("its header is no JSON at byte {}", position));
  }

 private:
  enum class At { start, root, metadata, tensor, shape, offsets, end };

  [[noreturn]] void misplaced(const std::string& what) const {
    fail(where_, fmt::format("its header has {} where none belongs, near {}", what, shown(name_)));
  }

  void finish_tensor() {
    if (fields_.size() != 3 || offsets_.size() != 2)
      fail(where_, shown(name_) + " lacks its dtype, its shape or its two offsets");
    const auto dtype = dtype_of_safetensors(dtype_);
    if (!dtype)
      throw Error(ErrorCode::unsupported, "checkpoint",
                  fmt::format("{}: {} has the dtype {}", where_, shown(name_), shown(dtype_)),
                  "bool, integers of 8 to 64 bits, bfloat16, or floating-point numbers of 8 to 64 "
                  "bits");
    tensor_.spec.dtype = *dtype;
    tensor_.begin = offsets_[0];
    tensor_.end = offsets_[1];
    const auto bytes = checked_bytes(tensor_.spec);
    if (!bytes)
      fail(where_, fmt::format("{} has the impossible shape [{}]", shown(name_),
                               fmt::join(tensor_.spec.shape, ", ")));
    if (tensor_.begin > tensor_.end || tensor_.end - tensor_.begin != *bytes)
      fail(where_, fmt::format("{} needs {} bytes, its offsets are {} and {}", shown(name_),
                               *bytes, tensor_.begin, tensor_.end));
    header_.tensors.push_back(std::move(tensor_));
  }

  const std::string& where_;
  SafetensorsHeader header_;
  At at_ = At::start;
  std::unordered_set<std::string> names_;
  std::string name_, metadata_key_, dtype_;  // The entry that is being read.
  std::vector<std::string> fields_;
  std::vector<uint64_t> offsets_;
  HeaderTensor tensor_;
};

void require_cover(const std::vector<HeaderTensor>& tensors, uint64_t data_bytes,
                   const std::string& where) {
  uint64_t covered = 0;
  for (const HeaderTensor& tensor : tensors) {
    if (tensor.begin != covered)
      fail(where, fmt::format("{} starts at byte {} of the data, the tensor before it ends at {}",
                              shown(tensor.spec.name), tensor.begin, covered));
    covered = tensor.end;
  }
  if (covered != data_bytes)
    fail(where, fmt::format("its tensors take {} bytes, {} are there", covered, data_bytes));
}

}  // namespace

SafetensorsHeader parse_header(std::string_view json, uint64_t data_bytes,
                               const std::string& where) {
  if (!json.starts_with('{')) fail(where, "its header does not start with {");
  HeaderReader reader(where);
  nlohmann::json::sax_parse(json, &reader);
  SafetensorsHeader header = reader.take();
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const HeaderTensor& a, const HeaderTensor& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  require_cover(header.tensors, data_bytes, where);
  return header;
}

}  // namespace trireme::checkpoint
