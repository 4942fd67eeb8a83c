// Where a job is found through etcd: "etcd://HOST:PORT[,HOST:PORT...]/JOBNAME".
#pragma once
#include <trireme/net/message.h>
#include <string>
#include <vector>

namespace trireme::net {

struct EtcdUrl {
  std::vector<Endpoint>
      servers;      // At least one: the cluster's members, in the order in which they are asked.
  std::string job;  // Letters, digits, '.', '_' and '-'; 128 at most.
  std::string describe() const;  // The URL.
};

bool is_etcd_url(const std::string& text);  // By its beginning.
// Throws Error(invalid_argument) naming the text and what is wrong with it.
EtcdUrl parse_etcd_url(const std::string& text);

}  // namespace trireme::net
