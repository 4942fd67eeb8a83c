#include <trireme/parallel/servers/server_wire.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <cstring>

namespace trireme::servers {
namespace {

constexpr uint32_t kServerMark = 0x31735054;  // "TPs1"

struct RequestBytes {
  uint32_t mark = kServerMark;
  uint8_t call = 0;
  uint8_t unused[3] = {};
  int32_t worker = 0;
  int32_t unused_too = 0;
  int64_t clock = 0, samples = 0, known = 0;
};
static_assert(sizeof(RequestBytes) == 40, "sent as it lies in memory");

struct ReplyBytes {
  uint32_t mark = kServerMark;
  uint32_t is_unchanged = 0;
  int64_t version = 0, clock = 0;
};
static_assert(sizeof(ReplyBytes) == 24, "sent as it lies in memory");

template <typename Bytes>
Bytes bytes_in(std::string_view header) {
  Bytes bytes;
  if (header.size() >= sizeof bytes) std::memcpy(&bytes, header.data(), sizeof bytes);
  if (header.size() < sizeof bytes || bytes.mark != kServerMark)
    throw Error(ErrorCode::corrupt, "parallel",
                fmt::format("{} bytes that are no header of a parameter server", header.size()));
  return bytes;
}

template <typename Bytes>
std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(&bytes), sizeof bytes};
}

}  // namespace

std::string told_form(const plan::TensorSpec& tensor) {
  return fmt::format("{} {}", tensor.name, tensor.describe());
}

std::string encode(const ServerRequest& request) {
  RequestBytes bytes;
  bytes.call = static_cast<uint8_t>(request.call);
  bytes.worker = request.worker;
  bytes.clock = request.clock;
  bytes.samples = request.samples;
  bytes.known = request.known;
  return text_of(bytes) + std::string(request.text);
}

ServerRequest decode_request(std::string_view header) {
  const auto bytes = bytes_in<RequestBytes>(header);
  if (bytes.call < static_cast<uint8_t>(ServerCall::join) ||
      bytes.call > static_cast<uint8_t>(ServerCall::leave))
    throw Error(ErrorCode::corrupt, "parallel",
                fmt::format("a parameter server has no call {}", bytes.call));
  return {
      static_cast<ServerCall>(bytes.call), bytes.worker, bytes.clock, bytes.samples, bytes.known,
      header.substr(sizeof bytes)};
}

std::string encode(const ServerReply& reply) {
  ReplyBytes bytes;
  bytes.is_unchanged = reply.is_unchanged ? 1 : 0;
  bytes.version = reply.version;
  bytes.clock = reply.clock;
  return text_of(bytes);
}

ServerReply decode_reply(std::string_view header) {
  const auto bytes = bytes_in<ReplyBytes>(header);
  return {bytes.version, bytes.clock, bytes.is_unchanged != 0};
}

}  // namespace trireme::servers
