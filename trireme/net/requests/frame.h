// The frames of a request channel.
//
//   prefix    FramePrefix, 40 bytes
//   header    the user's bytes
//   notes     name, dtype, shape and bytes of each tensor
//   payload   the bytes of all tensors, one after the other
//
// All numbers are little endian. Only the prefix of a reply tells to which request it belongs, so
// replies come in any order. Frames are not signed: like links of the `tcp` backend, the channel
// proves the job token once (docs/security.md).
#pragma once
#include <trireme/base/error.h>
#include <trireme/net/requests/message.h>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme::net {

enum class FrameKind : uint8_t {
  request = 1,
  reply,
  failure,  // An answer without tensors: its header is the text and the remedy, its code the
            // error.
  cancel,   // The client no longer waits for the answer to this request.
  alive,    // A sign of life; nothing follows.
};

inline constexpr uint32_t kFrameMark = 0x31715254;  // "TRq1"
inline constexpr uint32_t kMaxTensors = 65536;

struct FramePrefix {
  uint32_t mark = kFrameMark;
  FrameKind kind = FrameKind::alive;
  uint8_t code = 0;  // The ErrorCode of a failure.
  uint16_t unused = 0;
  uint64_t id = 0;
  uint32_t header_bytes = 0;
  uint32_t notes_bytes = 0;
  uint64_t tensors = 0;
  uint64_t payload_bytes = 0;
};
static_assert(sizeof(FramePrefix) == 40, "sent as it lies in memory");

// Prefix, header and notes of a message. The payload follows from its own memory.
std::vector<std::byte> encode_front(FrameKind kind, uint64_t id, const Message& message);
std::vector<std::byte> encode_failure(uint64_t id, ErrorCode code, std::string_view what,
                                      std::string_view remedy);
std::vector<std::byte> encode_bare(FrameKind kind, uint64_t id);

// Throws Error(corrupt) for a prefix that no sender of ours writes, or that is over the limits.
void check_prefix(const FramePrefix& prefix, const RequestLimits& limits);
// `front` is the header and the notes. Throws Error(corrupt).
Head decode_head(const FramePrefix& prefix, std::span<const std::byte> front);

// Names a message in an error.
using NameMessage = std::function<std::string()>;
// Throws Error(invalid_argument) if the message is over the receiver's limits.
void check_message(const NameMessage& what, const Message& message, const RequestLimits& limits);
// Throws Error(invalid_argument) naming the first tensor whose memory has another size.
void check_places(const NameMessage& what, const Head& head, const Places& places);

// The error that a failure tells, with `who` in front of its text.
std::exception_ptr error_of_failure(const FramePrefix& prefix, const Head& head,
                                    const std::string& who);

}  // namespace trireme::net
