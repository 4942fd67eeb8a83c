#include "arrow_type.h"

#include <fmt/format.h>
#include <trireme/base/json.h>
#include <trireme/records/damage.h>
#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

namespace trireme::records {
namespace {

using plan::DType;
using Kind = ArrowType::Kind;

// Lists in lists. Deeper ones are no tensors.
constexpr int kMostLists = 8;

// The numbers by their letters in Arrow's C data interface. Times are numbers too.
std::optional<DType> number_of_format(std::string_view format) {
  static const std::map<std::string_view, DType> known{
      {"c", DType::int8},    {"C", DType::uint8},   {"s", DType::int16},   {"S", DType::uint16},
      {"i", DType::int32},   {"I", DType::uint32},  {"l", DType::int64},   {"L", DType::uint64},
      {"e", DType::float16}, {"f", DType::float32}, {"g", DType::float64}, {"tdD", DType::int32},
      {"tdm", DType::int64}, {"tts", DType::int32}, {"ttm", DType::int32}, {"ttu", DType::int64},
      {"ttn", DType::int64}, {"tDs", DType::int64}, {"tDm", DType::int64}, {"tDu", DType::int64},
      {"tDn", DType::int64}};
  if (const auto found = known.find(format); found != known.end()) return found->second;
  if (format.starts_with("ts")) return DType::int64;  // A time zone follows.
  return std::nullopt;
}

std::optional<Kind> text_of_format(std::string_view format) {
  if (format == "u" || format == "z") return Kind::text;
  if (format == "U" || format == "Z") return Kind::large_text;
  if (format == "vu" || format == "vz") return Kind::text_view;
  if (format.starts_with("w:")) return Kind::fixed_text;
  return std::nullopt;
}

int64_t size_of_format(std::string_view format) {
  const std::string_view text = format.substr(format.find(':') + 1);
  int64_t size = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error != std::errc{} || end != text.data() + text.size() || size < 0)
    throw Damage(fmt::format("the type '{}' has no size", format));
  return size;
}

Damage refused_type(const ArrowSchema& schema, std::string_view why = {}) {
  return Damage(
      fmt::format("its type, {}, has no field in a record{}", describe_arrow_type(schema), why),
      "the other columns alone (--column, or data.inputs and data.target)",
      ErrorCode::unsupported);
}

// A value of the metadata, which the C data interface lays out as counts and lengths.
std::string metadata_of(const ArrowSchema& schema, std::string_view wanted) {
  if (!schema.metadata) return {};
  const char* at = schema.metadata;
  const auto number = [&] {
    int32_t value = 0;
    std::memcpy(&value, at, sizeof value);
    at += sizeof value;
    return value;
  };
  const auto text = [&] {
    const int32_t bytes = number();
    const std::string_view view(at, static_cast<size_t>(bytes));
    at += bytes;
    return view;
  };
  for (int32_t left = number(); left > 0; --left) {
    const std::string_view key = text(), value = text();
    if (key == wanted) return std::string(value);
  }
  return {};
}

// The shape of a fixed list that is a tensor of Arrow's extension, or nothing.
std::vector<int64_t> tensor_shape_of(const ArrowSchema& schema, int64_t size) {
  if (metadata_of(schema, "ARROW:extension:name") != "arrow.fixed_shape_tensor") return {};
  const Json form = Json::parse(metadata_of(schema, "ARROW:extension:metadata"), nullptr, false);
  const auto shape = form.is_object() ? form.find("shape") : form.end();
  if (shape == form.end() || !shape->is_array() || shape->size() > 16) return {};
  std::vector<int64_t> sizes;
  int64_t elements = 1;
  for (const Json& one : *shape) {
    if (!one.is_number_integer() || one < 0 || one > size) return {};
    sizes.push_back(one);
    if (sizes.back() > 0 && elements > size / sizes.back()) return {};
    elements *= sizes.back();
  }
  if (const auto order = form.find("permutation"); order != form.end() && order->is_array())
    for (size_t i = 0; i < order->size(); ++i)
      if (order->at(i) != i) throw refused_type(schema, ", because its dimensions are permuted");
  return elements == size ? sizes : std::vector<int64_t>{};
}

ArrowType type_in_lists(const ArrowSchema& schema, int lists);

ArrowType list_type(const ArrowSchema& schema, Kind kind, int lists) {
  if (lists >= kMostLists || schema.n_children != 1) throw refused_type(schema);
  ArrowType type{.kind = kind};
  type.inner = std::make_unique<ArrowType>(type_in_lists(*schema.children[0], lists + 1));
  if (type.inner->is_text() || type.inner->kind == Kind::dictionary) throw refused_type(schema);
  type.dtype = type.inner->dtype;
  if (kind != Kind::fixed_list) return type;
  type.size = size_of_format(schema.format);
  if (type.inner->dimensions() == 0) type.tensor_shape = tensor_shape_of(schema, type.size);
  return type;
}

// A struct of bytes and perhaps a path.
ArrowType file_type(const ArrowSchema& schema) {
  ArrowType type{.kind = Kind::file};
  for (int64_t i = 0; i < schema.n_children; ++i) {
    const ArrowSchema& member = *schema.children[i];
    const std::string_view name = member.name ? member.name : "";
    if (!text_of_format(member.format) || member.dictionary || (name != "bytes" && name != "path"))
      throw refused_type(schema);
    if (name != "bytes") continue;
    if (type.inner) throw refused_type(schema);
    type.bytes_member = static_cast<size_t>(i);
    type.inner = std::make_unique<ArrowType>(type_of_arrow(member));
  }
  if (!type.inner) throw refused_type(schema);
  return type;
}

ArrowType type_in_lists(const ArrowSchema& schema, int lists) {
  const std::string_view format = schema.format;
  if (schema.dictionary) {
    ArrowType type{.kind = Kind::dictionary};
    const auto key = number_of_format(format);
    type.inner = std::make_unique<ArrowType>(type_of_arrow(*schema.dictionary));
    const bool is_plain = type.inner->kind == Kind::number || type.inner->is_text();
    if (!key || !is_plain || type.inner->kind == Kind::file) throw refused_type(schema);
    type.key = *key;
    type.dtype = type.inner->dtype;
    return type;
  }
  if (const auto number = number_of_format(format))
    return {.kind = Kind::number, .dtype = *number};
  if (format == "b") return {.kind = Kind::boolean, .dtype = DType::boolean};
  if (const auto text = text_of_format(format)) {
    ArrowType type{.kind = *text};
    if (*text == Kind::fixed_text) type.size = size_of_format(format);
    return type;
  }
  if (format == "+l") return list_type(schema, Kind::list, lists);
  if (format == "+L") return list_type(schema, Kind::large_list, lists);
  if (format.starts_with("+w:")) return list_type(schema, Kind::fixed_list, lists);
  if (format == "+s") return file_type(schema);
  throw refused_type(schema);
}

}  // namespace

