// The messages between a worker and a parameter server, as headers of the request channel
// (trireme/net/requests/). Tensors follow in the order of the server's pieces.
#pragma once
#include <trireme/base/json.h>
#include <trireme/plan/push_clock.h>
#include <trireme/plan/tensor_spec.h>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::servers {

enum class ServerCall : uint8_t {
  join = 1,    // Text: JSON with the model as the worker has it. The answer has its first step.
  initialise,  // The first values of all pieces. Those of the first worker that sends them count.
  push,        // Server 0: gradients of a step, which the clock judges.
  pull,        // Server 0: parameters to begin a step with, once the clock lets the worker begin.
  push_pull,   // Server 0: both: a push, and a pull of the next step.
  leave,       // The worker pushes no more.
  hold,        // Gradients of a step, which a decided update takes later.
  follow,      // Text: decided updates. Parameters that have them.
  measure,     // Text: an update. The squares of the mean of its gradients.
  read,        // Parameters and the optimizer's state.
  write,       // New ones. Text: the head of read, and the version from now on. With `clock` in
               // it they are those of another server of the chain.
  facts,       // Text of the answer: the counts of the server.
  open_round,  // Server 0. Text: the round's id and its number of leases.
  skip,        // Server 0: the batch of a lease counts as used, without an update.
  decisions,   // Text of the answer: the decided updates that some server may lack.
  // Calls for embedding tables. The first two have rows, int64 [n], for each table that the header
  // lists; the answer has their values, float32 [n, width].
  rows,        // For a step.
  peek_rows,   // For an evaluation: no row is made.
  rows_as_of,  // `clock`: all rows are to be those of this version. The answer has their version.
  read_rows,   // Text: the table, and how many of its rows were read. Some more, with their state.
  write_rows,  // Text: the table. Rows with their state.
  save_rows,   // Text: the part of a checkpoint (checkpoint/parts.h) that the server writes.
  load_rows,   // Text: the files of a checkpoint that have the rows of all servers.
  restored,    // All pieces and rows of another server of the chain have come.
  hold_early,  // Some gradients of a step while backward computes the others. Text: the attempt.
};

// One worker's push, among all of the job.
struct PushId {
  int generation = 0, worker = 0;
  int64_t clock = 0;
  auto operator<=>(const PushId&) const = default;
};

// The batch of a lease (plan/lease_table.h) that counts.
struct CountedLease {
  int64_t lease = 0;
  int worker = 0;
  std::optional<double> loss = 0.0;  // Empty: it was skipped.
  int64_t samples = 0;
};

// The end of a round before all of its batches.
struct RoundStop {
  int64_t limit = 0;                   // The leases that the round has.
  bool stop = false, regroup = false;  // Some worker has asked for it.
};

// A decision that all servers follow: these pushes make up the update with this number. The others
// are facts that the copies of the clock need, so that one of them can take its place.
struct ServerUpdate {
  int64_t number = 0;
  std::vector<PushId> pushes;  // None: the parameters stay as they are.
  std::vector<double> rates;   // The learning rates of the optimizer's groups; empty: as they are.
  double scale = 1;            // A factor of the gradients, from clipping.
  bool compensates = false;    // Gradients are corrected for the distance since their pull.
  // It counts the servers that had the clock before the one that decided. kAgreed: the workers
  // have agreed on the update among themselves.
  int64_t term = kAgreed;
  std::vector<CountedLease> counted;
  std::optional<RoundStop> stopped;
  std::optional<plan::ConsistencyOptions> mode;  // From now on.

  static constexpr int64_t kAgreed = -1;
};
Json to_json(const CountedLease& counted);
CountedLease counted_in(const Json& json);
Json to_json(const ServerUpdate& update);
ServerUpdate update_in(const Json& json);
Json to_json(const std::vector<ServerUpdate>& updates);
std::vector<ServerUpdate> updates_in(const Json& json);

// A tensor of the model in a call of join: "conv1.weight float32[16, 3]".
std::string told_form(const plan::TensorSpec& tensor);

// All numbers are little endian, as they lie in memory.
struct ServerRequest {
  ServerCall call = ServerCall::pull;
  int32_t worker = 0;
  int32_t generation = 0;
  int64_t clock = 0;    // push, hold: the step of the gradients. pull: the step to begin.
  int64_t samples = 0;  // push, hold: the samples whose mean the gradients are.
  int64_t known = -1;   // pull, follow: the version that the worker has; -1: none.
  // pull, leave, decisions: all other servers have the decisions up to this version, which may be
  // -1, and the answer has the later ones; -2: it has none. hold: pushes of earlier steps than
  // this one are not needed any more.
  int64_t follows = -2;
  int32_t wait_ms = 0;  // pull: answer is_early after this time; 0: wait with patience.
  int shard = 0;        // The pieces of this server's place in the placement, or copies of them.
  // It goes to a copy, beside the same call to the first server of the chain. No parameters come.
  bool to_copy = false;
  // push, hold: the tables of which rows and their gradients, float32 [n, width], follow the other
  // tensors. rows, peek_rows: the tables of the tensors.
  std::vector<int32_t> tables = {};
  std::string_view text = {};
};
std::string encode(const ServerRequest& request);

// A request to one process about several servers' pieces. The riders come first, in order, with
// their tensors in front. They answer at once and without tensors, so one reply has all answers.
struct RiddenRequest {
  struct Rider {
    std::string_view header;
    size_t tensors = 0;
  };
  std::vector<Rider> riders;
  std::string_view header;  // Of the request with which they go.
};
std::string with_riders(const std::vector<RiddenRequest::Rider>& riders, std::string_view header);
// Any header; one without riders is the request itself. The text is that of `header`. Throws
// Error(corrupt).
RiddenRequest riders_in(std::string_view header);
// The header of a reply: those of `riders` answers, and behind them that of the request.
std::vector<std::string_view> split_replies(std::string_view header, size_t riders);
// Throws Error(corrupt) if it is no such header.
ServerRequest decode_request(std::string_view header);

struct ServerReply {
  int64_t version = 0;  // The parameters that come with it, or that the worker has, have it.
  int64_t clock = 0;    // The step to begin.
  // The worker has this version, so no tensors come; or its first values do not count.
  bool is_unchanged = false;
  bool is_early = false;  // The worker may not begin yet. The text says why.
  // Another server has the clock since these updates were decided, so they never happened.
  bool is_deposed = false;
  // The pushes of servers with copies bring the parameters with which they were computed.
  bool compensates = false;
  // The clock: all pieces in its process have this version.
  bool has_all_beside = false;
  std::string text = {};
};
std::string encode(const ServerReply& reply);
ServerReply decode_reply(std::string_view header);  // Throws Error(corrupt).

}  // namespace trireme::servers
