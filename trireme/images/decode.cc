#include <trireme/images/decode.h>

#include <fmt/format.h>
#include <trireme/images/jpeg_layout.h>

namespace trireme::images {
namespace {

[[noreturn]] void throw_unknown(Bytes file) {
  if (file.empty()) throw Error(ErrorCode::corrupt, "images", "the image has no bytes");
  const auto begins = [file](std::string_view magic) {
    return file.size() >= magic.size() &&
           std::string_view(reinterpret_cast<const char*>(file.data()), magic.size()) == magic;
  };
  std::string name;
  if (begins("GIF8")) name = "GIF";
  if (begins("BM")) name = "BMP";
  if (begins("II*") || begins(std::string_view("MM\0*", 4))) name = "TIFF";
  std::string first;
  for (const std::byte byte : file.first(std::min<size_t>(file.size(), 8)))
    first += fmt::format("{}{:02x}", first.empty() ? "" : " ", std::to_integer<int>(byte));
  throw Error(ErrorCode::unsupported, "images",
              name.empty() ? fmt::format("the format of the image is unknown; its first bytes are "
                                         "{}, which begin no JPEG, PNG or WebP",
                                         first)
                           : fmt::format("the image is a {}, which cannot be decoded", name),
              "convert it to JPEG, PNG or WebP");
}

// Reads the markers of a JPEG into `jpeg`, so that its decoder need not read them again.
Header read_header_of(Bytes file, const DecodeLimits& limits, JpegLayout& jpeg) {
  Header header;
  if (is_jpeg(file))
    header = header_of(jpeg = read_jpeg_layout(file));
  else if (is_png(file))
    header = png_header(file);
  else if (is_webp(file))
    header = webp_header(file);
  else
    throw_unknown(file);
  if (header.height < 1 || header.width < 1)
    throw_corrupt(header.format,
                  fmt::format("its header says {}x{} pixels", header.height, header.width));
  // Sides have at most 32 bits, but their product may have more than 63.
  if (header.height > limits.pixels / header.width)
    throw Error(ErrorCode::invalid_argument, "images",
                fmt::format("the {} has {}x{} pixels, and at most {} are allowed", header.format,
                            header.height, header.width, limits.pixels),
                fmt::format("{}, or take it out of the data set", limits.more_pixels));
  return header;
}

}  // namespace

void throw_corrupt(std::string_view format, std::string_view cause) {
  throw Error(ErrorCode::corrupt, "images", fmt::format("the {} is damaged: {}", format, cause),
              "fetch the file anew, or take it out of the data set");
}

void throw_unsupported(std::string_view format, std::string_view cause, std::string_view remedy) {
  throw Error(ErrorCode::unsupported, "images", fmt::format("the {} {}", format, cause), remedy);
}

void throw_limit(std::string_view cause, std::string_view parts) {
  throw Error(
      ErrorCode::invalid_argument, "images", cause,
      fmt::format("write the file anew with fewer {}, or take it out of the data set", parts));
}

std::string versions_of_decoders() {
  // The first number is that of the functions of this folder: it changes when they give other
  // pixels.
  constexpr int kOfImages = 1;
  return fmt::format("images {}, {}, {}, {}", kOfImages, jpeg_version(), png_version(),
                     webp_version());
}

Header read_header(Bytes file, const DecodeLimits& limits) {
  JpegLayout jpeg;
  return read_header_of(file, limits, jpeg);
}

void decode(Bytes file, int channels, const DecodeLimits& limits, Image& into,
            std::optional<Crop> crop, std::optional<Size> least) {
  if (channels != 1 && channels != 3)
    throw Error(ErrorCode::invalid_argument, "images",
                fmt::format("an image is to have {} channels, but can have 1 or 3", channels),
                "1 for grey, or 3 for RGB");
  if (least && (least->height < 1 || least->width < 1))
    throw Error(
        ErrorCode::invalid_argument, "images",
        fmt::format("the least size is {}x{}, but must be positive", least->height, least->width),
        "the size to which the image is resized afterwards");
  Request request{.file = file,
                  .header = {},
                  .jpeg = {},
                  .channels = channels,
                  .limits = &limits,
                  .crop = {},
                  .least = least};
  request.header = read_header_of(file, limits, request.jpeg);
  const Size size{request.header.height, request.header.width};
  if (crop) check_crop(*crop, size);
  request.crop = crop.value_or(Crop{0, 0, size.height, size.width});
  if (request.header.format == "jpeg") return decode_jpeg(request, into);
  if (request.header.format == "png") return decode_png(request, into);
  return decode_webp(request, into);
}

}  // namespace trireme::images
