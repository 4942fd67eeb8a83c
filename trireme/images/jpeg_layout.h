// The facts in the markers of a JPEG before its pixels begin (ITU-T T.81, annex B).
#pragma once
#include <trireme/images/codecs.h>

namespace trireme::images {

struct JpegLayout {
  int64_t height = 0, width = 0;
  int components = 0;
  bool progressive = false;
  // All components come in one scan, and every table that it uses is in the file. A decoder that
  // has decoded other files then has nothing of theirs in use.
  bool stands_alone = false;
  size_t pixels_at = 0;  // The byte behind the header of the first scan.
};

// Reads the markers up to the first scan. Throws Error(corrupt) if they do not come so far, and
// Error(unsupported) for the kinds of JPEG that libjpeg-turbo cannot decode to bytes.
JpegLayout read_jpeg_layout(Bytes file);

// Whether the mark of the end stands behind the pixels' beginning.
bool has_jpeg_end(Bytes file, const JpegLayout& layout);

}  // namespace trireme::images
