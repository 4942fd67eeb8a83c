// Image files that tests make with the libraries that also decode them.
#pragma once
#include <trireme/images/image.h>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>
#include <vector>

// Need <cstdio>.
#include <jpeglib.h>
#include <png.h>
#include <webp/encode.h>

namespace trireme::images {

using File = std::vector<std::byte>;

// Smooth colours with a little noise; the same for the same arguments.
inline Image painted(int64_t height, int64_t width, int64_t channels = 3, uint32_t seed = 1) {
  Image image;
  image.reshape(height, width, channels);
  uint32_t state = seed;
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < channels; ++c) {
        state = state * 1664525 + 1013904223;
        const int64_t wave = (x * (c + 3) + y * (5 - c)) % 200;
        const int64_t colour = 40 + (wave < 100 ? wave : 200 - wave) + (state >> 27);
        image.row(y)[x * channels + c] = static_cast<uint8_t>(colour);
      }
  return image;
}

struct JpegForm {
  int quality = 85, across = 2, down = 2;  // How many pixels share a colour.
  bool progressive = false;
  J_COLOR_SPACE space = JCS_YCbCr;
  int restart_rows = 0;
};

// `image` has 1, 3 or 4 channels; 4 are inks, as Adobe stores them.
inline File encoded_jpeg(const Image& image, JpegForm form = {}) {
  jpeg_compress_struct info;
  jpeg_error_mgr errors;
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.input_components = static_cast<int>(image.channels);
  info.in_color_space = image.channels == 1   ? JCS_GRAYSCALE
                        : image.channels == 3 ? JCS_RGB
                                              : JCS_CMYK;
  jpeg_set_defaults(&info);
  if (image.channels != 1) jpeg_set_colorspace(&info, form.space);
  jpeg_set_quality(&info, form.quality, TRUE);
  if (image.channels == 3) {
    info.comp_info[0].h_samp_factor = form.across;
    info.comp_info[0].v_samp_factor = form.down;
  }
  info.restart_in_rows = form.restart_rows;
  if (form.progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  for (int64_t y = 0; y < image.height; ++y) {
    auto* row = const_cast<JSAMPROW>(image.row(y));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  const auto* begin = reinterpret_cast<const std::byte*>(bytes);
  File file(begin, begin + size);
  std::free(bytes);
  jpeg_destroy_compress(&info);
  return file;
}

struct PngForm {
  int bits = 8;
  bool interlaced = false, palette = false;
  int texts = 0;  // Chunks that hold no pixels.
};

// `image` has 1 (grey), 2 (grey and alpha), 3 or 4 channels; with 16 bits the lower byte of a
// value is 255 minus the upper one. A palette's image has 1 channel, and colour i is (i, 255 - i,
// i / 2).
inline File encoded_png(const Image& image, PngForm form = {}) {
  File file;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &file,
      [](png_structp writer, png_bytep bytes, size_t count) {
        auto& out = *static_cast<File*>(png_get_io_ptr(writer));
        const auto* begin = reinterpret_cast<const std::byte*>(bytes);
        out.insert(out.end(), begin, begin + count);
      },
      [](png_structp) {});
  const int types[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                       PNG_COLOR_TYPE_RGB_ALPHA};
  const int type = form.palette ? PNG_COLOR_TYPE_PALETTE : types[image.channels - 1];
  png_set_IHDR(png, info, static_cast<png_uint_32>(image.width),
               static_cast<png_uint_32>(image.height), form.bits, type,
               form.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (form.palette) {
    png_color colours[256];
    for (int i = 0; i < 256; ++i)
      colours[i] = {static_cast<png_byte>(i), static_cast<png_byte>(255 - i),
                    static_cast<png_byte>(i / 2)};
    png_set_PLTE(png, info, colours, 1 << form.bits);
  }
  png_write_info(png, info);
  for (int i = 0; i < form.texts; ++i) {
    const png_byte text[] = {'k', 0, 'v'};
    png_write_chunk(png, reinterpret_cast<png_const_bytep>("tEXt"), text, sizeof text);
  }
  if (form.bits < 8) png_set_packing(png);
  std::vector<std::vector<uint8_t>> rows;
  std::vector<png_bytep> starts;
  for (int64_t y = 0; y < image.height; ++y) {
    std::vector<uint8_t> row;
    for (int64_t i = 0; i < image.row_bytes(); ++i) {
      const uint8_t value = image.row(y)[i];
      row.push_back(form.bits < 8 ? static_cast<uint8_t>(value >> (8 - form.bits)) : value);
      if (form.bits == 16) row.push_back(static_cast<uint8_t>(255 - value));
    }
    rows.push_back(std::move(row));
  }
  for (auto& row : rows) starts.push_back(row.data());
  png_write_image(png, starts.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return file;
}

inline File encoded_webp(const Image& image, bool lossless, float quality = 85) {
  uint8_t* bytes = nullptr;
  const int width = static_cast<int>(image.width), height = static_cast<int>(image.height);
  const int stride = static_cast<int>(image.row_bytes());
  size_t size = 0;
  if (image.channels == 4)
    size = lossless ? WebPEncodeLosslessRGBA(image.pixels.data(), width, height, stride, &bytes)
                    : WebPEncodeRGBA(image.pixels.data(), width, height, stride, quality, &bytes);
  else
    size = lossless ? WebPEncodeLosslessRGB(image.pixels.data(), width, height, stride, &bytes)
                    : WebPEncodeRGB(image.pixels.data(), width, height, stride, quality, &bytes);
  const auto* begin = reinterpret_cast<const std::byte*>(bytes);
  File file(begin, begin + size);
  WebPFree(bytes);
  return file;
}

// Every kind of file that is decoded, of an image whose sides are no multiples of a block.
inline std::vector<std::pair<std::string, File>> all_kinds(int64_t height = 75,
                                                           int64_t width = 93) {
  const Image rgb = painted(height, width), grey = painted(height, width, 1);
  const Image four = painted(height, width, 4), two = painted(height, width, 2);
  return {
      {"jpeg 4:2:0", encoded_jpeg(rgb)},
      {"jpeg 4:2:2", encoded_jpeg(rgb, {.across = 2, .down = 1})},
      {"jpeg 4:4:0", encoded_jpeg(rgb, {.across = 1, .down = 2})},
      {"jpeg 4:4:4", encoded_jpeg(rgb, {.across = 1, .down = 1})},
      {"jpeg 4:1:1", encoded_jpeg(rgb, {.across = 4, .down = 1})},
      {"jpeg progressive", encoded_jpeg(rgb, {.progressive = true})},
      {"jpeg with restarts", encoded_jpeg(rgb, {.restart_rows = 1})},
      {"jpeg of RGB", encoded_jpeg(rgb, {.across = 1, .down = 1, .space = JCS_RGB})},
      {"jpeg grey", encoded_jpeg(grey)},
      {"jpeg CMYK", encoded_jpeg(four, {.space = JCS_CMYK})},
      {"jpeg YCCK", encoded_jpeg(four, {.space = JCS_YCCK})},
      {"png", encoded_png(rgb)},
      {"png interlaced", encoded_png(rgb, {.interlaced = true})},
      {"png 16 bit", encoded_png(rgb, {.bits = 16})},
      {"png grey", encoded_png(grey)},
      {"png grey 2 bit", encoded_png(grey, {.bits = 2})},
      {"png grey 16 bit", encoded_png(grey, {.bits = 16})},
      {"png grey and alpha", encoded_png(two)},
      {"png alpha", encoded_png(four)},
      {"png palette", encoded_png(grey, {.palette = true})},
      {"png palette 4 bit interlaced",
       encoded_png(grey, {.bits = 4, .interlaced = true, .palette = true})},
      {"webp", encoded_webp(rgb, false)},
      {"webp lossless", encoded_webp(rgb, true)},
      {"webp alpha", encoded_webp(four, false)},
      {"webp lossless alpha", encoded_webp(four, true)},
  };
}

}  // namespace trireme::images
