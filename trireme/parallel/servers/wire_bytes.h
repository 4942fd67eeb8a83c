// Headers of calls between workers and servers, as they lie in memory. A header begins with a
// mark, by which the receiver knows its kind.
#pragma once
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <cstring>
#include <string>
#include <string_view>

namespace trireme::servers {

template <typename Bytes>
std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(&bytes), sizeof bytes};
}

// `Bytes` has its mark as the initial value. Throws Error(corrupt), which names the kind of
// server, if the header is too short or begins with another mark.
template <typename Bytes>
Bytes bytes_in(std::string_view header, std::string_view server) {
  Bytes bytes;
  const auto mark = bytes.mark;
  if (header.size() >= sizeof bytes) std::memcpy(&bytes, header.data(), sizeof bytes);
  if (header.size() < sizeof bytes || bytes.mark != mark)
    throw Error(ErrorCode::corrupt, "parallel",
                fmt::format("{} bytes that are no header of a {}", header.size(), server));
  return bytes;
}

}  // namespace trireme::servers
