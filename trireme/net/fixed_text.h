// Text in shared memory: a fixed number of bytes that ends with a zero.
#pragma once
#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

namespace trireme::net {

// Cuts the text if it does not fit.
template <size_t Size>
void write_text(std::array<char, Size>& target, std::string_view text) {
  const size_t length = std::min(text.size(), Size - 1);
  std::memcpy(target.data(), text.data(), length);
  target[length] = 0;
}

}  // namespace trireme::net
