// Bytes that zstd has packed.
#pragma once
#include <zstd.h>
#include <string>
#include <string_view>

namespace trireme {

inline std::string zstd_packed(std::string_view content) {
  std::string packed(ZSTD_compressBound(content.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), content.data(), content.size(), 3));
  return packed;
}

}  // namespace trireme
