// Records as members of a tar file, as WebDataset has them.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/records/damage.h>
#include <trireme/records/data_files.h>
#include <trireme/records/pack/record_forms.h>
#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <set>

namespace trireme::records {
namespace {

constexpr size_t kBlockBytes = 512;
constexpr size_t kMostNameBytes = 100;
constexpr std::string_view kKeyField = "__key__";

Damage no_member(const Field& field, std::string_view what, std::string_view remedy) {
  return Damage(fmt::format("the field '{}' {}", field.name, what), std::string(remedy),
                ErrorCode::unsupported);
}

// Fields of these names are numbers for the readers of WebDataset.
bool is_name_of_number(std::string_view name) {
  constexpr std::array<std::string_view, 5> kNumbers{"cls", "cls2", "index", "inx", "id"};
  return std::ranges::find(kNumbers, name) != kNumbers.end();
}

std::string_view extension_of_image(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("\xff\xd8\xff")) return "jpg";
  if (text.starts_with("\x89PNG")) return "png";
  if (text.starts_with("RIFF") &&
      text.substr(std::min<size_t>(8, text.size())).starts_with("WEBP"))
    return "webp";
  return "bin";
}

bool is_scalar_integer(const Field& field) {
  using plan::DType;
  return field.shape.empty() && (field.dtype == DType::int64 || field.dtype == DType::int32 ||
                                 field.dtype == DType::uint8 || field.dtype == DType::int8 ||
                                 field.dtype == DType::int16 || field.dtype == DType::uint16 ||
                                 field.dtype == DType::uint32);
}

int64_t whole_number_of(const Field& field) {
  int64_t number = 0;  // Little-endian.
  std::memcpy(&number, field.bytes.data(), field.bytes.size());
  using plan::DType;
  const size_t unused = 64 - 8 * field.bytes.size();
  const bool is_signed =
      field.dtype == DType::int8 || field.dtype == DType::int16 || field.dtype == DType::int32;
  return is_signed ? static_cast<int64_t>(static_cast<uint64_t>(number) << unused) >>
                         static_cast<int>(unused)
                   : number;
}

struct TarMember {
  std::string extension, content;
};

TarMember member_of(const Field& field) {
  const std::string text(field.text());
  std::string name(field.name);
  const bool is_safe = std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  });
  if (name.empty() || !is_safe || name.front() == '.' || name.back() == '.')
    throw no_member(field, "cannot be the end of a file's name",
                    "--to tfrecord, or other names of columns");
  if (field.encoded) {
    if (is_name_of_number(name) || name == "npy" || name.ends_with(".npy"))
      throw no_member(field, "is a text, but its name means numbers in a tar file",
                      "--to tfrecord, or another name of the column");
    if (name == "image") name = extension_of_image(field.bytes);
    if (name == "text") name = "txt";
    return {name, text};
  }
  if (is_scalar_integer(field) && (name == "label" || is_name_of_number(name)))
    return {name == "label" ? "cls" : name, std::to_string(whole_number_of(field))};
  if (name != "npy" && !name.ends_with(".npy")) name += ".npy";
  return {name, npy_header(field.dtype, field.shape) + text};
}

std::string key_of(const Record& record, int64_t number) {
  const Field* const field = record.find(kKeyField);
  if (!field || !field->encoded) return fmt::format("{:09}", number);
  const std::string key(field->text());
  const size_t slash = key.rfind('/');
  const std::string last = slash == std::string::npos ? key : key.substr(slash + 1);
  if (last.empty() || last.find('.') != std::string::npos || leads_outside(key) ||
      key.find('\0') != std::string::npos)
    throw Damage(fmt::format("the key '{}' cannot be a file's name without a dot", key),
                 "--to tfrecord", ErrorCode::unsupported);
  return key;
}

void append_header(const std::string& name, size_t size, char type, std::string& bytes) {
  std::array<char, kBlockBytes> header{};
  const auto put = [&](size_t at, std::string_view text) {
    std::memcpy(header.data() + at, text.data(), text.size());
  };
  put(0, std::string_view(name).substr(0, kMostNameBytes));
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(124, fmt::format("{:011o}", size));
  put(136, "00000000000");
  put(148, "        ");
  header[156] = type;
  put(257, std::string_view("ustar\0"
                            "00",
                            8));
  unsigned sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  put(148, fmt::format("{:06o}", sum));
  header[154] = '\0';
  bytes.append(header.data(), header.size());
}

void append_content(std::string_view content, std::string& bytes) {
  bytes += content;
  bytes.append((kBlockBytes - content.size() % kBlockBytes) % kBlockBytes, '\0');
}

// Pax has names of any length: "LENGTH path=NAME\n", whose length counts all of it.
std::string pax_path(const std::string& name) {
  const std::string entry = " path=" + name + "\n";
  size_t length = entry.size() + 1;
  while (std::to_string(length).size() + entry.size() != length)
    length = std::to_string(length).size() + entry.size();
  return std::to_string(length) + entry;
}

}  // namespace

void append_tar(const Record& record, int64_t number, std::string& last_key, std::string& bytes) {
  std::string key = key_of(record, number);
  if (key == last_key)
    throw Damage(
        fmt::format("it has the key '{}' as the record before, so that both would be one", key),
        "another --shuffle, or --to tfrecord", ErrorCode::unsupported);
  std::set<std::string> extensions;
  for (const Field& field : record.fields) {
    if (field.name == kKeyField && field.encoded) continue;
    const TarMember member = member_of(field);
    std::string small = member.extension;
    std::ranges::transform(small, small.begin(), [](unsigned char c) { return std::tolower(c); });
    if (!extensions.insert(small).second)
      throw no_member(field, fmt::format("would be a second member .{}", small), "--to tfrecord");
    const std::string name = key + "." + member.extension;
    if (name.size() > kMostNameBytes) {
      const std::string path = pax_path(name);
      append_header("pax", path.size(), 'x', bytes);
      append_content(path, bytes);
    }
    append_header(name, member.content.size(), '0', bytes);
    append_content(member.content, bytes);
  }
  if (extensions.empty())
    throw Damage("it has no field besides its key", "--to tfrecord", ErrorCode::unsupported);
  last_key = std::move(key);
}

std::string end_of_tar() { return std::string(2 * kBlockBytes, '\0'); }

std::string npy_header(plan::DType dtype, std::span<const int64_t> shape) {
  using plan::DType;
  std::string_view code;
  switch (dtype) {
    case DType::float32: code = "<f4"; break;
    case DType::float64: code = "<f8"; break;
    case DType::float16: code = "<f2"; break;
    case DType::int32: code = "<i4"; break;
    case DType::int64: code = "<i8"; break;
    case DType::uint8: code = "|u1"; break;
    case DType::boolean: code = "|b1"; break;
    case DType::int8: code = "|i1"; break;
    case DType::int16: code = "<i2"; break;
    case DType::uint16: code = "<u2"; break;
    case DType::uint32: code = "<u4"; break;
    case DType::uint64: code = "<u8"; break;
    default:
      throw Damage(fmt::format("NumPy has no type {}", plan::to_string(dtype)),
                   "numbers of another type", ErrorCode::unsupported);
  }
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}",
                                   code, fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  constexpr size_t kFrontBytes = 10, kAlignment = 64;
  header.resize((header.size() + 1 + kFrontBytes + kAlignment - 1) / kAlignment * kAlignment -
                    kFrontBytes - 1,
                ' ');
  header += '\n';
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size() & 0xff);
  bytes += static_cast<char>(header.size() >> 8);
  return bytes + header;
}

}  // namespace trireme::records
