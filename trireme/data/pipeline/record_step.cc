// The stage from a record to tensors, by a function of the user's own.
#include <ATen/core/Tensor.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/data/pipeline/functions.h>
#include <trireme/data/pipeline/own_call.h>
#include <trireme/data/pipeline/program.h>
#include <trireme/tensor/replica_random.h>
#include <functional>
#include <utility>

namespace trireme::data {
namespace {

constexpr uint64_t kOfRecord = 0x7265636f7264;  // It stands for the seed of a run.

// A function may return a view of a field, whose bytes the next record replaces.
void copy_view_of_record(at::Tensor& tensor, const records::Record& record) {
  if (!tensor.defined() || !tensor.is_cpu() || !tensor.has_storage()) return;
  const auto* const begin = static_cast<const std::byte*>(tensor.storage().data());
  const std::less<> before;
  for (const records::Field& field : record.fields)
    if (!field.bytes.empty() && !before(begin, field.bytes.data()) &&
        before(begin, field.bytes.data() + field.bytes.size())) {
      tensor = tensor.clone();
      return;
    }
}

class RecordStep {
 public:
  RecordStep(const Stage& stage, bool is_padded)
      : function_(find_decode(stage.word("function"))),
        name_(name_with_function(stage)),
        shape_(*decoded_shape({stage})),
        is_padded_(is_padded) {}

  Example operator()(const records::Record& record, int64_t index) const {
    Example made = call(record, index);
    for (at::Tensor* const tensor : {&made.data, &made.target}) {
      if (!tensor->defined())
        refuse(fmt::format("the function gave no {}", tensor == &made.data ? "data" : "target"),
               "an Example with data and target");
      copy_view_of_record(*tensor, record);
    }
    for (auto& [name, tensor] : made.more) copy_view_of_record(tensor, record);
    require_shape(made.data.sizes());
    return made;
  }

 private:
  // LibTorch's operations that draw random numbers give the same ones in every epoch.
  Example call(const records::Record& record, int64_t index) const {
    return call_own(
        name_,
        "a function that takes this record, or that throws Error(corrupt) for a damaged one", [&] {
          const ReplicaRandom numbers(mix64(kOfRecord, static_cast<uint64_t>(index)));
          return function_(record, index);
        });
  }

  void require_shape(at::IntArrayRef sizes) const {
    bool fits = sizes.size() == shape_.size();
    for (size_t i = 0; fits && i < shape_.size(); ++i)
      fits = is_padded_ && i == 0 ? sizes[i] <= shape_[i] : sizes[i] == shape_[i];
    if (fits) return;
    refuse(
        fmt::format("the data has the shape [{}], and the stage says {}{}", fmt::join(sizes, ", "),
                    fmt::join(shape_, ":"), is_padded_ ? " at most" : ""),
        fmt::format("shape={}, if all samples have it", fmt::join(sizes, ":")));
  }

  [[noreturn]] void refuse(const std::string& what, const std::string& remedy) const {
    throw Error(ErrorCode::invalid_argument, "data", fmt::format("{}: {}", name_, what), remedy);
  }

  DecodeFunction function_;
  std::string name_;
  std::vector<int64_t> shape_;
  bool is_padded_;
};

}  // namespace

DecodeFunction make_record_step(const Stage& stage, bool is_padded) {
  return RecordStep(stage, is_padded);
}

}  // namespace trireme::data
