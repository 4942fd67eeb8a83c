// The options of strategy parameter_server (docs/parameter_server.md). No torch.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/config/rows.h>
#include <trireme/plan/push_clock.h>

namespace trireme::plan {

struct PsOptions {
  int servers = 0;  // In the job: `--ps`.
  ConsistencyOptions consistency;
  // The servers that have each piece of the model; 0: two, if there are two servers.
  int replication = 0;
  // delay_compensated: the factor lambda of gradient x gradient x distance.
  double compensation = 0.04;
  // Between hosts, gradients go to the servers while backward computes others.
  bool overlap = true;
  // A worker waits no longer for another worker, or for a server that is to come back.
  Milliseconds patience{60000};
};
config::Rows rows_of(const PsOptions*);

int replication_of(const PsOptions& options);

// Whether workers compute the steps of sync together, each a share of the batch. Otherwise each
// computes whole batches at its own pace.
bool is_in_step(const ConsistencyOptions& options);

}  // namespace trireme::plan
