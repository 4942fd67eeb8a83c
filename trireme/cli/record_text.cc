#include <trireme/cli/record_text.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/hash.h>
#include <trireme/base/units.h>
#include <algorithm>
#include <cctype>
#include <cstring>
#include <optional>
#include <vector>

namespace trireme::cli {
namespace {

using plan::DType;
using records::Field;

template <typename T>
Json number_at(const Field& field, size_t index) {
  T number{};
  std::memcpy(&number, field.bytes.data() + index * sizeof(T), sizeof(T));
  return number;
}

// Nothing for types that are not printed as numbers.
std::optional<Json> value_at(const Field& field, size_t index) {
  switch (field.dtype) {
    case DType::float32: return number_at<float>(field, index);
    case DType::float64: return number_at<double>(field, index);
    case DType::int8: return number_at<int8_t>(field, index);
    case DType::int16: return number_at<int16_t>(field, index);
    case DType::int32: return number_at<int32_t>(field, index);
    case DType::int64: return number_at<int64_t>(field, index);
    case DType::uint8: return number_at<uint8_t>(field, index);
    case DType::uint16: return number_at<uint16_t>(field, index);
    case DType::uint32: return number_at<uint32_t>(field, index);
    case DType::uint64: return number_at<uint64_t>(field, index);
    case DType::boolean: return number_at<uint8_t>(field, index) != Json(0);
    default: return std::nullopt;
  }
}

// The first numbers of a field. Empty if its type is not printed.
std::vector<Json> numbers_in(const Field& field, size_t most) {
  std::vector<Json> numbers;
  const size_t count = field.bytes.size() / static_cast<size_t>(plan::bytes_of(field.dtype));
  for (size_t i = 0; i < std::min(count, most); ++i)
    if (auto number = value_at(field, i)) numbers.push_back(std::move(*number));
  return numbers;
}

std::string sha_of(const Field& field) {
  Sha256 sha;
  sha.update(field.bytes);
  return sha.hex();
}

bool is_printable_text(const Field& field) {
  const std::string_view text = field.text();
  if (std::ranges::any_of(text, [](unsigned char c) { return c < ' ' && !std::isspace(c); }))
    return false;
  try {
    static_cast<void>(Json(text).dump());  // It throws unless the text is UTF-8.
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

std::string shape_text(std::span<const int64_t> shape) {
  return shape.empty() ? "" : fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string value_text(const Field& field) {
  constexpr size_t kShownBytes = 60, kShownNumbers = 8;
  if (field.encoded && is_printable_text(field)) {
    const std::string text =
        Json(field.text()).dump(-1, ' ', false, Json::error_handler_t::replace);
    return text.size() <= kShownBytes ? text : text.substr(0, kShownBytes) + "...";
  }
  std::vector<unsigned> start;
  for (const std::byte byte : field.bytes.first(std::min<size_t>(field.bytes.size(), 8)))
    start.push_back(std::to_integer<unsigned>(byte));
  if (field.encoded)
    return fmt::format("{} ({:02x}...)", format_bytes(static_cast<int64_t>(field.bytes.size())),
                       fmt::join(start, ""));
  std::vector<std::string> numbers;
  for (const Json& number : numbers_in(field, kShownNumbers)) numbers.push_back(number.dump());
  const size_t count = field.bytes.size() / static_cast<size_t>(plan::bytes_of(field.dtype));
  return fmt::format("{}{}: {}{}", plan::to_string(field.dtype), shape_text(field.shape),
                     fmt::join(numbers, " "), count > kShownNumbers ? " ..." : "");
}

}  // namespace

Json json_of_record(const records::Record& record) {
  constexpr size_t kMostNumbers = 4096, kMostText = 65536;
  Json fields = Json::object();
  for (const Field& field : record.fields) {
    Json& json = fields[std::string(field.name)];
    json["bytes"] = field.bytes.size();
    json["sha256"] = sha_of(field);
    json["encoded"] = field.encoded;
    if (field.encoded) {
      if (field.bytes.size() <= kMostText && is_printable_text(field)) json["text"] = field.text();
      continue;
    }
    json["dtype"] = plan::to_string(field.dtype);
    json["shape"] = std::vector<int64_t>(field.shape.begin(), field.shape.end());
    json["values"] = numbers_in(field, kMostNumbers);
  }
  return fields;
}

std::string describe_record(const records::Record& record) {
  std::string text;
  for (const Field& field : record.fields)
    text += fmt::format("  {:<16} {}\n", field.name, value_text(field));
  return text;
}

std::string describe_field(const records::FieldSpec& field) {
  if (field.encoded) return fmt::format("  {:<16} a text or a file\n", field.name);
  return fmt::format("  {:<16} {}{}\n", field.name, plan::to_string(field.dtype),
                     field.shape ? shape_text(*field.shape) : "[...]");
}

}  // namespace trireme::cli
