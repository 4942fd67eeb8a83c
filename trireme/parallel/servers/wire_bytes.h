// Headers of calls between workers and servers, as they lie in memory. A header begins with a
// mark, by which the receiver knows its kind.
#pragma once
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

// The numbers of tables, behind the bytes of a header.
inline std::string with_tables(std::string header, const std::vector<int32_t>& tables) {
  return header.append(reinterpret_cast<const char*>(tables.data()),
                       tables.size() * sizeof(int32_t));
}

// Returns them and the text behind them. Throws Error(corrupt) if the header is shorter.
inline std::pair<std::vector<int32_t>, std::string_view> tables_in(std::string_view header,
                                                                   size_t from, uint32_t count) {
  const std::string_view rest = header.substr(from);
  const size_t bytes = count * sizeof(int32_t);
  if (rest.size() < bytes)
    throw Error(ErrorCode::corrupt, "parallel",
                fmt::format("a header of {} bytes lists {} tables", header.size(), count));
  std::vector<int32_t> tables(count);
  if (bytes > 0) std::memcpy(tables.data(), rest.data(), bytes);
  return {std::move(tables), rest.substr(bytes)};
}

}  // namespace trireme::servers
