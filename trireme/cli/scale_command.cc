// `trireme scale`: changes the number of workers of a running elastic job.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/deadline.h>
#include <trireme/base/error.h>
#include <trireme/cli/commands.h>
#include <trireme/membership/identity.h>
#include <trireme/membership/lookup.h>
#include <trireme/membership/token_file.h>
#include <trireme/net/control.h>
#include <condition_variable>
#include <mutex>

namespace trireme::cli {
namespace {

constexpr Milliseconds kTimeout{5000};

// The launchers of this user's elastic jobs on this host.
std::vector<pid_t> running_jobs(const std::filesystem::path& folder) {
  const std::string prefix =
      membership::elastic_job_id(0).substr(0, membership::elastic_job_id(0).size() - 1);
  std::vector<pid_t> jobs;
  std::error_code ignored;  // A folder that is not there holds no jobs.
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().stem().string();
    if (!name.starts_with(prefix) || entry.path().extension() != ".token") continue;
    const pid_t launcher = std::atoi(name.c_str() + prefix.size());
    if (launcher > 0 && membership::TokenFile::wait(folder, membership::elastic_job_id(launcher),
                                                    Deadline::after(Milliseconds(0))))
      jobs.push_back(launcher);
  }
  return jobs;
}

pid_t choose_job(const std::filesystem::path& folder, int asked) {
  const std::vector<pid_t> jobs = running_jobs(folder);
  if (jobs.empty())
    throw Error(ErrorCode::not_found, "cli", "no elastic job of this user runs on this host",
                "trireme train ... --elastic MIN:MAX");
  if (asked > 0 && std::find(jobs.begin(), jobs.end(), asked) == jobs.end())
    throw Error(ErrorCode::not_found, "cli",
                fmt::format("process {} is not the launcher of an elastic job", asked),
                fmt::format("--job {}", fmt::join(jobs, " or ")));
  if (asked == 0 && jobs.size() > 1)
    throw Error(ErrorCode::invalid_argument, "cli",
                fmt::format("{} elastic jobs run on this host", jobs.size()),
                fmt::format("--job {}", fmt::join(jobs, " or ")));
  return asked > 0 ? asked : jobs.front();
}

// Returns the job's name for messages, which is the number of the launcher's process, and its
// contents.
std::pair<std::string, membership::TokenFile::Contents> find_job(int asked) {
  const auto folder = membership::token_folder(Environment::of_process());
  const pid_t launcher = choose_job(folder, asked);
  const auto contents = membership::TokenFile::wait(folder, membership::elastic_job_id(launcher),
                                                    Deadline::after(kTimeout));
  if (!contents)
    throw Error(ErrorCode::not_found, "cli", fmt::format("job {} has just ended", launcher));
  return {std::to_string(launcher), *contents};
}

std::pair<std::string, membership::TokenFile::Contents> find_job_in_etcd(
    const std::string& rendezvous) {
  const net::EtcdUrl where = net::parse_etcd_url(rendezvous);
  const auto token = membership::token_from(Environment::of_process());
  if (!token)
    throw Error(ErrorCode::invalid_argument, "cli",
                fmt::format("no job token: job '{}' accepts no request without it", where.job),
                "TRIREME_JOB_TOKEN or TRIREME_JOB_TOKEN_FILE as the job was started with");
  return {where.job,
          {*token, membership::CoordinatorLookup(where).wait(*token, Deadline::after(kTimeout))}};
}

Json ask(const membership::TokenFile::Contents& job, const Json& question) {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Json> answer;
  bool closed = false;
  const auto note = [&](std::optional<Json> message) {
    const std::lock_guard lock(mutex);
    closed = closed || !message;
    if (message) answer = std::move(message);
    changed.notify_all();
  };
  const net::ClientEvents events{.received = [&](Json message) { note(std::move(message)); },
                                 .closed = [&](const std::string&) { note(std::nullopt); }};
  const Deadline deadline = Deadline::after(kTimeout);
  net::ControlClient client(job.coordinator, job.token, events, deadline,
                            {.purpose = net::Purpose::scale});
  client.send(question);
  std::unique_lock lock(mutex);
  changed.wait_until(lock, deadline.at(), [&] { return answer || closed; });
  if (!answer)
    throw Error(
        ErrorCode::timeout, "cli",
        fmt::format("the job's coordinator at {} does not answer", job.coordinator.describe()),
        "check whether it is stopped, and whether the job is elastic");
  return *answer;
}

int scale(int workers, int launcher, const std::string& rendezvous) {
  const auto [name, job] = rendezvous.empty() ? find_job(launcher) : find_job_in_etcd(rendezvous);
  const Json answer = ask(job, {{"op", "resize"}, {"generation", -1}, {"target", workers}});
  if (const auto refused = answer.at("refused").get<std::string>(); !refused.empty())
    throw Error(ErrorCode::invalid_argument, "cli", refused, "a number between the two");
  fmt::print("job {}: {} workers now, {} from the next steps on\n", name,
             answer.at("workers").get<int>(), workers);
  return kExitOk;
}

}  // namespace

void add_scale(Command app) {
  struct Arguments {
    int workers = 1, job = 0;
    std::string rendezvous;
  };
  auto arguments = std::make_shared<Arguments>();
  Command command =
      app.subcommand("scale", "Change the number of workers of a running elastic job");
  command.required("workers", arguments->workers, "The new number, between the job's MIN and MAX");
  command.option("--job", arguments->job,
                 "Process id of the job's launcher, if several elastic jobs run here");
  command.option(
      "--rendezvous", arguments->rendezvous,
      "The place of the job in etcd, on any host: etcd://HOST:PORT[,HOST:PORT...]/JOBNAME");
  command.excludes("--rendezvous", "--job");
  command.footer("Example: trireme scale 4");
  command.action(
      [arguments] { return scale(arguments->workers, arguments->job, arguments->rendezvous); });
}

}  // namespace trireme::cli
