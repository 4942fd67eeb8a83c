#include <trireme/images/jpeg_layout.h>

#include <fmt/format.h>
#include <bitset>

namespace trireme::images {
namespace {

constexpr int kQuantTables = 0xdb, kHuffmanTables = 0xc4, kScan = 0xda, kEnd = 0xd9;

// The second bytes of markers that have no length behind them.
bool stands_without_length(int marker) {
  return marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8);
}

bool is_frame(int marker) {
  return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

// The tables that a file has defined, and those that its frame and its scan name.
struct Tables {
  std::bitset<16> quant, huffman, used_quant, used_huffman;

  void define_quant(Bytes body) {
    while (!body.empty()) {
      const int head = std::to_integer<int>(body[0]);
      const size_t length = head >> 4 ? 129 : 65;
      if (body.size() < length) return;
      quant.set(static_cast<size_t>(head & 15));
      body = body.subspan(length);
    }
  }
  // Numbers 0 to 3 are those of DC, and 8 to 11 those of AC.
  void define_huffman(Bytes body) {
    while (body.size() >= 17) {
      const int head = std::to_integer<int>(body[0]);
      size_t length = 17;
      for (size_t i = 1; i <= 16; ++i) length += std::to_integer<size_t>(body[i]);
      if (body.size() < length) return;
      huffman.set(static_cast<size_t>((head >> 4 ? 8 : 0) + (head & 7)));
      body = body.subspan(length);
    }
  }
  bool cover_all_uses() const {
    return (used_quant & ~quant).none() && (used_huffman & ~huffman).none();
  }
};

void read_frame(Bytes body, int marker, JpegLayout& layout, Tables& tables) {
  if (marker > 0xc2 && marker != 0xc9 && marker != 0xca)
    throw_unsupported("jpeg", "is lossless or hierarchical, which is not decoded",
                      "store it as a baseline or progressive JPEG, or as PNG");
  if (body.size() < 6) throw_corrupt("jpeg", "the header of its frame is too short");
  const int64_t precision = big_endian(body, 0, 1);
  if (precision != 8)
    throw_unsupported("jpeg", fmt::format("has {} bits in a sample, and 8 are decoded", precision),
                      "store it with 8 bits, or as PNG");
  layout.height = big_endian(body, 1, 2);
  layout.width = big_endian(body, 3, 2);
  layout.components = static_cast<int>(big_endian(body, 5, 1));
  layout.progressive = marker == 0xc2 || marker == 0xca;
  if (layout.height == 0)
    throw_unsupported("jpeg", "says its height behind the pixels, which is not decoded",
                      "store it anew");
  const auto components = static_cast<size_t>(layout.components);
  if (components < 1 || components > 4 || body.size() < 6 + 3 * components)
    throw_corrupt("jpeg", fmt::format("its frame has {} components", layout.components));
  tables.used_quant.reset();
  for (size_t i = 0; i < components; ++i)
    tables.used_quant.set(std::to_integer<size_t>(body[6 + 3 * i + 2]) & 15);
}

bool scan_has_all(Bytes body, const JpegLayout& layout, Tables& tables) {
  const auto components = static_cast<size_t>(layout.components);
  if (body.empty() || std::to_integer<size_t>(body[0]) != components ||
      body.size() < 1 + 2 * components)
    return false;
  for (size_t i = 0; i < components; ++i) {
    const auto used = std::to_integer<size_t>(body[1 + 2 * i + 1]);
    tables.used_huffman.set(used >> 4 & 7);
    tables.used_huffman.set(8 + (used & 7));
  }
  return true;
}

}  // namespace

bool is_jpeg(Bytes file) { return file.size() >= 3 && big_endian(file, 0, 3) == 0xffd8ff; }

JpegLayout read_jpeg_layout(Bytes file) {
  JpegLayout layout;
  Tables tables;
  size_t at = 2;
  bool huffman_coded = true;
  for (;;) {
    // Markers may have filling bytes before them, and some files have rubbish there.
    while (at < file.size() && file[at] != std::byte{0xff}) ++at;
    while (at < file.size() && file[at] == std::byte{0xff}) ++at;
    if (at >= file.size()) throw_corrupt("jpeg", "it is cut off before its pixels begin");
    const int marker = std::to_integer<int>(file[at++]);
    if (marker == 0 || stands_without_length(marker)) continue;
    if (marker == kEnd) throw_corrupt("jpeg", "it ends before its pixels begin");
    if (file.size() - at < 2) throw_corrupt("jpeg", "it is cut off before its pixels begin");
    const auto length = static_cast<size_t>(big_endian(file, at, 2));
    if (length < 2 || length > file.size() - at)
      throw_corrupt("jpeg", "it is cut off before its pixels begin");
    const Bytes body = file.subspan(at + 2, length - 2);
    at += length;
    if (marker == kQuantTables) tables.define_quant(body);
    if (marker == kHuffmanTables) tables.define_huffman(body);
    if (is_frame(marker)) {
      if (layout.components > 0) throw_corrupt("jpeg", "it has two frames");
      read_frame(body, marker, layout, tables);
      huffman_coded = marker < 0xc9;
    }
    if (marker == kScan) {
      if (layout.components == 0) throw_corrupt("jpeg", "its pixels begin before their header");
      layout.stands_alone = scan_has_all(body, layout, tables) && tables.cover_all_uses() &&
                            huffman_coded && !layout.progressive;
      layout.pixels_at = at;
      return layout;
    }
  }
}

bool has_jpeg_end(Bytes file, const JpegLayout& layout) {
  // The mark is at the end of nearly all files, so the search begins there.
  const std::string_view pixels(reinterpret_cast<const char*>(file.data()) + layout.pixels_at,
                                file.size() - layout.pixels_at);
  return pixels.rfind("\xff\xd9") != std::string_view::npos;
}

Header header_of(const JpegLayout& layout) {
  return {.format = "jpeg",
          .height = layout.height,
          .width = layout.width,
          .channels = layout.components};
}

}  // namespace trireme::images
