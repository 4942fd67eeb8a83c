#include "npy_header.h"

#include <fmt/format.h>
#include <trireme/records/damage.h>
#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <string_view>

namespace trireme::records {
namespace {

using plan::DType;

Damage refused_npy(std::string what, std::string remedy) {
  return Damage(std::move(what), std::move(remedy), ErrorCode::unsupported);
}

Damage damaged_npy(std::string_view what) {
  return Damage(fmt::format("the NumPy header {}", what));
}

// The text behind 'KEY': in the header's dictionary.
std::string_view value_of(std::string_view header, std::string_view key) {
  const size_t at = header.find(fmt::format("'{}':", key));
  if (at == std::string_view::npos) throw damaged_npy(fmt::format("has no '{}'", key));
  std::string_view value = header.substr(at + key.size() + 3);
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  return value;
}

DType dtype_of_npy(std::string_view value) {
  if (value.starts_with('['))
    throw refused_npy("it has records of several fields", "np.save of each field by itself");
  const size_t end = value.size() > 1 ? value.find(value[0], 1) : std::string_view::npos;
  if ((!value.starts_with('\'') && !value.starts_with('"')) || end == std::string_view::npos)
    throw damaged_npy("has no type");
  const std::string_view name = value.substr(1, end - 1);
  if (name.find('O') != std::string_view::npos)
    throw refused_npy("it has Python objects, which are never unpickled",
                      "numbers: array.astype(numpy.float32)");
  static const std::map<std::string_view, DType> known{
      {"f4", DType::float32},   {"f8", DType::float64},    {"f2", DType::float16},
      {"i1", DType::int8},      {"i2", DType::int16},      {"i4", DType::int32},
      {"i8", DType::int64},     {"u1", DType::uint8},      {"u2", DType::uint16},
      {"u4", DType::uint32},    {"u8", DType::uint64},     {"b1", DType::boolean},
      {"c8", DType::complex64}, {"c16", DType::complex128}};
  const auto found = known.find(name.size() > 1 ? name.substr(1) : name);
  if (found == known.end())
    throw refused_npy(fmt::format("its type is '{}', which is no number", name),
                      "numbers: array.astype(numpy.float32)");
  if (name[0] == '>')
    throw refused_npy(fmt::format("its numbers ('{}') have the other order of bytes", name),
                      "array.astype(array.dtype.newbyteorder('<'))");
  return found->second;
}

std::vector<int64_t> shape_of_npy(std::string_view value) {
  if (!value.starts_with('(')) throw damaged_npy("has no shape");
  std::vector<int64_t> shape;
  for (value.remove_prefix(1);;) {
    value.remove_prefix(std::min(value.find_first_not_of(" ,"), value.size()));
    if (value.starts_with(')')) return shape;
    int64_t size = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), size);
    constexpr size_t kMostDims = 32;
    if (error != std::errc{} || size < 0 || shape.size() >= kMostDims)
      throw damaged_npy("has a damaged shape");
    shape.push_back(size);
    value.remove_prefix(static_cast<size_t>(end - value.data()));
  }
}

}  // namespace

NpyHeader parse_npy_header(std::span<const std::byte> bytes, uint64_t file_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  constexpr std::string_view kMagic = "\x93NUMPY";
  if (!text.starts_with(kMagic) || text.size() < 12) throw damaged_npy("is not there");
  const auto byte = [&](size_t i) { return std::to_integer<uint64_t>(bytes[i]); };
  const uint64_t version = byte(6);
  if (version < 1 || version > 3) throw damaged_npy(fmt::format("has the version {}", version));
  const uint64_t start = version == 1 ? 10 : 12;
  const uint64_t length = version == 1 ? byte(8) | byte(9) << 8
                                       : byte(8) | byte(9) << 8 | byte(10) << 16 | byte(11) << 24;
  if (length > text.size() - start) throw damaged_npy(fmt::format("of {} bytes is cut", length));
  const std::string_view dictionary = text.substr(start, length);
  NpyHeader header{.dtype = dtype_of_npy(value_of(dictionary, "descr")),
                   .shape = shape_of_npy(value_of(dictionary, "shape")),
                   .data = start + length};
  const auto dims_above_one =
      std::ranges::count_if(header.shape, [](int64_t size) { return size > 1; });
  if (value_of(dictionary, "fortran_order").starts_with("True") && dims_above_one > 1)
    throw refused_npy("its numbers are in Fortran's order", "numpy.ascontiguousarray(array)");
  header.bytes = static_cast<uint64_t>(plan::bytes_of(header.dtype));
  for (const int64_t size : header.shape) {
    if (size > 0 && header.bytes > file_bytes / static_cast<uint64_t>(size))
      throw damaged_npy("claims more numbers than the file has");
    header.bytes *= static_cast<uint64_t>(size);
  }
  if (header.bytes != file_bytes - header.data)
    throw damaged_npy(fmt::format("says {} bytes of numbers, but the file has {}", header.bytes,
                                  file_bytes - header.data));
  return header;
}

}  // namespace trireme::records
