// A worker's side of parameter servers: it pushes gradients to all of them and pulls parameters,
// straight from and into the tensors of its model.
//
//   ServerClient servers(endpoints, token, {.placement = plan, .worker = 0}, parameters,
//   deadline); servers.initialise(deadline);  // The first worker's values count. for (int64_t
//   step = servers.pull(deadline); ...;) {
//     loss_of(batch).backward();
//     step = servers.push_pull(samples, deadline);
//   }
#pragma once
#include <trireme/checkpoint/parts.h>
#include <trireme/parallel/module_state.h>
#include <trireme/parallel/optimizer.h>
#include <trireme/parallel/servers/compressed_push.h>
#include <trireme/parallel/servers/server_chains.h>
#include <trireme/parallel/servers/server_wire.h>
#include <trireme/parallel/servers/tables/pulled_rows.h>
#include <trireme/plan/placement_plan.h>
#include <trireme/plan/table_plan.h>
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

struct ServerClientOptions {
  plan::PlacementPlan placement;  // The same on all servers and workers.
  int worker = 0;
  int generation = 0;  // Of the job. The first worker of a new one ends the earlier ones.
  int workers = 0;     // In this generation; 0: as many as the servers know.
  plan::CompressionOptions compression = {};  // Of pushes; the same on the servers.
  plan::TablePlan tables = {};                // On as many servers; none by default.
  // With ps.replication above 1, and when a connection ends. Null: a server whose connection ended
  // is lost.
  IsServerLost is_lost = {};
  WhyServerLost why_lost = {};
  // Called several times a second while a call waits for other workers. An exception of it ends
  // the call. May be null.
  std::function<void()> look = {};
  net::ChannelOptions channel = {};
  // Gradients go to other hosts while backward computes others, in parts of so many bytes or more;
  // 0: none does.
  int64_t early_bytes = int64_t{1} << 20;
};

// The next task of a worker in a round.
struct ServerTurn {
  std::optional<int64_t> lease;        // Empty: the round is over.
  int64_t limit = 0;                   // The leases of the round that is over.
  bool stop = false, regroup = false;  // Some worker has asked for it.
  // Since the worker's last turn, in the order of decisions.
  std::vector<servers::CountedLease> counted;
  bool has_more = false;  // Others were counted too; the next turn has them.
};
// The facts that a worker tells when it asks for its next turn.
struct TurnWish {
  int64_t seen = 0;  // The counted batches that it knows.
  bool stop = false, regroup = false;
  bool meet = false;  // The round is to end early.
};
struct DoneLease {
  int64_t lease = 0;
  double loss = 0;
  std::vector<double> rates;  // The learning rates for its update.
};

namespace servers {
// The gradients for the pieces of one server that have gone before the push.
struct SentEarly {
  int64_t attempt = 0;
  std::vector<bool> pieces;  // [piece of the server]
  int64_t count = 0;
};
}  // namespace servers

// Used by one thread.
class ServerClient {
 public:
  // Connects to all servers that have a place, and joins. `parameters` are those of the
  // placement, contiguous and in its order; they stay the caller's model. Throws
  // Error(invalid_argument) naming the tensor that differs, Error(aborted) if the job is in a
  // later generation, Error(peer_lost) if no server has some pieces, or as net::RequestClient
  // does.
  //
  // Every call below goes on without a server that is lost meanwhile, as long as another one has
  // copies of its pieces.
  ServerClient(const ServerPlaces& servers, const std::string& token, ServerClientOptions options,
               std::vector<NamedTensor> parameters, Deadline deadline);
  ~ServerClient();

  // Sends the parameters' values as the first ones. If another worker was first, its values count;
  // they are all of one worker.
  void initialise(Deadline deadline);
  // Waits until this worker may begin its next step, and gets the parameters for it. What has not
  // changed does not travel. Returns the number of the step.
  int64_t pull(Deadline deadline);
  // Sends the gradients of the step that was begun last; `samples` are those whose mean they are,
  // and with 0 there are no gradients. Throws Error(corrupt) for one with NaN or infinity.
  // A parameter without gradient does not change. Calling it again after an error counts once.
  // Several pushes without a pull in between stay in the servers' memory until the pull.
  void push(int64_t samples, Deadline deadline);
  // Both at once: a push, and a pull of the next step.
  int64_t push_pull(int64_t samples, Deadline deadline);
  // This worker pushes no more, and nobody waits for it.
  void leave(Deadline deadline);

