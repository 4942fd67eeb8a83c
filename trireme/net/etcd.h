// A client of etcd's v3 interface, over its JSON gateway
// (https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway/). It has the few calls that bind a job's
// name to its coordinator and find it. It uses plain HTTP without users, because nothing that is
// stored there is secret.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/base/json.h>
#include <trireme/net/http.h>
#include <trireme/net/message.h>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme::net {

// Each call asks the servers one after the other until one answers, and starts with the one that
// answered last. A server has at most 1 s, and the deadline bounds the whole call. Throws
// Error(not_found) naming every server and its failure if none answers, and Error(io) for an
// answer that has no meaning. Reads see all earlier writes. Only one thread at a time may use an
// object.
class Etcd {
 public:
  explicit Etcd(std::vector<Endpoint> servers) : servers_(std::move(servers)) {}

  struct Entry {
    std::string value;
    int64_t revision = 0;  // The revision of the entry's last change.
    int64_t lease = 0;     // 0: the entry has no lease and stays.
  };
  std::optional<Entry> get(const std::string& key, Deadline deadline);
  // Writes the key and binds it to the lease, if `revision` is still that of its last change (0:
  // the key does not exist). Returns false if it is not, or if the lease does not exist. If the
  // answer is lost on the way, the key may have been written nevertheless; get() tells.
  bool replace(const std::string& key, const std::string& value, int64_t lease, int64_t revision,
               Deadline deadline);
  // Makes a new lease; etcd makes it 2 s or longer.
  int64_t grant(std::chrono::seconds time, Deadline deadline);
  // Renews the lease for its whole time. False: the lease does not exist any more.
  bool keep_alive(int64_t lease, Deadline deadline);
  // Removes the lease with all its keys. A lease that does not exist is no error.
  void revoke(int64_t lease, Deadline deadline);

  // The address by which this host reaches etcd; empty before the first answer.
  std::string local_address() const { return http_.local_address(); }

 private:
  std::optional<Json> call(const std::string& path, const Json& request, Deadline deadline);

  std::vector<Endpoint> servers_;
  size_t answers_ = 0;  // The server that answered last.
  HttpClient http_;
};

}  // namespace trireme::net
