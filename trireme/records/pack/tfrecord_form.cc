// Records as tf.train.Example in TFRecord files.
#include <fmt/format.h>
#include <trireme/records/crc32c.h>
#include <trireme/records/damage.h>
#include <trireme/records/pack/record_forms.h>
#include <trireme/records/pack/whole_numbers.h>

namespace trireme::records {
namespace {

// The numbers of the lists in tf.train.Feature.
enum class FeatureKind : int { bytes = 1, floats = 2, integers = 3 };

void add_varint(uint64_t value, std::string& to) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>((value & 0x7f) | 0x80);
  to += static_cast<char>(value);
}

// A field whose value is a length and so many bytes.
void add_field(int number, std::string_view content, std::string& to) {
  constexpr int kOfLength = 2;
  add_varint(static_cast<uint64_t>(number << 3 | kOfLength), to);
  add_varint(content.size(), to);
  to += content;
}

template <typename T>
void append_little(T number, std::string& to) {
  to.append(reinterpret_cast<const char*>(&number), sizeof number);
}

// The values of a field of numbers, as the list packs them.
std::pair<FeatureKind, std::string> packed_numbers(const Field& field) {
  if (field.dtype == plan::DType::float32) return {FeatureKind::floats, std::string(field.text())};
  std::string packed;
  const bool is_whole = for_each_whole_number(
      field, [&](int64_t number) { add_varint(static_cast<uint64_t>(number), packed); });
  if (!is_whole)
    throw Damage(fmt::format("TFRecord cannot hold the numbers of the field '{}' ({}) exactly",
                             field.name, plan::to_string(field.dtype)),
                 "--to webdataset", ErrorCode::unsupported);
  return {FeatureKind::integers, std::move(packed)};
}

}  // namespace

void append_tfrecord(const Record& record, std::string& bytes) {
  std::string features;
  for (const Field& field : record.fields) {
    if (field.shape.size() > 1)
      throw Damage(fmt::format("TFRecord would forget the shape of the field '{}', which has {} "
                               "dimensions",
                               field.name, field.shape.size()),
                   "--to webdataset", ErrorCode::unsupported);
    auto [kind, values] = field.encoded ? std::pair(FeatureKind::bytes, std::string(field.text()))
                                        : packed_numbers(field);
    std::string list, feature, entry;
    add_field(1, values, list);
    add_field(static_cast<int>(kind), list, feature);
    add_field(1, field.name, entry);
    add_field(2, feature, entry);
    add_field(1, entry, features);
  }
  std::string example;
  add_field(1, features, example);
  std::string length;
  append_little<uint64_t>(example.size(), length);
  bytes += length;
  append_little(masked_crc(crc32c(std::as_bytes(std::span(length)))), bytes);
  bytes += example;
  append_little(masked_crc(crc32c(std::as_bytes(std::span(example)))), bytes);
}

}  // namespace trireme::records