  // Around a backward pass after which nothing is added to the gradients: those that are complete
  // may go to the servers before it ends. The next hold() or push sends the others. `together`:
  // that is a hold().
  // A message that takes longer than `patience` is given up, and its gradients go with the push.
  void begin_early(bool together, Milliseconds patience);
  // The gradient of the parameter with this number is complete. One that is told twice in a pass
  // goes again with the push. From begin_early() to end_early().
  void gradient_is_complete(int parameter);
  void end_early();
  // The step is given up: no push may count on what has gone.
  void forget_early();
  int64_t sent_early() const { return sent_early_; }  // The pieces that have gone so until now.

  // For workers that compute each step together, and agree on it among themselves: the servers
  // hold the gradients until a worker brings the update that all have agreed on.
  void hold(int64_t samples, Deadline deadline);
  // The update that follows the newest parameters of this worker, of the pushes of all workers.
  servers::ServerUpdate next_update(int workers) const;
  // The square of the norm of the mean gradient of an update whose pushes all servers hold.
  double squares(const servers::ServerUpdate& update, Deadline deadline);
  // All servers make the update, unless they have made it, and the parameters come.
  void follow(const servers::ServerUpdate& update, Deadline deadline);
  // The newest parameters.
  void refresh(Deadline deadline);
  // The same for pieces of which this worker has no version. The step to compute stays: servers
  // that have it already leave it out when it comes again.
  void pull_the_missing(Deadline deadline);

  // For workers that compute whole batches at their own pace (plan/lease_table.h). All workers
  // open a round alike; one that goes on in a later generation keeps its id.
  void open_round(int64_t id, int64_t leases, Deadline deadline);
  ServerTurn first_turn(const TurnWish& wish, Deadline deadline);
  // Pushes the gradients of the lease.
  ServerTurn next_turn(const DoneLease& done, int64_t samples, const TurnWish& wish,
                       Deadline deadline);
  // The batch of the lease counts as used, without an update. first_turn() gives another.
  void skip(int64_t lease, int64_t samples, Deadline deadline);

  // The state of all servers: parameters go into the model's tensors, and the state of the
  // optimizer is that of whole parameters. No worker pushes meanwhile.
  OptimizerState read_state(Deadline deadline);
  // Gives the servers the parameters of this worker and this state, as a version that nobody has.
  void write_state(const OptimizerState& state, Deadline deadline);
  // Rows of embedding tables, as they are now: float32 [n, width] for each entry. With `peeks` no
  // row is made. Throws Error(invalid_argument) naming table, row and position.
  std::vector<at::Tensor> rows(const std::vector<RowsOfTable>& wanted, bool peeks,
                               Deadline deadline);
  // The next pushes bring these gradients too, until the next call. Rows of a table are different.
  void give_rows(const std::vector<servers::RowValues>& gradients);
  // For workers that compute each step together and begin one again: the servers that made the
  // update after this version take it back from their rows. Returns false if some server has the
  // rows of another version.
  bool rows_are_of(int64_t version, Deadline deadline);
  // All workers call it then, so that all servers hear of that update again.
  void tell_again_after(int64_t version);
  // The servers copy their rows, and write them behind this as the last parts of a checkpoint.
  // Throws Error(invalid_argument) if a server does not see the folder.
  void save_rows(const std::filesystem::path& folder, int64_t step, checkpoint::Part& part,
                 Deadline deadline);
  // The rows become those of the files, all that the servers of a save have written.
  void load_rows(const std::vector<std::filesystem::path>& files, Deadline deadline);

  // The counts of all servers (ParameterServerFacts), and of copies, with the number of the server
  // and the CPU time of its process. The first is that of the clock.
  std::vector<Json> facts(Deadline deadline);
  // [server]: the counts of the first of its chain, with "tables".
  std::vector<Json> facts_of_firsts(Deadline deadline);

  // The versions of the parameters that this worker has, by server; -1: none.
  std::vector<int64_t> versions() const;
  // The worker has got these versions in another way.
  void have_versions(const std::vector<int64_t>& versions);
  // [server]: the version of its pieces when this worker joined; -1: they have no values.
  const std::vector<int64_t>& versions_at_join() const { return at_join_; }
  // Nobody has the pieces of some server any more.
  bool has_lost_pieces() const { return chains_.has_lost_a_chain(); }