bool ArrowType::is_text() const {
  switch (kind) {
    case Kind::text:
    case Kind::large_text:
    case Kind::text_view:
    case Kind::fixed_text:
    case Kind::file: return true;
    case Kind::dictionary: return inner->is_text();
    default: return false;
  }
}

int64_t ArrowType::dimensions() const {
  if (kind != Kind::list && kind != Kind::large_list && kind != Kind::fixed_list) return 0;
  if (!tensor_shape.empty()) return std::ssize(tensor_shape);
  return 1 + inner->dimensions();
}

ArrowType type_of_arrow(const ArrowSchema& schema) { return type_in_lists(schema, 0); }

FieldSpec spec_of_arrow(const std::string& name, const ArrowType& type) {
  FieldSpec spec{.name = name, .dtype = type.dtype};
  spec.encoded = type.is_text();
  if (spec.encoded) return spec;
  std::vector<int64_t> shape;
  for (const ArrowType* each = &type; each->dimensions() > 0; each = each->inner.get()) {
    if (each->kind != Kind::fixed_list) return spec;
    if (each->tensor_shape.empty())
      shape.push_back(each->size);
    else
      shape.insert(shape.end(), each->tensor_shape.begin(), each->tensor_shape.end());
  }
  spec.shape = shape;
  return spec;
}

std::string describe_arrow_type(const ArrowSchema& schema) {
  const std::string_view format = schema.format;
  if (schema.dictionary)
    return fmt::format("a dictionary of {}", describe_arrow_type(*schema.dictionary));
  if (const auto number = number_of_format(format)) return std::string(plan::to_string(*number));
  if (format == "b") return "boolean";
  if (text_of_format(format)) return "text or bytes";
  const bool is_list = format.starts_with("+l") || format.starts_with("+L") ||
                       format.starts_with("+w:") || format.starts_with("+v");
  if (is_list && schema.n_children == 1)
    return fmt::format("a list of {}", describe_arrow_type(*schema.children[0]));
  if (format == "+s")
    return fmt::format("a struct of {} member{}", schema.n_children,
                       schema.n_children == 1 ? "" : "s");
  if (format == "+m") return "a map";
  if (format.starts_with("+u")) return "a union";
  if (format == "+r") return "encoded by the lengths of runs";
  if (format == "n") return "null";
  if (format.starts_with("d:")) return "decimal";
  if (format.starts_with("ti")) return "an interval";
  return fmt::format("'{}'", format);
}

}  // namespace trireme::records
