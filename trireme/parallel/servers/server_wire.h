// The messages between a worker and a parameter server, as headers of the request channel
// (trireme/net/requests/). Tensors follow in the order of the server's pieces.
#pragma once
#include <trireme/plan/tensor_spec.h>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::servers {

enum class ServerCall : uint8_t {
  join = 1,    // Text: JSON with the model as the worker has it. The answer has its first step.
  initialise,  // The first values of all pieces. Those of the first worker that sends them count.
  push,        // Gradients of a step.
  pull,        // Parameters to begin a step with.
  push_pull,   // Both: a push, and a pull of the next step.
  leave,       // The worker pushes no more.
};

// A tensor of the model in a call of join: "conv1.weight float32[16, 3]".
std::string told_form(const plan::TensorSpec& tensor);

// All numbers are little endian, as they lie in memory.
struct ServerRequest {
  ServerCall call = ServerCall::pull;
  int32_t worker = 0;
  int64_t clock = 0;    // push: the step of the gradients. pull: the step to begin.
  int64_t samples = 0;  // push: the samples whose mean the gradients are.
  int64_t known = -1;   // pull: the version that the worker has; -1: none.
  std::string_view text;
};
std::string encode(const ServerRequest& request);
// Throws Error(corrupt) if it is no such header.
ServerRequest decode_request(std::string_view header);

struct ServerReply {
  int64_t version = 0;  // The parameters that come with it, or that the worker has, have it.
  int64_t clock = 0;    // The step to begin.
  // The worker has this version, so no tensors come; or its first values do not count.
  bool is_unchanged = false;
};
std::string encode(const ServerReply& reply);
ServerReply decode_reply(std::string_view header);  // Throws Error(corrupt).

}  // namespace trireme::servers
