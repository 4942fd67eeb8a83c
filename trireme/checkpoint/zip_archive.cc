#include <trireme/checkpoint/zip_archive.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <zlib.h>
#include <algorithm>
#include <limits>

namespace trireme::checkpoint {
namespace {

constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50,
                   kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr uint64_t kLocalSize = 30, kCentralSize = 46, kEndSize = 22, kLocatorSize = 20,
                   kEnd64Size = 56;
constexpr uint32_t kMax32 = std::numeric_limits<uint32_t>::max();
constexpr uint64_t kAlignment = 64;

// Reads a little-endian number of `size` bytes. The caller has checked that they exist.
uint64_t number(std::span<const std::byte> bytes, uint64_t at, int size) {
  uint64_t value = 0;
  for (int i = size - 1; i >= 0; --i)
    value = value << 8 | static_cast<uint64_t>(bytes[at + static_cast<uint64_t>(i)]);
  return value;
}

void put(std::string& text, uint64_t value, int size) {
  for (int i = 0; i < size; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
}

uint32_t crc_of(std::span<const std::byte> bytes) {
  return static_cast<uint32_t>(
      ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace

void ZipReader::fail(const std::string& what) const {
  throw Error(ErrorCode::corrupt, "checkpoint",
              fmt::format("{} is not a whole archive of PyTorch: {}", path_.string(), what),
              "a file of torch.save (PyTorch 1.6 or newer), or a fresh copy");
}

ZipReader::ZipReader(const std::filesystem::path& path) : path_(path), file_(path) {
  const EntryList list = read_list();
  uint64_t at = 0;
  for (uint64_t i = 0; i < list.count; ++i) at = add_entry(list.bytes, at);
}

ZipReader::EntryList ZipReader::read_list() const {
  // The end record is the last one. A comment of up to 64 KiB may follow it.
  std::vector<std::byte> tail(std::min<uint64_t>(file_.size(), kEndSize + kLocatorSize + 65'535));
  const uint64_t tail_begin = file_.size() - tail.size();
  file_.read(tail_begin, tail);
  if (tail.size() < kEndSize) fail("it is too short");
  uint64_t end = tail.size() - kEndSize;
  while (number(tail, end, 4) != kEnd)
    if (end-- == 0) fail("it has no list of entries");
  uint64_t count = number(tail, end + 10, 2), bytes = number(tail, end + 12, 4),
           begin = number(tail, end + 16, 4);
  if (end >= kLocatorSize && number(tail, end - kLocatorSize, 4) == kLocator64) {
    const uint64_t at = number(tail, end - kLocatorSize + 8, 8);
    if (at > file_.size() || file_.size() - at < kEnd64Size)
      fail("its list of entries lies outside");
    std::vector<std::byte> end64(kEnd64Size);
    file_.read(at, end64);
    if (number(end64, 0, 4) != kEnd64) fail("its list of entries is damaged");
    count = number(end64, 32, 8);
    bytes = number(end64, 40, 8);
    begin = number(end64, 48, 8);
  }
  if (begin > file_.size() || bytes > file_.size() - begin)
    fail("its list of entries lies outside");
  EntryList list{count, std::vector<std::byte>(bytes)};
  file_.read(begin, list.bytes);
  return list;
}

uint64_t ZipReader::add_entry(std::span<const std::byte> list, uint64_t at) {
  if (list.size() - at < kCentralSize || number(list, at, 4) != kCentral)
    fail("its list of entries is damaged");
  const uint64_t name_size = number(list, at + 28, 2), extra_size = number(list, at + 30, 2),
                 comment_size = number(list, at + 32, 2);
  if (list.size() - at - kCentralSize < name_size + extra_size + comment_size)
    fail("its list of entries is damaged");
  const std::string name(reinterpret_cast<const char*>(list.data()) + at + kCentralSize,
                         name_size);
  uint64_t packed = number(list, at + 20, 4), size = number(list, at + 24, 4),
           header = number(list, at + 42, 4);
  read_large_values(list.subspan(at + kCentralSize + name_size, extra_size),
                    {&size, &packed, &header});
  if (header > file_.size() || packed > file_.size() - header)
    fail(fmt::format("'{}' lies outside", name));
  // TorchScript compresses its code; nothing here reads it.
  const bool is_stored = number(list, at + 10, 2) == 0;
  if (is_stored && packed != size) fail(fmt::format("'{}' lies outside", name));
  if (is_stored) entries_[name] = {header, size, static_cast<uint32_t>(number(list, at + 16, 4))};
  return at + kCentralSize + name_size + extra_size + comment_size;
}

void ZipReader::read_large_values(std::span<const std::byte> extra,
                                  std::initializer_list<uint64_t*> values) const {
  for (uint64_t at = 0; extra.size() - at >= 4;) {
    const uint64_t field = number(extra, at + 2, 2), next = at + 4 + field;
    if (next > extra.size()) fail("its list of entries is damaged");
    if (number(extra, at, 2) == 1) {
      uint64_t value = at + 4;
      for (uint64_t* const each : values) {
        if (*each != kMax32) continue;
        if (next - value < 8) fail("its list of entries is damaged");
        *each = number(extra, value, 8);
        value += 8;
      }
    }
    at = next;
  }
}

std::vector<std::byte> ZipReader::read(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) fail(fmt::format("it has no '{}'", name));
  const Entry& entry = found->second;
  std::vector<std::byte> header(kLocalSize);
  if (file_.size() - entry.header < kLocalSize) fail(fmt::format("'{}' lies outside", name));
  file_.read(entry.header, header);
  const uint64_t begin = entry.header + kLocalSize + number(header, 26, 2) + number(header, 28, 2);
  if (number(header, 0, 4) != kLocal || begin > file_.size() || entry.bytes > file_.size() - begin)
    fail(fmt::format("'{}' lies outside", name));
  std::vector<std::byte> bytes(entry.bytes);
  file_.read(begin, bytes);
  if (crc_of(bytes) != entry.crc)
    fail(fmt::format("'{}' was changed: its checksum does not match", name));
  return bytes;
}

void ZipWriter::add(const std::string& name, std::span<const std::byte> bytes) {
  if (position_ > kMax32 - kAlignment - kLocalSize - name.size() - 4 || bytes.size() >= kMax32)
    throw Error(ErrorCode::unsupported, "checkpoint",
                fmt::format("'{}' would lie beyond 4 GB of the archive", name), "safetensors");
  const Entry entry{name, static_cast<uint32_t>(position_), static_cast<uint32_t>(bytes.size()),
                    crc_of(bytes)};
  const uint64_t unpadded = position_ + kLocalSize + name.size() + 4;
  const uint64_t padding = (kAlignment - unpadded % kAlignment) % kAlignment;
  std::string header;
  put(header, kLocal, 4);
  put(header, 20, 2);      // The required version of zip.
  header.append(8, '\0');  // Flags, stored, time, date.
  for (const uint32_t value : {entry.crc, entry.bytes, entry.bytes}) put(header, value, 4);
  put(header, name.size(), 2);
  put(header, 4 + padding, 2);
  header += name;
  header += "FB";  // The id of the padding that PyTorch writes.
  put(header, padding, 2);
  header.append(padding, 'Z');
  file_.write(header);
  file_.write(bytes);
  position_ += header.size() + bytes.size();
  entries_.push_back(entry);
}

void ZipWriter::finish() {
  std::string list;
  for (const Entry& entry : entries_) {
    put(list, kCentral, 4);
    put(list, 20, 2);
    put(list, 20, 2);
    list.append(8, '\0');
    for (const uint32_t value : {entry.crc, entry.bytes, entry.bytes}) put(list, value, 4);
    put(list, entry.name.size(), 2);
    list.append(12, '\0');  // No extra field, no comment, the first disk, no attributes.
    put(list, entry.header, 4);
    list += entry.name;
  }
  const uint64_t bytes = list.size();
  put(list, kEnd, 4);
  put(list, 0, 4);
  for (int i = 0; i < 2; ++i) put(list, entries_.size(), 2);
  put(list, bytes, 4);
  put(list, position_, 4);
  put(list, 0, 2);
  if (entries_.size() > 65'535 || position_ > kMax32)
    throw Error(ErrorCode::unsupported, "checkpoint",
                "the archive has more than 65535 tensors or 4 GB", "safetensors");
  file_.write(list);
}

}  // namespace trireme::checkpoint
