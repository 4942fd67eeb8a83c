// Bytes that zlib has packed.
#pragma once
#include <zlib.h>
#include <string>
#include <string_view>

namespace trireme {

// `window_bits` choose the form, as for deflateInit2().
inline std::string deflated(std::string_view content, int window_bits) {
  z_stream stream{};
  deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, content.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

inline std::string gzipped(std::string_view content) { return deflated(content, 16 + MAX_WBITS); }

}  // namespace trireme
