// The rows that a worker has pulled since its last push, and their gradients after backward.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/net/requests/message.h>
#include <trireme/parallel/servers/tables/dealt_rows.h>
#include <trireme/parallel/servers/tables/row_source.h>
#include <trireme/plan/table_plan.h>
#include <vector>

namespace trireme::servers {

// Rows with one vector for each: their values, or their gradients.
struct RowValues {
  int table = 0;
  at::Tensor rows, values;  // int64 [n], float32 [n, width]
};

class PulledRows {
 public:
  // Makes the values leaves for autograd, and remembers them.
  void add(const std::vector<RowsOfTable>& wanted, const std::vector<at::Tensor>& values);
  // One entry for each table. The gradients of a row that was pulled more than once are added up.
  // Throws Error(corrupt) naming the row of one with NaN or infinity, if `checks`.
  std::vector<RowValues> gradients(const std::vector<plan::TableSpec>& tables, int worker,
                                   bool checks) const;
  void forget() { pulled_.clear(); }

 private:
  std::vector<RowValues> pulled_;
};

// Throws Error(invalid_argument) naming table, row, position and worker.
void check_wanted(const std::vector<plan::TableSpec>& tables, const RowsOfTable& wanted,
                  int worker);

// The gradients of a push, dealt out to the servers.
class DealtGradients {
 public:
  DealtGradients() = default;
  DealtGradients(const plan::TablePlan& plan, const std::vector<RowValues>& gradients);
  DealtGradients(DealtGradients&&) = default;  // A copy would point to the rows of the other.
  DealtGradients& operator=(DealtGradients&&) = default;

  // Adds those of a server to a message, for each of its tables the rows and behind them the
  // gradients. Returns the tables. The data is this object's.
  std::vector<int32_t> add_to(net::Message& message, int server) const;

 private:
  struct OfServer {
    int table = 0;
    DealtRows rows;
    at::Tensor gradients;
  };
  std::vector<std::vector<OfServer>> dealt_;  // [server]
};

// A pull of rows, dealt out to the servers, and their values as they come.
class DealtPull {
 public:
  DealtPull(const plan::TablePlan& plan, const std::vector<RowsOfTable>& wanted);

  // Adds the rows of a server to a message. Returns the tables.
  std::vector<int32_t> add_to(net::Message& message, int server) const;
  // The memory for a server's answer.
  net::Places places(int server) const;
  // All answers have come: [entry]: float32 [n, width].
  std::vector<at::Tensor> values() const;

 private:
  std::vector<int> tables_;                     // [entry]
  std::vector<at::Tensor> values_;              // [entry]
  std::vector<std::vector<DealtRows>> dealt_;   // [entry][server]
  std::vector<std::vector<at::Tensor>> parts_;  // [server][entry]
};

}  // namespace trireme::servers
