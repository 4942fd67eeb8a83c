// The functions that decode.cc asks of the formats. Nothing else includes this.
#pragma once
#include <trireme/base/error.h>
#include <trireme/images/decode.h>
#include <csetjmp>
#include <string>

namespace trireme::images {

using Bytes = std::span<const std::byte>;

// The facts in the markers of a JPEG before its pixels begin.
struct JpegLayout {
  int64_t height = 0, width = 0;
  int components = 0;
  bool progressive = false;
  // All components come in one scan, and every table that it uses is in the file. A decoder that
  // has decoded other files then has nothing of theirs in use.
  bool stands_alone = false;
  size_t pixels_at = 0;  // The byte behind the header of the first scan.
};

struct Request {
  Bytes file;
  Header header;
  JpegLayout jpeg;  // Only a JPEG has one.
  int channels = 3;
  const DecodeLimits* limits = nullptr;
  Crop crop;  // The whole image, if the caller wants all of it.
  std::optional<Size> least;

  bool wants_all() const { return crop.height == header.height && crop.width == header.width; }
};

bool is_jpeg(Bytes file);
bool is_png(Bytes file);
bool is_webp(Bytes file);
Header png_header(Bytes file);
Header webp_header(Bytes file);
void decode_jpeg(const Request& request, Image& into);
void decode_png(const Request& request, Image& into);
void decode_webp(const Request& request, Image& into);
// The library of a format, as versions_of_decoders() names it.
std::string jpeg_version();
std::string png_version();
std::string webp_version();

[[noreturn]] void throw_corrupt(std::string_view format, std::string_view cause);
[[noreturn]] void throw_unsupported(std::string_view format, std::string_view cause,
                                    std::string_view remedy);
[[noreturn]] void throw_limit(std::string_view cause, std::string_view parts);

// ITU-R 601, in integers.
inline uint8_t grey_of(const uint8_t* rgb) {
  return static_cast<uint8_t>((19595U * rgb[0] + 38470U * rgb[1] + 7471U * rgb[2] + 32768U) >> 16);
}

inline int64_t big_endian(Bytes file, size_t at, int bytes) {
  int64_t value = 0;
  for (int i = 0; i < bytes; ++i)
    value = value << 8 | std::to_integer<int64_t>(file[at + static_cast<size_t>(i)]);
  return value;
}

// Calls `step`, which calls a library of C that reports errors by longjmp(jump). Returns whether
// it came to its end. A jump skips destructors, so `step` has no locals that need one, and nothing
// in it throws.
template <typename Step>
__attribute__((noinline)) bool attempt(std::jmp_buf& jump, const Step& step) {
  if (setjmp(jump) != 0) return false;
  step();
  return true;
}

}  // namespace trireme::images
