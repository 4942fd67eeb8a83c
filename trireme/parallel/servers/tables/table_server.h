// A server of embedding tables: it has some rows of each table, hands out those that workers pull,
// and updates those that they push, as its consistency says (trireme/plan/push_clock.h;
// docs/parameter_server.md, "Sparse tables"). It stands beside the ParameterServer of a task, with
// an address of its own.
//
//   TableServer server({"127.0.0.1", 0}, token, {.plan = plan, .server = 0,
//                                                .tables = {{.optimizer = {RowRule::adagrad}}},
//                                                .consistency = {Consistency::async},
//                                                .workers = 4});
#pragma once
#include <trireme/base/json.h>
#include <trireme/net/requests/request_server.h>
#include <trireme/parallel/servers/tables/row_table.h>
#include <trireme/plan/push_clock.h>
#include <trireme/plan/table_plan.h>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace trireme {

struct TableServerOptions {
  plan::TablePlan plan;              // The same on all servers and workers.
  int server = 0;                    // The number of this one.
  std::vector<TableOptions> tables;  // In the order of the plan; one entry counts for all tables.
  // All but delay_compensated: gradients of rows are applied as they come.
  plan::ConsistencyOptions consistency;
  int workers = 1;  // The number in the job. Other workers are refused.
  // Gradients with NaN or infinity are refused, and their worker gets an error that names the row.
  bool refuses_nonfinite = true;
  Milliseconds patience{60000};  // A worker waits no longer for others.
  net::RequestServerOptions channel;
};

// The counts of a server since its start.
struct TableServerFacts {
  int64_t pushes = 0, late_pushes = 0, repeated_pushes = 0, pulls = 0;
  int64_t updates = 0;                // The version of the tables.
  std::vector<RowTableFacts> tables;  // In the order of the plan.
  Json to_json() const;
};

class TableServer {
 public:
  // Listens, and serves from then on. Throws Error(invalid_argument | unsupported | io) naming the
  // table or the option.
  TableServer(const net::Endpoint& listen, std::string token, TableServerOptions options);
  // Closes all connections. Workers that wait get Error(peer_lost).
  ~TableServer();

  // Any thread.
  net::Endpoint endpoint() const;
  TableServerFacts facts() const;
  void change(const plan::ConsistencyOptions& consistency);  // As ParameterServer::change().
  void leave(int worker);                                    // As ParameterServer::leave().
  const TableServerOptions& options() const;
  // Calls `use` with the server's tables, in the order of the plan, while no worker reads or
  // changes them: to save or load them (table_state.h).
  void with_tables(const std::function<void(std::vector<servers::RowTable>&)>& use);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
  std::unique_ptr<net::RequestServer> requests_;
};

}  // namespace trireme
