// `trireme consistency`: changes the consistency of a running job's parameter servers.
#include <fmt/format.h>
#include <trireme/base/deadline.h>
#include <trireme/base/error.h>
#include <trireme/cli/commands.h>
#include <trireme/cli/running_job.h>
#include <trireme/membership/protocol.h>
#include <trireme/net/control.h>
#include <trireme/plan/consistency_change.h>
#include <limits>
#include <thread>

namespace trireme::cli {
namespace {

constexpr Milliseconds kBetweenLooks{50};
constexpr size_t kDigitsOfId = 16;

// Reads and sets values of the job's key-value store.
class JobStore {
 public:
  explicit JobStore(const RunningJob& job) : call_(job) {}

  void set(const std::string& key, const Json& value) {
    check(call_.ask(
        {{"op", "set"}, {"id", ++id_}, {"key", key}, {"value", membership::bytes(value.dump())}}));
  }

  std::optional<std::string> find(const std::string& key) {
    const Json reply = check(call_.ask({{"op", "find"}, {"id", ++id_}, {"key", key}}));
    if (!reply.contains("value")) return std::nullopt;
    return membership::bytes_from(reply.at("value"));
  }

 private:
  static Json check(Json reply) {
    if (const auto failure = membership::failure_in(reply))
      throw Error(failure->code, "cli", failure->what, failure->remedy);
    return reply;
  }

  JobCall call_;
  int64_t id_ = 0;
};

std::optional<plan::ConsistencyAnswer> wait_for_answer(JobStore& store, const std::string& id) {
  for (const Deadline deadline = Deadline::after(kJobTimeout); !deadline.expired();) {
    if (const auto text = store.find(plan::kConsistencyAnswerKey))
      if (auto answer = plan::ConsistencyAnswer::from_json(Json::parse(*text)); answer.id == id)
        return answer;
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return std::nullopt;
}

int change_consistency(const plan::ConsistencyOptions& options, const JobChoice& choice) {
  plan::check(options, std::numeric_limits<int>::max());  // The job knows its workers.
  const RunningJob job = find_job(choice);
  JobStore store(job);
  if (!store.find(plan::kConsistencyAnswerKey))
    throw Error(ErrorCode::invalid_argument, "cli",
                fmt::format("job {} has no parameter servers that train", job.name),
                "--job with the launcher of a job with --ps, once it trains");
  const plan::ConsistencyRequest request{net::make_token().substr(0, kDigitsOfId), options};
  store.set(plan::kConsistencyRequestKey, request.to_json());
  const auto answer = wait_for_answer(store, request.id);
  if (!answer)
    throw Error(ErrorCode::timeout, "cli",
                fmt::format("no server of job {} that has the clock has answered", job.name),
                "wait: the change is made once there is one; the servers' log names it");
  if (!answer->refused.empty())
    throw Error(ErrorCode::invalid_argument, "cli",
                fmt::format("job {} refuses: {}", job.name, answer->refused), answer->remedy);
  fmt::print("job {}: ps.consistency was {}, and is {} from now on\n", job.name,
             describe(answer->before), describe(options));
  return kExitOk;
}

}  // namespace

void add_consistency(Command app) {
  struct Arguments {
    std::string mode;
    int staleness = 0, backup_workers = 0;
    JobChoice job;
  };
  auto arguments = std::make_shared<Arguments>();
  Command command = app.subcommand(
      "consistency", "Change the consistency of a running job with parameter servers");
  command.required("mode", arguments->mode, "sync, async, stale or delay_compensated");
  command.option("--staleness", arguments->staleness,
                 "stale: the steps by which a worker may be ahead of the slowest one");
  command.option("--backup-workers", arguments->backup_workers,
                 "sync: the pushes of a step for which an update does not wait");
  add_job_choice(command, arguments->job);
  command.examples({"trireme consistency stale --staleness 2"});
  command.action([arguments] {
    return change_consistency({plan::consistency_from_string(arguments->mode),
                               arguments->staleness, arguments->backup_workers},
                              arguments->job);
  });
}

}  // namespace trireme::cli
