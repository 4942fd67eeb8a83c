// The messages between a worker and a table server, as headers of the request channel
// (trireme/net/requests/).
//
// Tensors of a pull: for each table that the header lists, its rows, int64 [n]. Its answer has the
// values, float32 [n, width], in the same order. Tensors of a push: for each table the rows, and
// behind them the gradients, float32 [n, width].
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::servers {

enum class TableCall : uint8_t {
  join = 1,  // Text: JSON with the tables as the worker has them. The answer has its first step.
  pull,
  push,   // Gradients of a step: all tables in one message.
  leave,  // The worker pushes no more.
};

// All numbers are little endian, as they lie in memory.
struct TableRequest {
  TableCall call = TableCall::pull;
  int32_t worker = 0;
  int64_t clock = 0;    // push: the step of the gradients. pull: the step that it is for.
  int64_t samples = 0;  // push: the samples whose mean the gradients are.
  // pull: the first one of the step, which may wait for other workers.
  bool begins = false;
  bool peeks = false;  // pull: no row is made, nothing is counted, and it waits for nobody.
  std::vector<int32_t> tables;
  std::string_view text = {};
};
std::string encode(const TableRequest& request);
// Throws Error(corrupt) if it is no such header.
TableRequest decode_table_request(std::string_view header);

struct TableReply {
  int64_t version = 0;  // The updates that the values have.
  int64_t clock = 0;    // The step of the worker.
};
std::string encode(const TableReply& reply);
TableReply decode_table_reply(std::string_view header);  // Throws Error(corrupt).

}  // namespace trireme::servers
