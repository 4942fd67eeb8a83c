// Requests and replies carry a small header of the user's, and tensors as plain bytes with
// their names, types and shapes.
#pragma once
#include <trireme/base/deadline.h>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace trireme::net {

// The facts of a tensor that travel in front of its bytes. The channel compares `bytes` with the
// receiver's memory. It passes the rest on and gives it no meaning.
struct TensorNote {
  std::string name;            // At most 65,535 bytes.
  std::string dtype;           // At most 255 bytes, for example "float32".
  std::vector<int64_t> shape;  // At most 255 dims.
  uint64_t bytes = 0;
};

// The part of a message that arrives before the bytes of its tensors.
struct Head {
  std::string header;  // Any bytes; mostly JSON.
  std::vector<TensorNote> tensors;
};

// A message to send. The data stays the caller's, and must not change until the call that sends it
// has returned.
struct Message {
  struct Tensor {
    TensorNote note;
    const void* data = nullptr;
  };
  std::string header;
  std::vector<Tensor> tensors;
};

// Memory into which tensors are received, one span for each tensor and of exactly its bytes.
using Places = std::vector<std::span<std::byte>>;

// Which way the bytes take.
enum class RequestPath {
  automatic,  // Shared memory if both ends are on one host, TCP otherwise.
  tcp,
  shm,  // Shared memory only: a peer on another host is an error.
};
// "auto", "tcp" or "shm". Throws Error(invalid_argument) naming the text.
RequestPath request_path_from_string(std::string_view text);
std::string_view to_string(RequestPath path);

// The limits of one end. Each end tells its own to the other one, so a message that is too large
// is refused before it is sent.
struct RequestLimits {
  int64_t max_header_bytes = 1 << 20;  // A header together with the notes of its tensors.
  int64_t max_payload_bytes = int64_t{64} << 30;  // All tensors of a message together.
};

// Options that a client and a server have in common.
struct ChannelOptions {
  RequestPath path = RequestPath::automatic;
  // A peer from which nothing was heard for this long is lost. Each end sends a sign of life three
  // times in the shorter of both ends' limits, also while requests wait. At least 30 ms.
  Milliseconds silence{10000};
  // The time for which a thread looks for bytes again and again before it sleeps. It saves the
  // time that waking costs (5 to 50 us), and takes a core meanwhile. 0: sleep at once.
  std::chrono::microseconds spin{50};
  int64_t ring_bytes = 1 << 20;  // Shared memory for each direction; the server decides.
  RequestLimits limits;
  // A client reaches only servers of the same service.
  std::string service = "requests";
};

}  // namespace trireme::net
