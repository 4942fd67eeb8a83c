// The URL under which etcd knows a job: "etcd://HOST:PORT[,HOST:PORT...]/JOBNAME".
#pragma once
#include <trireme/net/message.h>
#include <string>
#include <vector>

namespace trireme::net {

struct EtcdUrl {
  // At least one: the members of the cluster, in the order in which they are asked.
  std::vector<Endpoint> servers;
  std::string job;               // Letters, digits, '.', '_' and '-'; at most 128 characters.
  std::string describe() const;  // The URL.
};

bool is_etcd_url(const std::string& text);  // Whether the text begins like such a URL.
// Throws Error(invalid_argument) naming the text and the part that is wrong.
EtcdUrl parse_etcd_url(const std::string& text);

}  // namespace trireme::net
