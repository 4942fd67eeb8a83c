// A worker's side of embedding tables on parameter servers: it pulls the rows of its batch, and
// pushes their gradients. Layers use it (trireme/parallel/nn/sharded_embedding.h).
//
//   auto tables = std::make_shared<TableClient>(endpoints, token, {.plan = plan, .worker = 0},
//                                               deadline);
//   nn::ShardedEmbedding ads(tables, "ads", torch::nn::EmbeddingOptions(1000000, 64));
//   loss_of(ads(indices)).backward();
//   tables->push(samples, deadline);
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/base/deadline.h>
#include <trireme/net/requests/request_client.h>
#include <trireme/parallel/servers/tables/pulled_rows.h>
#include <trireme/parallel/servers/tables/row_source.h>
#include <trireme/plan/table_plan.h>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace trireme {

struct TableClientOptions {
  plan::TablePlan plan;  // The same on all servers and workers.
  int worker = 0;
  Milliseconds patience{60000};  // The time of a pull inside forward().
  net::ChannelOptions channel;
};

// Used by one thread.
class TableClient : public RowSource {
 public:
  // Connects to all servers, in their order, and joins. Throws Error(invalid_argument) naming the
  // table that differs, or as net::RequestClient does.
  TableClient(const std::vector<net::Endpoint>& servers, const std::string& token,
              TableClientOptions options, Deadline deadline);
  ~TableClient() override;

  // The first pull of a step waits until this worker may begin it.
  std::vector<at::Tensor> pull(const std::vector<RowsOfTable>& wanted, Deadline deadline) override;
  std::vector<at::Tensor> peek(const std::vector<RowsOfTable>& wanted, Deadline deadline) override;
  // Sends the gradients of all rows that were pulled since the last push; `samples` are those
  // whose mean they are, and with 0 there are none. A step needs exactly one push, also if it has
  // pulled nothing. Throws Error(corrupt) naming the row of a gradient with NaN or infinity.
  // Calling it again after an error counts once. Returns the next step.
  int64_t push(int64_t samples, Deadline deadline);
  // Drops what was pulled since the last push, such as for a step that is skipped.
  void forget();
  // This worker pushes no more, and nobody waits for it.
  void leave(Deadline deadline);

  const std::vector<plan::TableSpec>& tables() const override {
    return options_.plan.facts.tables;
  }
  int worker() const override { return options_.worker; }
  Milliseconds patience() const override { return options_.patience; }
  // The largest of all servers' versions of the tables, as they were told last.
  int64_t version() const { return version_; }

 private:
  struct Server;
  std::vector<at::Tensor> get(const std::vector<RowsOfTable>& wanted, bool peeks,
                              Deadline deadline);
  int64_t next_step() const;

  TableClientOptions options_;
  std::vector<std::unique_ptr<Server>> servers_;
  servers::PulledRows pulled_;  // Since the last push.
  int64_t version_ = 0;
};

}  // namespace trireme
