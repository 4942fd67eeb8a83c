#include <fmt/format.h>
#include <trireme/base/deadline.h>
#include <trireme/base/error.h>
#include <trireme/base/text.h>
#include <trireme/membership/identity.h>
#include <trireme/membership/launcher_table.h>
#include <trireme/membership/rank_launchers.h>
#include <trireme/membership/secret_file.h>
#include <trireme/membership/variables.h>
#include <charconv>
#include <chrono>

namespace trireme::membership {
namespace {

// The number of this start of a worker, which no launcher numbers. A later start of the same task
// has another number, and the numbers of the tasks have the tasks' order.
int64_t process_by_the_clock(int worker) {
  constexpr int64_t kLatest = int64_t{1} << 42;  // In the year 2109.
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return worker * kLatest +
         std::chrono::duration_cast<std::chrono::milliseconds>(since_1970).count();
}

// A cluster's own means replace a worker that is lost, or do not. All tasks of the job have the
// same variables.
void let_workers_of_cluster_change(const Environment& environment, Identity& identity) {
  const auto elastic = elastic_from(environment);
  const bool has_others = identity.workers > 1 || identity.rendezvous;
  if (!elastic || !has_others || !(identity.is_worker() || identity.hosts_coordinator)) return;
  if (elastic->maximum != identity.workers)
    throw Error(ErrorCode::invalid_argument, "membership",
                fmt::format("environment variable TRIREME_ELASTIC={}:{}, but the cluster has {} "
                            "workers",
                            elastic->minimum, elastic->maximum, identity.workers),
                fmt::format("MIN:{}", identity.workers));
  identity.elastic = elastic;
  identity.elastic->process = process_by_the_clock(identity.worker);
}

}  // namespace

std::optional<std::string> token_from(const Environment& environment,
                                      const std::string& variable) {
  const auto long_enough = [&variable](std::string_view text, const std::string& where) {
    const std::string token(trimmed(text));
    if (token.size() >= kMinTokenBytes) return token;
    throw Error(ErrorCode::invalid_argument, "membership",
                fmt::format("the {}token in {} has {} bytes; it must have {} or more, or "
                            "others can guess it",
                            variable == "TRIREME_JOB_TOKEN" ? "job " : "", where, token.size(),
                            kMinTokenBytes),
                "the output of `openssl rand -hex 32`, the same for all workers");
  };
  if (const auto token = environment.get(variable)) return long_enough(*token, variable);
  if (const auto path = environment.get(variable + "_FILE"))
    return long_enough(read_secret_file(*path, Symlink::follow),
                       fmt::format("the file {} ({}_FILE)", *path, variable));
  return std::nullopt;
}

std::string_view title_of(Launcher launcher) {
  switch (launcher) {
    case Launcher::alone: return "no launcher";
    case Launcher::trireme: return "trireme launch";
    case Launcher::torchrun: return "torchrun";
    case Launcher::mpirun: return "mpirun";
    case Launcher::tf_config: return "TF_CONFIG";
    case Launcher::dmlc: return "DMLC_ROLE";
    case Launcher::slurm: return "srun";
    case Launcher::kubernetes: return "Kubernetes";
  }
  return "no launcher";
}

bool is_cluster(Launcher launcher) {
  return launcher == Launcher::tf_config || launcher == Launcher::dmlc ||
         launcher == Launcher::slurm || launcher == Launcher::kubernetes;
}

Identity resolve_identity(const Environment& environment) {
  Identity identity;
  if (const LauncherRow* row = find_launcher(environment)) identity = row->identity(environment);
  if (is_cluster(identity.launcher)) let_workers_of_cluster_change(environment, identity);
  if (identity.is_worker()) identity.task.index = identity.worker;
  identity.token = token_from(environment);
  return identity;
}

Elastic parse_elastic(const std::string& text, const std::string& where) {
  const auto wrong = [&](const std::string& why) {
    return Error(
        ErrorCode::invalid_argument, "membership", fmt::format("{} is '{}': {}", where, text, why),
        "MIN:MAX, such as 1:4: the job needs MIN workers to continue and never has more than MAX");
  };
  Elastic elastic;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, elastic.minimum);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ':')
    throw wrong("not two numbers with a colon between them");
  const auto second = std::from_chars(first.ptr + 1, end, elastic.maximum);
  if (second.ec != std::errc() || second.ptr != end)
    throw wrong("not two numbers with a colon between them");
  if (elastic.minimum < 1) throw wrong("a job has at least 1 worker");
  if (elastic.maximum < elastic.minimum) throw wrong("the maximum is below the minimum");
  if (elastic.maximum > kMaxWorkers) throw wrong(fmt::format("more than {} workers", kMaxWorkers));
  return elastic;
}

std::string Identity::describe() const {
  if (launcher == Launcher::alone) return "alone: one worker, started by no launcher";
  std::string text =
      is_worker()
          ? fmt::format("{}worker {} of {} ({} of {} on this host), generation {}, started by {}",
                        is_chief ? "chief, " : "", worker, workers, local_worker, local_workers,
                        generation, title_of(launcher))
          : fmt::format("{} of a job that began with {} workers, started by {}", task.name(),
                        workers, title_of(launcher));
  if (rendezvous) text += fmt::format("; coordinator at {}", rendezvous->describe());
  if (etcd)
    text += fmt::format("; the coordinator's address is published at {}", etcd->describe());
  if (agent_store)
    text += fmt::format("; the coordinator's address is published in the store at {}",
                        agent_store->describe());
  if (hosts_coordinator) text += "; this process runs the coordinator";
  if (elastic && is_cluster(launcher))
    text += fmt::format("; the job continues with {} or more of its workers", elastic->minimum);
  if (!roles.empty()) text += fmt::format("; the job may have {} besides", roles.describe());
  return text + (token ? "; job token given" : "; no job token given");
}

}  // namespace trireme::membership
