// The insides of a worker's side of parameter servers. Included by its sources alone.
#pragma once
#include <ATen/core/Tensor.h>

#include <trireme/comm/dtype.h>
#include <trireme/parallel/servers/server_client.h>
#include <algorithm>
#include <utility>

namespace trireme {

struct ServerClient::Server {
  std::unique_ptr<net::RequestClient> client;
  std::vector<plan::ServerPiece> pieces;
};

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

template <typename Make>
std::vector<net::Reply> ServerClient::ask_all(const char* name, size_t first, Deadline deadline,
                                              const Make& make) {
  std::vector<net::PendingReply> pending;
  for (size_t i = first; i < servers_.size(); ++i)
    pending.push_back(servers_[i]->client->start(make(i), parameters_of(i), deadline, name));
  // Nothing is taken unless all have answered, so that the same call can be made again.
  std::vector<net::Reply> replies;
  for (net::PendingReply& each : pending) replies.push_back(each.wait(deadline));
  return replies;
}

}  // namespace trireme
