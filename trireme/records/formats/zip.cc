#include "zip.h"

#include <zlib.h>

#include <fmt/format.h>
#include <trireme/base/units.h>
#include <trireme/records/damage.h>
#include <algorithm>
#include <cstring>

namespace trireme::records {
namespace {

constexpr uint32_t kSmallIsFull = 0xffffffffU;  // The number is in the extra field of zip64.

Damage damaged_zip(std::string_view what) {
  return Damage(fmt::format("the zip file is damaged or cut: {}", what));
}

// Little-endian numbers at places of the file.
class ZipBytes {
 public:
  explicit ZipBytes(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <typename T>
  T at(uint64_t place) const {
    T number{};
    const auto from = part(place, sizeof number);
    std::memcpy(&number, from.data(), sizeof number);
    return number;
  }
  std::span<const std::byte> part(uint64_t place, uint64_t bytes) const {
    if (place > bytes_.size() || bytes > bytes_.size() - place)
      throw damaged_zip(fmt::format("{} bytes at byte {} are missing", bytes, place));
    return bytes_.subspan(place, bytes);
  }
  uint64_t size() const { return bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
};

struct Directory {
  uint64_t at = 0, members = 0;
};

Directory find_directory(const ZipBytes& zip) {
  constexpr uint64_t kEndBytes = 22, kLongestComment = 65535;
  constexpr uint32_t kEnd = 0x06054b50, kLocator = 0x07064b50, kEnd64 = 0x06064b50;
  const uint64_t lowest =
      zip.size() > kEndBytes + kLongestComment ? zip.size() - kEndBytes - kLongestComment : 0;
  for (uint64_t at = zip.size() >= kEndBytes ? zip.size() - kEndBytes + 1 : 0; at-- > lowest;) {
    if (zip.at<uint32_t>(at) != kEnd || at + kEndBytes + zip.at<uint16_t>(at + 20) != zip.size())
      continue;
    Directory directory{.at = zip.at<uint32_t>(at + 16), .members = zip.at<uint16_t>(at + 10)};
    constexpr uint64_t kLocatorBytes = 20;
    if (at >= kLocatorBytes && zip.at<uint32_t>(at - kLocatorBytes) == kLocator) {
      const auto end = zip.at<uint64_t>(at - kLocatorBytes + 8);
      if (zip.at<uint32_t>(end) != kEnd64) throw damaged_zip("zip64's end is not there");
      directory = {.at = zip.at<uint64_t>(end + 48), .members = zip.at<uint64_t>(end + 32)};
    }
    return directory;
  }
  throw damaged_zip("it has no end");
}

// The numbers of zip64 take the place of those that are full, in this order.
void read_zip64(std::span<const std::byte> extra, std::initializer_list<uint64_t*> numbers) {
  const ZipBytes fields(extra);
  for (uint64_t at = 0; at + 4 <= extra.size();) {
    const auto kind = fields.at<uint16_t>(at);
    const auto bytes = fields.at<uint16_t>(at + 2);
    uint64_t place = at + 4;
    if (kind == 1)
      for (uint64_t* const number : numbers)
        if (*number == kSmallIsFull) {
          *number = fields.at<uint64_t>(place);
          place += 8;
        }
    at += uint64_t{4} + bytes;
  }
}

}  // namespace

std::vector<ZipMember> members_of_zip(std::span<const std::byte> file) {
  const ZipBytes zip(file);
  const Directory directory = find_directory(zip);
  std::vector<ZipMember> members;
  uint64_t at = directory.at, packed_in_all = 0;
  for (uint64_t i = 0; i < directory.members; ++i) {
    if (zip.at<uint32_t>(at) != 0x02014b50) throw damaged_zip("an entry is not there");
    const auto flags = zip.at<uint16_t>(at + 8), method = zip.at<uint16_t>(at + 10);
    const auto name_bytes = zip.at<uint16_t>(at + 28), extra_bytes = zip.at<uint16_t>(at + 30),
               comment_bytes = zip.at<uint16_t>(at + 32);
    uint64_t packed_bytes = zip.at<uint32_t>(at + 20), bytes = zip.at<uint32_t>(at + 24);
    uint64_t local = zip.at<uint32_t>(at + 42);
    const auto name = zip.part(at + 46, name_bytes);
    read_zip64(zip.part(at + 46 + name_bytes, extra_bytes), {&bytes, &packed_bytes, &local});
    ZipMember member{.name = {reinterpret_cast<const char*>(name.data()), name.size()},
                     .is_deflated = method == 8,
                     .crc = zip.at<uint32_t>(at + 16),
                     .packed = {},
                     .bytes = bytes};
    if ((flags & 1) != 0 || (method != 0 && method != 8))
      throw Damage(
          fmt::format("member '{}' is encrypted, or packed by the method {}", member.name, method),
          "numpy.savez or numpy.savez_compressed", ErrorCode::unsupported);
    if (zip.at<uint32_t>(local) != 0x04034b50) throw damaged_zip("a member is not there");
    const uint64_t data = local + 30 + zip.at<uint16_t>(local + 26) + zip.at<uint16_t>(local + 28);
    member.packed = zip.part(data, packed_bytes);
    // Many entries for the same bytes would make much work and memory of a small file.
    packed_in_all += packed_bytes;
    if (packed_in_all > zip.size()) throw damaged_zip("its members overlap");
    if (!member.is_deflated && bytes != packed_bytes)
      throw damaged_zip(fmt::format("member '{}' has two sizes", member.name));
    members.push_back(std::move(member));
    at += uint64_t{46} + name_bytes + extra_bytes + comment_bytes;
  }
  return members;
}

std::shared_ptr<const Block> inflate_member(const ZipMember& member, const UnpackLimits& limits) {
  const int64_t left = limits.memory_bytes - limits.taken_bytes;
  if (member.bytes > static_cast<uint64_t>(left))
    throw Damage(fmt::format("member '{}' unpacks to {}, more than the {} that is left of the "
                             "memory for a file",
                             member.name, format_bytes(static_cast<int64_t>(member.bytes)),
                             format_bytes(left)),
                 "numpy.savez, whose members need no memory, or " + limits.remedy_of_memory,
                 ErrorCode::invalid_argument);
  if (limits.exceeds_ratio(member.packed.size(), member.bytes))
    throw Damage(fmt::format("member '{}' claims that {} bytes become {}, over {} times as many",
                             member.name, member.packed.size(), member.bytes, limits.max_ratio),
                 limits.remedy_of_ratio());
  auto block = std::make_shared<Block>();
  // One byte more than the member should have shows that it has more.
  const auto room = block->room(member.bytes + 1);
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
  auto packed = member.packed;
  uint64_t made = 0;
  int status = Z_OK;
  while (status == Z_OK && made <= member.bytes) {
    const auto in = static_cast<uInt>(std::min<size_t>(packed.size(), 1 << 30));
    const auto out = static_cast<uInt>(std::min<size_t>(member.bytes + 1 - made, 1 << 30));
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data()));
    stream.avail_in = in;
    stream.next_out = reinterpret_cast<Bytef*>(room.data() + made);
    stream.avail_out = out;
    status = inflate(&stream, Z_NO_FLUSH);
    packed = packed.subspan(in - stream.avail_in);
    made += out - stream.avail_out;
  }
  inflateEnd(&stream);
  block->add(std::min(made, member.bytes));
  if (status != Z_STREAM_END || made != member.bytes || crc32_of(block->bytes()) != member.crc)
    throw Damage(
        fmt::format("member '{}' is damaged: its size or its CRC-32 is wrong", member.name));
  block->shrink();
  return block;
}

uint32_t crc32_of(std::span<const std::byte> bytes) {
  return static_cast<uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace trireme::records
