// The insides of a worker's side of parameter servers. Included by its sources alone.
#pragma once
#include <ATen/core/Tensor.h>

#include <trireme/comm/dtype.h>
#include <trireme/parallel/servers/server_client.h>
#include <algorithm>
#include <utility>

namespace trireme {

namespace servers {

inline std::byte* bytes_at(const at::Tensor& tensor, const plan::ServerPiece& piece) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr()) + piece.from * tensor.element_size();
}

// A piece of a contiguous tensor.
inline net::Message::Tensor message_of(const at::Tensor& tensor, const plan::ServerPiece& piece,
                                       std::string name = {}) {
  const auto bytes = static_cast<uint64_t>(piece.count * tensor.element_size());
  return {{std::move(name),
           std::string(plan::to_string(to_stored(tensor.scalar_type()))),
           {piece.count},
           bytes},
          bytes_at(tensor, piece)};
}

}  // namespace servers

}  // namespace trireme
