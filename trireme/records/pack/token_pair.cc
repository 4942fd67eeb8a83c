#include <trireme/records/pack/token_pair.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/records/damage.h>
#include <trireme/records/pack/whole_numbers.h>
#include <algorithm>
#include <limits>
#include <span>

namespace trireme::records {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokensName = "tokens.bin";
constexpr const char* kIndexName = "tokens.idx";
constexpr std::string_view kMagicOfPair{"MMIDIDX\0\0", 9};
constexpr uint8_t kInt32OfPair = 4, kUint16OfPair = 8;  // Megatron's numbers of the types.

bool may_be_tokens(const FieldSpec& field) {
  using plan::DType;
  constexpr DType kWhole[] = {DType::int64,  DType::int32,  DType::int16, DType::int8,
                              DType::uint32, DType::uint16, DType::uint8};
  return !field.encoded && std::ranges::find(kWhole, field.dtype) != std::end(kWhole) &&
         (!field.shape || field.shape->size() == 1);
}

Damage no_tokens(std::string_view field, std::string_view why) {
  return Damage(fmt::format("the field '{}' {}", field, why),
                "--field with lists of whole numbers from 0 on", ErrorCode::unsupported);
}

const Field& token_field(const Record& record, std::string_view name) {
  const Field* const field = record.find(name);
  if (!field) throw no_tokens(name, "is missing");
  if (field->encoded) throw no_tokens(name, "has a text or a file");
  if (field->shape.size() != 1)
    throw no_tokens(name, fmt::format("has {} dimensions", field->shape.size()));
  return *field;
}

template <typename Number>
void write_number(ShardFile& file, Number number) {
  file.write(std::as_bytes(std::span(&number, 1)));
}

}  // namespace

std::string find_token_field(const Reader& reader, const std::string& wanted) {
  std::vector<std::string_view> all, found;
  for (const FieldSpec& field : reader.fields()) {
    all.push_back(field.name);
    if (wanted.empty() && field.name == "tokens" && may_be_tokens(field)) return field.name;
    if (wanted.empty() ? may_be_tokens(field) : field.name == wanted) found.push_back(field.name);
  }
  if (found.size() == 1) return std::string(found.front());
  const std::string what = wanted.empty()
                               ? fmt::format("{} of the fields may be tokens", found.size())
                               : fmt::format("there is no field '{}'", wanted);
  throw Error(ErrorCode::invalid_argument, "data", what,
              fmt::format("--field with one of {}", fmt::join(found.empty() ? all : found, ", ")));
}

int64_t largest_token(const Record& record, std::string_view name) {
  int64_t largest = -1;
  const bool is_whole = for_each_whole_number(token_field(record, name), [&](int64_t token) {
    if (token < 0 || token > std::numeric_limits<int32_t>::max())
      throw no_tokens(name, fmt::format("has {}, which is no token", token));
    largest = std::max(largest, token);
  });
  if (!is_whole) throw no_tokens(name, "has no whole numbers");
  return largest;
}

TokenPair::TokenPair(const fs::path& folder, std::string field, int64_t largest)
    : field_(std::move(field)),
      is_wide_(largest > std::numeric_limits<uint16_t>::max()),
      tokens_(folder / kTokensName, Packing::none),
      index_(folder / kIndexName, Packing::none) {}

std::vector<std::string> TokenPair::files() const { return {kTokensName, kIndexName}; }

void TokenPair::add(const Record& record) {
  const Field& field = token_field(record, field_);
  if (field.shape[0] > std::numeric_limits<int32_t>::max())
    throw no_tokens(field_, fmt::format("has {} tokens", field.shape[0]));
  bytes_.clear();
  const auto append = [&](auto token) {
    bytes_.append(reinterpret_cast<const char*>(&token), sizeof token);
  };
  for_each_whole_number(field, [&](int64_t token) {
    if (is_wide_)
      append(static_cast<int32_t>(token));
    else
      append(static_cast<uint16_t>(token));
  });
  tokens_.write(bytes_);
  lengths_.push_back(static_cast<int32_t>(field.shape[0]));
}

// Each document is one sequence.
void TokenPair::finish() {
  index_.write(kMagicOfPair);
  write_number<uint64_t>(index_, 1);  // The version.
  write_number(index_, is_wide_ ? kInt32OfPair : kUint16OfPair);
  write_number<uint64_t>(index_, lengths_.size());
  write_number<uint64_t>(index_, lengths_.size() + 1);
  index_.write(std::as_bytes(std::span(lengths_)));
  int64_t begin = 0;
  for (const int32_t length : lengths_) {
    write_number(index_, begin);
    begin += int64_t{length} * (is_wide_ ? 4 : 2);
  }
  for (size_t document = 0; document <= lengths_.size(); ++document)
    write_number<int64_t>(index_, static_cast<int64_t>(document));
  tokens_.finish();
  index_.finish();
}

}  // namespace trireme::records