  // A server had no values when this worker joined, and others of its chain had some.
  bool has_a_blank_server() const { return has_a_blank_server_; }
  // The servers that this worker goes on without.
  std::vector<int> missing() const { return chains_.missing(); }
  ServerPlaces in_use() const { return chains_.in_use(); }
  // While no worker pushes: another process has the task of a missing server. It gets the pieces
  // and the clock of the others of its chains. One worker calls this, and then the others use the
  // same servers as that one.
  void restore(int server, const ServerPlace& place, Deadline deadline);
  void use(const ServerPlaces& places, Deadline deadline);

 private:
  using Link = servers::ServerChains::Link;

  void join(const std::vector<Link*>& links, Deadline deadline);
  void adopt(int server, const ServerPlace& place, Deadline deadline);
  void leave_out_the_blank(Deadline deadline);
  void join_again_those_without_values(int shard, Deadline deadline);
  void prepare_gradients(int64_t samples);
  net::Message::Tensor gradient_of(int server, size_t piece) const;
  struct Early;
  void send_early(size_t link);
  // The gradients that the push of this step may leave out; null: none.
  const servers::SentEarly* sent_early_to(const Link& link, int64_t step) const;
  servers::ServerRequest request_of(servers::ServerCall call, const Link& link) const;
  servers::ServerRequest waiting_request(servers::ServerCall call) const;
  net::Message gradients_for(const Link& link, servers::ServerRequest request,
                             const std::string& text = {}) const;
  net::ChoosePlaces parameters_of(const Link& link) const;
  const std::vector<plan::ServerPiece>& pieces_of(int shard) const;
  // To each of these servers, with the memory of the parameters for answers.
  std::vector<net::Reply> ask(const char* name, const std::vector<Link*>& whom, Deadline deadline,
                              const servers::ServerChains::Make& make,
                              const servers::ServerChains::Rides& rides = {});
  net::Reply ask_one(const char* name, Link& whom, Deadline deadline, net::Message message);
  void take_parameters(Link& link, const servers::ServerReply& told);
  net::Message held_message(const Link& link, int64_t clock, int64_t samples,
                            const std::string& text) const;
  net::Reply push_to_all(servers::ServerRequest request, int64_t samples, const std::string& text,
                         Deadline deadline);
  Json pull_from_clock(net::Message message, const std::string& wish, Deadline deadline);
  Json take_answer_of_clock(net::Reply reply, const std::string& wish, Deadline deadline);
  Json push_and_pull(int64_t samples, const std::string& text, const std::string& wish,
                     Deadline deadline);
  void bring(const Json& updates, Deadline deadline, bool pulls = true);
  void tell(std::vector<Link*> links, const Json& updates, Deadline deadline, bool pulls = true);
  void bring_from(const net::Reply& reply, Deadline deadline);
  int64_t told_to_all() const;
  void bring_those_that_some_lack(Deadline deadline);
  void tell_clocks(servers::ServerCall call, const char* name, const std::string& text,
                   Deadline deadline);
  ServerTurn turn_in(const Json& told) const;
  class WholeState;
  void read_pieces(Link& link, OptimizerState& state, WholeState& whole, Deadline deadline);
  void copy_pieces(const Link& from, Link& to, Deadline deadline);
  void copy_rows(const Link& from, Link& to, Milliseconds patience);
  std::vector<Json> facts_of(const std::vector<Link*>& links, Deadline deadline);

  ServerClientOptions options_;
  std::vector<NamedTensor> parameters_;
  servers::ServerChains chains_;
  std::vector<std::vector<plan::ServerPiece>> pieces_;  // [server]
  std::vector<std::vector<size_t>> numbers_;            // [server]: their numbers in the plan.
  std::optional<servers::CompressedPush> compressed_;   // Empty: pushes are as they are.
  servers::DealtGradients gradients_of_rows_;
  std::unique_ptr<Early> early_;  // Null: no server is on another host, or nothing goes early.
  int64_t sent_early_ = 0;
  std::vector<int64_t> at_join_;
  bool has_a_blank_server_ = false;
  int64_t clock_ = 0;
  int64_t unsettled_ = 0;     // All servers know what became of the pushes of the steps before it.
  int64_t newest_ = -1;       // The newest update of which this worker has parameters.
  bool compensates_ = false;  // Pushes bring the parameters with which they were computed.
};

}  // namespace trireme
