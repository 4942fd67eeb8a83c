// The insides of a parameter server: its own pieces of the model, or copies of another server's.
// Included by its sources alone.
#pragma once
#include <trireme/parallel/compression/push_codec.h>
#include <trireme/parallel/servers/parameter_server.h>
#include <trireme/parallel/servers/request_memory.h>
#include <trireme/parallel/servers/server_shard.h>
#include <trireme/parallel/servers/server_wire.h>
#include <trireme/parallel/servers/tables/shard_tables.h>
#include <trireme/plan/lease_table.h>
#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

namespace trireme {

namespace servers {
// Throws Error(invalid_argument): a worker asks for what cannot be.
[[noreturn]] void refuse_call(const std::string& what, const std::string& remedy = {});
}  // namespace servers

struct ParameterServer::Impl {
  using Gradients = std::vector<void*>;  // [piece]; null: none.

  // The pieces of server `owner`. `place`: that of this server in its chain; 0: they are its own.
  Impl(ParameterServerOptions given, int owner, int place);

  // A worker that waits for parameters.
  struct Waiting {
    servers::ServerRequest request;  // Without its text.
    Json wish;                       // The text.
    Deadline deadline;
    net::Responder responder;
  };
  // The parameters of one version. Its memory serves other versions when nobody has it any more.
  struct Copy {
    std::unique_ptr<servers::MemoryLine[]> memory;
    std::vector<std::byte*> pieces;
    std::shared_ptr<void> owner = {};  // Of values in the memory of a push.
  };
  using Values = std::shared_ptr<const Copy>;
  struct Answer {
    servers::ServerReply reply;
    Values values;  // Null if the worker has them.
    net::Responder responder;
  };
  struct Push {
    Gradients gradients;
    int64_t samples = 0;
    std::shared_ptr<void> owner;  // It keeps the gradients' memory.
    servers::PushedRows rows = {};
    // For the clock: the lease, the loss and the learning rates that came with it.
    int64_t lease = -1;
    double loss = 0;
    std::vector<double> rates = {};
    Json early = {};  // The attempt and the number of gradients that have come before; null: none.
    // The parameters with which its gradients were computed; the values are for delay
    // compensation.
    int64_t from = 0;
    Values then = {};
  };
  // The gradients of a step that came before its push.
  struct Early {
    servers::PushId id;
    int64_t attempt = 0;  // It counts the times that the worker has begun to send some early.
    Gradients gradients;
    int64_t count = 0;
    std::vector<std::shared_ptr<void>> owners;
  };
  // The parameters that a worker got last.
  struct Pulled {
    int64_t version = 0;
    Values values;  // Only for delay compensation.
  };
  // A stretch of batches that workers compute at their own pace.
  struct Round {
    int64_t id = -1;
    plan::LeaseTable leases{0};
    Json counted = Json::array();  // Those that are done, in the order of decisions.
    bool stops = false, regroups = false;
  };

  static Json to_json(const Round& round);
  static Round round_in(const at::Tensor& bytes);

  // parameter_server.cc: calls.
  void begin_call(const servers::ServerRequest& request);
  void handle(net::Request request, net::Responder responder);
  // A request that answers at once and without tensors.
  servers::ServerReply answer_rider(const net::Request& message);
  bool handle_of_clock(const servers::ServerRequest& request, const net::Request& message,
                       net::Responder& responder);
  servers::ServerReply join(const servers::ServerRequest& request);
  void begin_generation(int generation, int workers);
  bool initialise(const net::Request& message);  // False if there were values before.
  servers::ServerReply follow_told(const servers::ServerRequest& request);
  void follow_and_answer(const servers::ServerRequest& request, net::Responder& responder);
  servers::ServerReply decisions_asked_for(const servers::ServerRequest& request);
  void become_clock(const servers::ServerRequest& request);
  void check_worker(const servers::ServerRequest& request) const;
  // Throws Error(invalid_argument) unless the tensors are those that the call has.
  void check_tensors(const servers::ServerRequest& request,
                     const std::vector<net::TensorNote>& tensors) const;

  // server_updates.cc: from pushes to updates.
  void hold(const servers::ServerRequest& request, const net::Request& message);
  void hold_early(const servers::ServerRequest& request, const net::Request& message);
  void take_early(const servers::PushId& id, Push& push);
  void push(const servers::ServerRequest& request, const net::Request& message);
  Gradients gradients_in(const net::Request& message, std::shared_ptr<void>& held_by) const;
  net::TensorNote note_of_gradient(size_t piece) const;
  Push push_in(const servers::ServerRequest& request, const net::Request& message) const;
  void note_origin(const servers::ServerRequest& request, Push& push) const;
  void judge(const servers::PushId& id, Push push);
  void judge_held(const servers::ServerRequest& request);
  Json decisions_for(const servers::ServerRequest& request);
  bool follow(const std::vector<servers::ServerUpdate>& updates);
  void decide(servers::ServerUpdate update);
  void follow_beside(const servers::ServerUpdate& update);
  bool has_all_beside() const;  // Those in this process have made the same updates.
  void decide_gathered();
  void end_round_if_last();
  void apply(const servers::ServerUpdate& update);
  void require_pushes_of(const servers::ServerUpdate& update) const;
  Gradients mean_of(const servers::ServerUpdate& update, double scale);
  double squares_of(const servers::ServerUpdate& update);
  void compensate(Push& push);
  void mirror_clock(const servers::ServerUpdate& update);
  void note_round(const servers::ServerUpdate& update);

