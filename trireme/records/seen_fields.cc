#include <trireme/records/seen_fields.h>

#include <trireme/base/error.h>
#include <algorithm>
#include <exception>

namespace trireme::records {
namespace {

constexpr int64_t kLooks = 16;

FieldSpec spec_of(const Field& field) {
  FieldSpec spec{.name = std::string(field.name), .dtype = field.dtype, .encoded = field.encoded};
  if (!field.encoded) spec.shape.emplace(field.shape.begin(), field.shape.end());
  return spec;
}

void merge_shape(const Field& field, FieldSpec& spec) {
  if (spec.shape && !std::ranges::equal(*spec.shape, field.shape)) spec.shape.reset();
}

}  // namespace

std::vector<FieldSpec> seen_fields(const Reader& reader, int64_t count, SeenIn in) {
  const int64_t looks = std::min(kLooks, count);
  std::vector<FieldSpec> specs;
  std::exception_ptr failure;
  bool has_read = false;
  Record record;
  for (int64_t i = 0; i < looks; ++i) {
    try {
      reader.read(i * (count - 1) / std::max<int64_t>(1, looks - 1), record);
    } catch (const Error&) {
      if (!failure) failure = std::current_exception();
      continue;
    }
    for (const Field& field : record.fields) {
      const auto known = std::ranges::find(specs, field.name, &FieldSpec::name);
      if (known != specs.end())
        merge_shape(field, *known);
      else if (!has_read || in == SeenIn::any)
        specs.push_back(spec_of(field));
    }
    if (in == SeenIn::all)
      std::erase_if(specs, [&](const FieldSpec& spec) { return !record.find(spec.name); });
    has_read = true;
  }
  if (!has_read && failure) std::rethrow_exception(failure);
  return specs;
}

}  // namespace trireme::records
