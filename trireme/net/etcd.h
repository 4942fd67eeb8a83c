// A client of etcd's v3 interface, by its JSON gateway
// (https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway/): the few calls that finding a job's
// coordinator and electing the next one take. Plain HTTP, without users; what is stored there is no
// secret.
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

// Each call asks one server after the other, beginning with the one that answered last, until one
// answers: 1 s each at most, and all within the deadline. Throws Error(not_found) naming every
// server and what was wrong with it if none does, Error(io) for an answer that makes no sense.
// Reads see all that was written before. Not for several threads at once.
class Etcd {
 public:
  explicit Etcd(std::vector<Endpoint> servers) : servers_(std::move(servers)) {}

  struct Entry {
    std::string value;
    int64_t revision = 0;  // Of its last change.
    int64_t lease = 0;     // 0: it stays.
  };
  std::optional<Entry> get(const std::string& key, Deadline deadline);
  // Writes the key, to go with the lease, if its last change still was `revision` (0: it is not
  // there). False: it was not, or there is no such lease. Where an answer was lost on the way the
  // key may have been written all the same: get() tells.
  bool replace(const std::string& key, const std::string& value, int64_t lease, int64_t revision,
               Deadline deadline);
  int64_t grant(std::chrono::seconds time,
                Deadline deadline);  // A new lease; etcd makes it 2 s or longer.
  bool keep_alive(
      int64_t lease,
      Deadline deadline);  // For its whole time again. False: there is no such lease any more.
  void revoke(int64_t lease, Deadline deadline);  // With all its keys; also if it is gone.

  std::string local_address() const {
    return http_.local_address();
  }  // By which this host reaches etcd; empty before the first answer.

 private:
  std::optional<Json> call(const std::string& path, const Json& request, Deadline deadline);

  std::vector<Endpoint> servers_;
  size_t answers_ = 0;  // Who did last.
  HttpClient http_;
};

}  // namespace trireme::net