  // server_rows.cc: rows of embedding tables.
  servers::PushedRows rows_in(const servers::ServerRequest& request,
                              const net::Request& message) const;
  std::vector<servers::ShareOfMean> shares_of_rows(const servers::ServerUpdate& update,
                                                   double scale) const;
  void update_rows(const servers::ServerUpdate& update);
  void give_rows(const servers::ServerRequest& request, const net::Request& message,
                 net::Responder& responder);
  bool handle_of_rows(const servers::ServerRequest& request, const net::Request& message,
                      net::Responder& responder);
  void read_rows(const servers::ServerRequest& request, net::Responder& responder);
  void write_rows(const servers::ServerRequest& request, const net::Request& message);
  void save_rows(const servers::ServerRequest& request);
  void load_rows(const servers::ServerRequest& request);

  // server_answers.cc: parameters for those that may begin.
  void pull(const servers::ServerRequest& request, net::Responder responder);
  void take_wish(const Json& wish);
  // The answers to workers that may begin their steps.
  std::vector<Answer> take_ready();
  // Whether the worker waits on. Otherwise `told` has what goes with the parameters.
  bool has_to_wait(const Waiting& each, Json& told);
  bool has_to_wait_for_lease(const Waiting& each, bool may_begin, Json& told);
  void send(std::vector<Answer> answers) const;
  void answer_the_waiting();
  void look_after_the_waiting(const std::stop_token& end);
  std::string reason_to_wait(const Waiting& waiting) const;
  const Values& values_now();

  // server_state_calls.cc
  void read_state(const Json& wish, net::Responder& responder);
  void write_state(const net::Request& message, const Json& text);
  servers::ServerReply open_round(const servers::ServerRequest& request);
  void skip(const servers::ServerRequest& request);
  void leave(int worker);
  plan::ConsistencyOptions change(const plan::ConsistencyOptions& consistency);

  const ParameterServerOptions options;
  const int owner, place;
  std::vector<net::Message::Tensor> form;       // The tensors of replies, without data.
  std::optional<compression::PushCodec> codec;  // Of gradients that come in fewer bytes.
  const std::shared_ptr<servers::RequestMemory> memory =
      std::make_shared<servers::RequestMemory>();

  // The clock: the other pieces in this process. Their mutexes come after that of the clock.
  std::vector<Impl*> beside;

  mutable std::mutex mutex;  // Guards what follows.
  servers::ServerShard shard;
  servers::ShardTables tables;
  // The update that the rows have. It is lower than `version` after rows_as_of, until the workers
  // bring the update again.
  int64_t rows_version = 0;
  double first_rate = 1;  // Of the optimizer's first group.
  struct Reading {        // The rows of a table while they are read in several calls.
    int table = -1;
    std::vector<int64_t> rows = {};
  };
  Reading reading;
  plan::PushClock clock;            // Of the first server, and of its copies.
  bool is_clock;                    // It decides. A copy of it follows.
  int64_t term = 0, term_from = 0;  // Updates after the number `term_from` are of this term.
  bool acts_as_first;               // Workers pull from it.
  int generation = -1, workers;     // -1: nobody has joined.
  bool has_values = false, compensates = false;
  // Another server of the chain hands over its pieces and rows. A worker that dies meanwhile
  // leaves a part of them.
  bool being_restored = false;
  int64_t version = 0;
  std::map<servers::PushId, Push> held;
  std::map<int, Early> early;          // [worker]
  std::set<servers::PushId> gathered;  // The clock: those that wait for others of their step.
  std::deque<servers::ServerUpdate> decided;  // The newest ones.
  int64_t followed = -1;                      // All servers have the updates up to this one.
  std::map<int, Pulled> pulled;               // [worker]
  Round round;
  std::list<Waiting> waiting;
  std::vector<std::shared_ptr<Copy>> copies;
  Values values;  // The copy of `values_version`.
  int64_t values_version = -1;
  ParameterServerFacts facts;

  std::condition_variable_any ends;
  std::mutex writing;   // Guards the next one. It comes before `mutex`.
  std::jthread writer;  // Of a part of a checkpoint.
  std::jthread keeper;  // Ends before the rest.
};

}  // namespace trireme
