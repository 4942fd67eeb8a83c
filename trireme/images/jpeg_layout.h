// Reads the markers of a JPEG before its pixels begin (ITU-T T.81, annex B).
#pragma once
#include <trireme/images/codecs.h>

namespace trireme::images {

// Reads up to the first scan. Throws Error(corrupt) if the file ends before it, and
// Error(unsupported) for the kinds of JPEG that libjpeg-turbo cannot decode to bytes.
JpegLayout read_jpeg_layout(Bytes file);

Header header_of(const JpegLayout& layout);

// Whether the mark of the end stands behind the pixels' beginning.
bool has_jpeg_end(Bytes file, const JpegLayout& layout);

}  // namespace trireme::images
