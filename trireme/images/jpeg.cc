#include <fmt/format.h>
#include <trireme/images/jpeg_layout.h>
#include <algorithm>
#include <cstdio>
#include <cstring>

// Needs <cstdio>.
#include <jerror.h>
#include <jpeglib.h>

namespace trireme::images {
namespace {

struct Failure {
  jpeg_error_mgr manager;  // First, because libjpeg knows this part only.
  std::jmp_buf jump;
  char cause[JMSG_LENGTH_MAX];
};

[[noreturn]] void fail(j_common_ptr info) {
  auto* failure = reinterpret_cast<Failure*>(info->err);
  failure->manager.format_message(info, failure->cause);
  std::longjmp(failure->jump, 1);
}

// libjpeg warns where it invents pixels for lost data. Here that is an error. Harmless warnings
// stay without consequence: rubbish between markers, and markers of unknown versions.
void judge_warning(j_common_ptr info, int level) {
  if (level >= 0) return;
  switch (info->err->msg_code) {
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_JFIF_MAJOR:
    case JWRN_ADOBE_XFORM:
    case JWRN_TOO_MUCH_DATA: return;
    default: fail(info);
  }
}

void print_nothing(j_common_ptr) {}

struct ScanLimit {
  jpeg_progress_mgr manager;
  int scans;
  bool passed;
};

void watch_scans(j_common_ptr info) {
  auto* limit = reinterpret_cast<ScanLimit*>(info->progress);
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= limit->scans) return;
  limit->passed = true;
  std::longjmp(reinterpret_cast<Failure*>(info->err)->jump, 1);
}

constexpr size_t kLine = 64, kOffset = 8;  // Of the caches; of a row that is not aligned.

// The rows and columns that are read, in pixels of the scaled image.
struct Region {
  JDIMENSION top, bottom, left, right;
};

// The decoder of a thread. It is made anew after an error, and for files that could make use of
// tables of an earlier file.
class JpegDecoder {
 public:
  ~JpegDecoder() { forget(); }

  void decode(const Request& request, Image& into) {
    const JpegLayout& layout = request.jpeg;
    if (!request.wants_all() && !has_jpeg_end(request.file, layout))
      throw_corrupt("jpeg", "it is cut off: its mark of the end is missing");
    if (!layout.stands_alone) forget();
    scan_limit_ = {{watch_scans, 0, 0, 0, 0}, request.limits->jpeg_scans, false};
    if (!attempt(failure_.jump, [&] { begin(request); })) refuse(request);
    try {
      prepare(request, into);
    } catch (...) {
      forget();  // Its header has been read, and the next file needs a decoder at its beginning.
      throw;
    }
    if (!attempt(failure_.jump, [&] { read(into); })) refuse(request);
    if (!layout.stands_alone) forget();
  }

 private:
  void begin(const Request& request);
  void prepare(const Request& request, Image& into);
  void read(Image& into);
  void read_rows(Image& into);
  void keep(const uint8_t* row, uint8_t* out) const;
  [[noreturn]] void refuse(const Request& request);

  void forget() {
    if (made_) jpeg_destroy_decompress(&info_);
    made_ = false;
  }

  jpeg_decompress_struct info_{};
  Failure failure_{};
  ScanLimit scan_limit_{};
  bool made_ = false;
  Region region_{};
  bool inks_ = false;
  int channels_ = 3;
  JDIMENSION first_column_ = 0;  // The column at which the decoder's rows begin.
  std::vector<uint8_t> row_;
};

void JpegDecoder::begin(const Request& request) {
  if (!made_) {
    info_.err = jpeg_std_error(&failure_.manager);
    failure_.manager.error_exit = fail;
    failure_.manager.emit_message = judge_warning;
    failure_.manager.output_message = print_nothing;
    jpeg_create_decompress(&info_);
    made_ = true;
  }
  info_.progress = &scan_limit_.manager;
  jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(request.file.data()),
               request.file.size());
  jpeg_read_header(&info_, TRUE);
  channels_ = request.channels;
  inks_ = info_.num_components == 4;
  info_.out_color_space = inks_ ? JCS_CMYK : request.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  if (request.least) {
    unsigned by = 1;
    while (by < 8 && request.crop.height / (2 * by) >= request.least->height &&
           request.crop.width / (2 * by) >= request.least->width)
      by *= 2;
    info_.scale_num = 8 / by;
    info_.scale_denom = 8;
  }
  jpeg_calc_output_dimensions(&info_);
}

