// Makes samples for other processes: `trireme data serve`, and the server of a host.
//
// A request names the samples that it wants, and the server keeps no position. So a request may be
// repeated, and any server with the same data gives the same samples.
#pragma once
#include <trireme/data/service/facts.h>
#include <trireme/data/service/reply_senders.h>
#include <trireme/data/service/sample_maker.h>
#include <trireme/data/service/server_work.h>
#include <trireme/net/message.h>
#include <trireme/net/requests/request_server.h>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace trireme::data {

struct ServedPart {
  PartFacts facts;
  std::shared_ptr<const Source> source;  // Without the stages that mix the samples of a batch.
};

struct SampleServerOptions {
  net::Endpoint listen{"127.0.0.1", 0};
  std::string token;
  int threads = 1;
  int64_t bytes = int64_t{1} << 30;  // Those of the samples that are kept.
};

struct ServiceUse : MakerUse {
  int threads = 0;
  std::vector<std::pair<std::string, std::vector<StageUse>>> stages;  // By the part's name.
  int64_t served = 0, served_bytes = 0;                               // Samples that were sent.
  int64_t failed = 0;  // Requests that ended with an error.
  int clients = 0;
};
Json to_json(const ServiceUse& use);

class SampleServer {
 public:
  // Throws Error(io) naming the address, Error(invalid_argument) for an empty token.
  SampleServer(std::vector<ServedPart> parts, const SampleServerOptions& options);
  ~SampleServer();
  net::Endpoint endpoint() const { return requests_->endpoint(); }
  ServiceUse use() const;

 private:
  void handle(net::Request request, net::Responder responder);
  void compare(const Json& question, net::Responder& responder) const;
  std::vector<StageUse> stages_of(size_t part) const;
  ServerWork work_of(size_t part) const;
  void order(const Json& question, const std::string& client, net::Responder responder);

  const std::vector<ServedPart> parts_;
  const uint64_t start_;
  const int threads_;
  std::vector<std::atomic<int64_t>> served_of_part_;
  std::atomic<int64_t> served_{0}, served_bytes_{0}, failed_{0}, under_way_{0};
  ReplySenders senders_;
  std::unique_ptr<SampleMaker> maker_;
  std::unique_ptr<net::RequestServer> requests_;
};

}  // namespace trireme::data
