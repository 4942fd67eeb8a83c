#include "token_file.h"

#include <fmt/format.h>
#include <trireme/base/files.h>
#include <trireme/records/damage.h>
#include <algorithm>
#include <cstring>

namespace trireme::records {
namespace {

namespace fs = std::filesystem;
using plan::DType;

constexpr std::string_view kMegatron{"MMIDIDX\0\0", 9};

template <typename T>
T number_in_map(std::span<const std::byte> bytes, uint64_t at) {
  T number{};
  if (at > bytes.size() || sizeof number > bytes.size() - at)
    throw Damage(fmt::format("the file ends before byte {}", at + sizeof number));
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

DType dtype_of_megatron(unsigned code) {
  switch (code) {
    case 1: return DType::uint8;
    case 2: return DType::int8;
    case 3: return DType::int16;
    case 4: return DType::int32;
    case 5: return DType::int64;
    case 8: return DType::uint16;
    default:
      throw Damage(fmt::format("its tokens have the type {}, which is no whole number", code),
                   "tokens of uint16 or int32", ErrorCode::unsupported);
  }
}

// Checks the whole index, so that no document leads outside of the tokens.
void read_megatron(TokenFile& file) {
  const auto bytes = file.index->bytes();
  if (bytes.size() < kMegatron.size() ||
      std::memcmp(bytes.data(), kMegatron.data(), kMegatron.size()) != 0)
    throw Damage("it does not begin as an index of Megatron (MMIDIDX)");
  const auto version = number_in_map<uint64_t>(bytes, 9);
  if (version != 1)
    throw Damage(fmt::format("its version is {}, but 1 is known", version),
                 "an index of version 1", ErrorCode::unsupported);
  file.dtype = dtype_of_megatron(number_in_map<uint8_t>(bytes, 17));
  file.token_bytes = static_cast<uint64_t>(plan::bytes_of(file.dtype));
  file.sequences = number_in_map<uint64_t>(bytes, 18);
  const auto entries = number_in_map<uint64_t>(bytes, 26);
  constexpr uint64_t kLengthsAt = 34;
  const uint64_t most = bytes.size() / (sizeof(int32_t) + sizeof(int64_t));
  const bool fits = file.sequences <= most && entries >= 1 && entries <= file.sequences + 1 &&
                    kLengthsAt + file.sequences * 12 + entries * 8 <= bytes.size();
  if (!fits)
    throw Damage(fmt::format("it claims {} sequences and {} documents, but has {} bytes",
                             file.sequences, entries - 1, bytes.size()));
  file.documents = entries - 1;
  file.pointers_at = kLengthsAt + file.sequences * sizeof(int32_t);
  file.documents_at = file.pointers_at + file.sequences * sizeof(int64_t);
  uint64_t expected = 0;
  for (uint64_t i = 0; i < file.sequences; ++i) {
    const auto length = number_in_map<int32_t>(bytes, kLengthsAt + i * sizeof(int32_t));
    const auto pointer = number_in_map<uint64_t>(bytes, file.pointers_at + i * sizeof(int64_t));
    if (length < 0 || pointer != expected)
      throw Damage(
          fmt::format("sequence {} begins at byte {} and has {} tokens, but should begin "
                      "at byte {}",
                      i, pointer, length, expected));
    expected += static_cast<uint64_t>(length) * file.token_bytes;
    // The sum of all lengths may have more than 64 bits.
    if (expected > file.tokens->bytes().size()) break;
  }
  if (expected != file.tokens->bytes().size())
    throw Damage(fmt::format("its sequences have {} bytes, but {} has {}", expected, file.path,
                             file.tokens->bytes().size()));
  uint64_t before = 0;
  for (uint64_t i = 0; i < entries; ++i) {
    const auto first = number_in_map<uint64_t>(bytes, file.documents_at + i * sizeof(int64_t));
    if (first < before || first > file.sequences || (i == 0 && first != 0) ||
        (i + 1 == entries && first != file.sequences))
      throw Damage(
          fmt::format("document {} begins at sequence {} of {}", i, first, file.sequences));
    before = first;
  }
  file.count = expected / file.token_bytes;
}

// Returns true if the file has llm.c's header.
bool read_llmc(TokenFile& file) {
  constexpr uint64_t kHeaderBytes = 256 * sizeof(int32_t);
  constexpr int32_t kMagic16 = 20240520, kMagic32 = 20240801;
  const auto bytes = file.tokens->bytes();
  if (bytes.size() < sizeof(int32_t)) return false;
  const auto magic = number_in_map<int32_t>(bytes, 0);
  if (magic != kMagic16 && magic != kMagic32) return false;
  file.dtype = magic == kMagic16 ? DType::uint16 : DType::uint32;
  file.token_bytes = magic == kMagic16 ? 2 : 4;
  file.data = kHeaderBytes;
  const auto count = number_in_map<int32_t>(bytes, 8);
  const uint64_t there = bytes.size() < kHeaderBytes ? 0 : bytes.size() - kHeaderBytes;
  if (count < 0 || there != static_cast<uint64_t>(count) * file.token_bytes)
    throw Damage(fmt::format("its header says {} tokens of {} bytes, but {} bytes follow it",
                             count, file.token_bytes, there));
  file.count = static_cast<uint64_t>(count);
  return true;
}

void read_raw(TokenFile& file, const std::string& dtype) {
  file.dtype = dtype == "uint8"    ? DType::uint8
               : dtype == "uint16" ? DType::uint16
               : dtype == "uint32" ? DType::uint32
                                   : DType::int32;
  file.token_bytes = static_cast<uint64_t>(plan::bytes_of(file.dtype));
  const uint64_t bytes = file.tokens->bytes().size();
  if (bytes % file.token_bytes != 0)
    throw Damage(fmt::format("{} bytes are no whole number of tokens of {}", bytes, dtype));
  file.count = bytes / file.token_bytes;
}

}  // namespace

std::string existing_name_of(const fs::path& path) {
  for (const std::string_view end : kPackedEnds)
    if (std::string name = path.string().append(end); path_exists(name)) return name;
  return {};
}

void TokenFile::check() const {
  tokens->check();
  if (index) index->check();
}

uint64_t TokenFile::document_begin(uint64_t document) const {
  const auto first =
      number_in_map<uint64_t>(index->bytes(), documents_at + document * sizeof(int64_t));
  if (first >= sequences) return data + count * token_bytes;
  return number_in_map<uint64_t>(index->bytes(), pointers_at + first * sizeof(int64_t));
}

TokenFile open_token_file(const fs::path& path, const TokenType& type,
                          const UnpackLimits& limits) {
  const fs::path name = unpacked_name(path.native());
  std::string tokens = path, index;
  if (name.extension() == ".bin") {
    index = existing_name_of(fs::path(name).replace_extension(".idx"));
  } else if (name.extension() == ".idx") {
    index = path;
    const fs::path plain = fs::path(name).replace_extension(".bin");
    tokens = existing_name_of(plain);
    if (tokens.empty()) tokens = plain;
  }
  return open_token_file(
      tokens, index, [](const std::string& each) { return DataFile(each); }, type, limits);
}

TokenFile open_token_file(const std::string& tokens, const std::string& index,
                          const std::function<DataFile(const std::string&)>& open,
                          const TokenType& type, const UnpackLimits& limits) {
  TokenFile file;
  file.path = tokens;
  with_place([&] { return file.path; },
             [&] {
               const bool may_be_packed = unpacked_name(tokens) != tokens;
               file.tokens = may_be_packed ? std::make_unique<MappedFile>(open(tokens), limits)
                                           : std::make_unique<MappedFile>(open(tokens));
             });
  if (!index.empty()) {
    with_place([&] { return index; },
               [&] {
                 UnpackLimits of_index = limits;
                 of_index.taken_bytes += file.tokens->unpacked_bytes();
                 file.index = std::make_unique<MappedFile>(open(index), of_index);
                 read_megatron(file);
               });
  } else {
    with_place([&] { return file.path; },
               [&] {
                 if (read_llmc(file)) return;
                 if (type.dtype.empty())
                   throw Damage("it has no header that tells the type of its tokens",
                                fmt::format("{}=uint8, uint16, uint32 or int32", type.name),
                                ErrorCode::invalid_argument);
                 read_raw(file, type.dtype);
               });
  }
  return file;
}

int64_t token_at(const TokenFile& file, uint64_t index) {
  const auto bytes = file.tokens->bytes();
  const uint64_t at = file.data + index * file.token_bytes;
  switch (file.dtype) {
    case DType::uint8: return number_in_map<uint8_t>(bytes, at);
    case DType::int8: return number_in_map<int8_t>(bytes, at);
    case DType::int16: return number_in_map<int16_t>(bytes, at);
    case DType::uint16: return number_in_map<uint16_t>(bytes, at);
    case DType::uint32: return number_in_map<uint32_t>(bytes, at);
    case DType::int64: return number_in_map<int64_t>(bytes, at);
    default: return number_in_map<int32_t>(bytes, at);
  }
}

}  // namespace trireme::records
