#include <fmt/format.h>
#include <trireme/images/codecs.h>
#include <algorithm>
#include <cstdio>
#include <cstring>

#include <png.h>

namespace trireme::images {
namespace {

constexpr size_t kSignature = 8;
constexpr size_t kAround = 12;  // Length, name and checksum of a chunk.

// Visits the chunks without their contents. So damage behind the pixels is found too, and chunks
// are counted before libpng sees them.
void check_chunks(Bytes file, int most) {
  int others = 0;
  for (size_t at = kSignature;;) {
    if (file.size() - at < kAround) throw_corrupt("png", "it is cut off");
    const auto length = static_cast<size_t>(big_endian(file, at, 4));
    if (length > file.size() - at - kAround) throw_corrupt("png", "it is cut off");
    const std::string_view name(reinterpret_cast<const char*>(file.data()) + at + 4, 4);
    if (name == "IEND") return;
    if (name != "IDAT" && ++others > most)
      throw_limit(fmt::format("the png has more than {} chunks besides its pixels", most),
                  "chunks");
    at += length + kAround;
  }
}

struct PngFailure {
  std::jmp_buf jump;
  char cause[160];
};

[[noreturn]] void png_fail(png_structp png, png_const_charp cause) {
  auto* failure = static_cast<PngFailure*>(png_get_error_ptr(png));
  std::snprintf(failure->cause, sizeof failure->cause, "%s", cause);
  std::longjmp(failure->jump, 1);
}

void png_ignore_warning(png_structp, png_const_charp) {}

void png_read_memory(png_structp png, png_bytep out, size_t count) {
  auto* rest = static_cast<Bytes*>(png_get_io_ptr(png));
  if (rest->size() < count) png_error(png, "it is cut off");
  std::memcpy(out, rest->data(), count);
  *rest = rest->subspan(count);
}

// One file. The destructor runs in any case, because no jump crosses the life of a PngFile.
class PngFile {
 public:
  explicit PngFile(Bytes file) : rest_(file) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &failure_, png_fail, png_ignore_warning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ != nullptr) return;
    png_destroy_read_struct(&png_, nullptr, nullptr);
    throw Error(ErrorCode::internal, "images", "libpng does not start");
  }
  PngFile(const PngFile&) = delete;
  PngFile& operator=(const PngFile&) = delete;
  ~PngFile() { png_destroy_read_struct(&png_, &info_, nullptr); }

  void decode(const Request& request, Image& into, Image& whole, std::vector<uint8_t*>& rows) {
    must([&] { begin(request); });
    const int64_t height = request.header.height, width = request.header.width;
    const auto stored = static_cast<int64_t>(png_get_channels(png_, info_));
    if (stored != 1 && stored != 3)
      throw_corrupt("png", fmt::format("its pixels become {} channels", stored));
    // An interlaced image is there as a whole before it has any row.
    const bool apart = !request.wants_all() || stored != request.channels;
    const bool at_once = passes_ > 1 || !apart;
    Image& target = apart ? whole : into;
    target.reshape(at_once ? height : 1, width, stored);
    const Crop& crop = request.crop;
    if (apart) into.reshape(crop.height, crop.width, request.channels);
    if (at_once) {
      rows.resize(static_cast<size_t>(height));
      for (int64_t y = 0; y < height; ++y) rows[static_cast<size_t>(y)] = target.row(y);
      must([&] {
        png_read_image(png_, rows.data());
        png_read_end(png_, nullptr);
      });
      for (int64_t y = 0; apart && y < crop.height; ++y)
        keep(whole.row(crop.top + y), crop, into, y, stored);
      return;
    }
    must([&] {
      for (int64_t y = 0; y < crop.top + crop.height; ++y) {
        png_read_row(png_, whole.row(0), nullptr);
        if (y >= crop.top) keep(whole.row(0), crop, into, y - crop.top, stored);
      }
      if (crop.top + crop.height == height) png_read_end(png_, nullptr);
    });
  }

 private:
  template <typename Step>
  void must(const Step& step) {
    if (!attempt(failure_.jump, step)) throw_corrupt("png", failure_.cause);
  }

  void begin(const Request& request) {
    png_set_read_fn(png_, &rest_, png_read_memory);
    // Texts and profiles may be compressed bombs. They are passed over.
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_set_user_limits(png_, static_cast<png_uint_32>(request.header.width),
                        static_cast<png_uint_32>(request.header.height));
    png_read_info(png_, info_);
    png_set_strip_16(png_);
    png_set_packing(png_);
    png_set_expand(png_);
    png_set_strip_alpha(png_);
    if (request.channels == 3) png_set_gray_to_rgb(png_);
    passes_ = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
  }

  static void keep(const uint8_t* row, const Crop& crop, Image& into, int64_t y, int64_t stored) {
    const uint8_t* from = row + crop.left * stored;
    uint8_t* out = into.row(y);
    if (stored == into.channels) {
      std::memcpy(out, from, static_cast<size_t>(into.row_bytes()));
      return;
    }
    for (int64_t x = 0; x < crop.width; ++x) out[x] = grey_of(from + 3 * x);
  }

  Bytes rest_;
  PngFailure failure_{};
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  int passes_ = 1;
};

}  // namespace

bool is_png(Bytes file) {
  return file.size() >= kSignature && big_endian(file, 0, 4) == 0x89504e47 &&
         big_endian(file, 4, 4) == 0x0d0a1a0a;
}

Header png_header(Bytes file) {
  if (file.size() < kSignature + kAround + 13 || big_endian(file, 12, 4) != 0x49484452)
    throw_corrupt("png", "it is cut off in its header");
  const int64_t kind = big_endian(file, 25, 1);
  const int64_t channels = kind == 0 ? 1 : kind == 4 ? 2 : kind == 6 ? 4 : 3;
  return {.format = "png",
          .height = big_endian(file, 20, 4),
          .width = big_endian(file, 16, 4),
          .channels = channels};
}

std::string png_version() { return fmt::format("libpng {}", png_get_libpng_ver(nullptr)); }

void decode_png(const Request& request, Image& into) {
  static thread_local Image whole;
  static thread_local std::vector<uint8_t*> rows;
  check_chunks(request.file, request.limits->png_chunks);
  PngFile(request.file).decode(request, into, whole, rows);
}

}  // namespace trireme::images