void JpegDecoder::prepare(const Request& request, Image& into) {
  // The budget was compared with the sizes of our own reading of the markers.
  if (info_.image_height != request.header.height || info_.image_width != request.header.width)
    throw_corrupt("jpeg", "its markers can be read in two ways");
  const Crop& crop = request.crop;
  const auto by = static_cast<int64_t>(request.least ? 8 / info_.scale_num : 1);
  const auto ends_at = [by](int64_t full, JDIMENSION most) {
    return std::min(static_cast<JDIMENSION>((full + by - 1) / by), most);
  };
  region_ = {static_cast<JDIMENSION>(crop.top / by),
             ends_at(crop.top + crop.height, info_.output_height),
             static_cast<JDIMENSION>(crop.left / by),
             ends_at(crop.left + crop.width, info_.output_width)};
  into.reshape(region_.bottom - region_.top, region_.right - region_.left, request.channels);
  row_.resize(size_t{info_.output_width} * 4 + kOffset + kLine);
}

void JpegDecoder::read(Image& into) {
  jpeg_start_decompress(&info_);
  first_column_ = 0;
  read_rows(into);
  // Rows below the crop are not decoded.
  if (info_.output_scanline < info_.output_height)
    jpeg_abort_decompress(&info_);
  else
    jpeg_finish_decompress(&info_);
}

void JpegDecoder::read_rows(Image& into) {
  // The smooth upsampling of colours looks at the neighbours of a pixel. With a margin around the
  // crop its edges have the same neighbours as in the whole image.
  constexpr JDIMENSION kMargin = 2;
  const JDIMENSION left = region_.left - std::min(region_.left, kMargin);
  const JDIMENSION right = std::min(region_.right + kMargin, info_.output_width);
  if (right - left < info_.output_width) {
    JDIMENSION width = right - left;
    first_column_ = left;
    jpeg_crop_scanline(&info_, &first_column_, &width);
  }
  const JDIMENSION top = region_.top - std::min(region_.top, kMargin);
  if (top > 0) jpeg_skip_scanlines(&info_, top);
  // libjpeg-turbo writes to an aligned row past the caches, from where it is read again at once.
  JSAMPROW row = row_.data();
  row += (kLine - reinterpret_cast<uintptr_t>(row) % kLine) % kLine + kOffset;
  while (info_.output_scanline < region_.bottom) {
    const JDIMENSION y = info_.output_scanline;
    if (jpeg_read_scanlines(&info_, &row, 1) == 1 && y >= region_.top)
      keep(row, into.row(static_cast<int64_t>(y - region_.top)));
  }
}

void JpegDecoder::keep(const uint8_t* row, uint8_t* out) const {
  const size_t width = region_.right - region_.left, skipped = region_.left - first_column_;
  if (!inks_) {
    const auto bytes = static_cast<size_t>(info_.out_color_components);
    std::memcpy(out, row + skipped * bytes, width * bytes);
    return;
  }
  // Adobe stores how much light is left, the others how much ink there is.
  const unsigned flip = info_.saw_Adobe_marker ? 0 : 255;
  const uint8_t* ink = row + 4 * skipped;
  for (size_t x = 0; x < width; ++x, ink += 4) {
    uint8_t rgb[3];
    for (int c = 0; c < 3; ++c) {
      const unsigned product = (ink[c] ^ flip) * (ink[3] ^ flip) + 127;
      rgb[c] = static_cast<uint8_t>(product / 255);
    }
    if (channels_ == 1)
      *out++ = grey_of(rgb);
    else
      out = std::copy_n(rgb, 3, out);
  }
}

void JpegDecoder::refuse(const Request& request) {
  forget();
  if (scan_limit_.passed)
    throw_limit(fmt::format("the jpeg has more than {} scans", request.limits->jpeg_scans),
                "scans");
  throw_corrupt("jpeg", failure_.cause);
}

}  // namespace

std::string jpeg_version() {
  std::string version = fmt::format("libjpeg {}", JPEG_LIB_VERSION);
#ifdef LIBJPEG_TURBO_VERSION_NUMBER
  version += fmt::format(" turbo {}", LIBJPEG_TURBO_VERSION_NUMBER);
#endif
  // The library that runs tells of itself in two of its messages alone.
  jpeg_error_mgr messages;
  jpeg_std_error(&messages);
  return fmt::format("{} ({}, {})", version, messages.jpeg_message_table[JMSG_VERSION],
                     messages.jpeg_message_table[JMSG_COPYRIGHT]);
}

void decode_jpeg(const Request& request, Image& into) {
  static thread_local JpegDecoder decoder;
  decoder.decode(request, into);
}

}  // namespace trireme::images
