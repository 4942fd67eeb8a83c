// The worker's side of data.service: asks servers for samples, and makes them itself where no
// server gives them in time. The samples are the same, whoever makes them.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/data/data_options.h>
#include <trireme/data/dataset.h>
#include <trireme/data/service/facts.h>
#include <trireme/data/service/host_socket.h>
#include <trireme/data/service/server_link.h>
#include <trireme/data/service/server_work.h>
#include <trireme/data/source.h>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace trireme::data {

// Any thread.
class SampleService {
 public:
  struct Part {
    PartFacts facts;
    std::shared_ptr<const Source> source;  // Makes the samples in this process.
  };
  // `options` names the servers.
  explicit SampleService(const DataOptions& options);
  ~SampleService();
  // Call it for each part, before connect().
  void add(Part part) {
    work_.try_emplace(part.facts.digest);
    parts_.push_back(std::move(part));
  }
  // Connects to the servers, and compares with each of them the facts, and three samples of each
  // part bit by bit. A server that cannot be reached is logged, and tried again from time to time.
  // The server of a host is waited for while it says that it opens the data, for ten minutes at
  // most. Throws Error(invalid_argument) if a server has another secret or makes other samples,
  // Error(corrupt) if its replies cannot be read.
  void connect();

  // The samples of a part, without those that are left out; empty: the caller makes them. For a
  // part that is padded, the draws have the length of the longest sample.
  std::optional<Example> ask(const PartFacts& part, const Draws& draws,
                             std::vector<size_t>& left_out);
  // The work of the servers for the samples of a part.
  const WorkForWorker& work_for(const PartFacts& part) const { return work_.at(part.digest); }

 private:
  std::unique_ptr<ServerLink> make_link(const std::string& address);
  OpenServer join_host(Deadline deadline);
  std::optional<HostGreeting> await_greeting(int line, Deadline deadline) const;
  void prove(const std::string& server, net::RequestClient& client, Deadline deadline);
  void work(const std::stop_token& stop);

  const std::vector<std::string> addresses_;
  const std::string folders_;  // Of the data.
  const Milliseconds timeout_;
  std::stop_source ends_;  // Ends the wait for a server that opens its data.
  std::vector<Part> parts_;
  std::map<std::string, WorkForWorker> work_;  // By the digests of the parts.
  std::vector<std::unique_ptr<ServerLink>> links_;
  std::jthread keeper_;  // Opens the links that were lost.
};

// The length of the longest of these samples by the index (Source::size_of); 0: not known.
int64_t longest_of(const Source& source, const Draws& draws);

// A source whose samples come from the service, if it has them. `skips` says that damaged records
// are left out: this process then looks at those that the server left out, so that they are named
// and counted here.
std::shared_ptr<const Source> serve_source(std::shared_ptr<SampleService> service, PartFacts part,
                                           std::shared_ptr<const Source> source, bool skips);

}  // namespace trireme::data
