#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/cli/running_job.h>
#include <trireme/membership/identity.h>
#include <trireme/membership/lookup.h>
#include <trireme/membership/protocol.h>
#include <trireme/net/control.h>
#include <condition_variable>
#include <mutex>
#include <optional>

namespace trireme::cli {
namespace {

// The launchers of this user's jobs on this host that can be changed.
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
    throw Error(ErrorCode::not_found, "cli",
                "no job of this user that can be changed runs on this host",
                "trireme train ... with --elastic MIN:MAX or --ps N");
  if (asked > 0 && std::find(jobs.begin(), jobs.end(), asked) == jobs.end())
    throw Error(ErrorCode::not_found, "cli",
                fmt::format("process {} is not the launcher of a job that can be changed", asked),
                fmt::format("--job {}", fmt::join(jobs, " or ")));
  if (asked == 0 && jobs.size() > 1)
    throw Error(ErrorCode::invalid_argument, "cli",
                fmt::format("{} jobs that can be changed run on this host", jobs.size()),
                fmt::format("--job {}", fmt::join(jobs, " or ")));
  return asked > 0 ? asked : jobs.front();
}

RunningJob find_on_host(int asked) {
  const auto folder = membership::token_folder(Environment::of_process());
  const pid_t launcher = choose_job(folder, asked);
  const auto contents = membership::TokenFile::wait(folder, membership::elastic_job_id(launcher),
                                                    Deadline::after(kJobTimeout));
  if (!contents)
    throw Error(ErrorCode::not_found, "cli", fmt::format("job {} has just ended", launcher));
  return {std::to_string(launcher), *contents};
}

RunningJob find_in_etcd(const std::string& rendezvous) {
  const net::EtcdUrl where = net::parse_etcd_url(rendezvous);
  const auto token = membership::token_from(Environment::of_process());
  if (!token)
    throw Error(ErrorCode::invalid_argument, "cli",
                fmt::format("no job token: job '{}' accepts no request without it", where.job),
                "TRIREME_JOB_TOKEN or TRIREME_JOB_TOKEN_FILE as the job was started with");
  return {
      where.job,
      {*token, membership::CoordinatorLookup(where).wait(*token, Deadline::after(kJobTimeout))}};
}

}  // namespace

void add_job_choice(Command& command, JobChoice& choice) {
  command.option("--job", choice.launcher,
                 "Process id of the job's launcher, if several such jobs run here");
  command.option(
      "--rendezvous", choice.rendezvous,
      "The place of the job in etcd, on any host: etcd://HOST:PORT[,HOST:PORT...]/JOBNAME");
  command.excludes("--rendezvous", "--job");
}

RunningJob find_job(const JobChoice& choice) {
  return choice.rendezvous.empty() ? find_on_host(choice.launcher)
                                   : find_in_etcd(choice.rendezvous);
}

struct JobCall::Impl {
  explicit Impl(const net::Endpoint& coordinator) : at(coordinator) {}

  void note(std::optional<Json> message) {
    const std::lock_guard lock(mutex);
    closed = closed || !message;
    if (message) answer = std::move(message);
    changed.notify_all();
  }

  const net::Endpoint at;
  std::mutex mutex;  // Guards the next three.
  std::condition_variable changed;
  std::optional<Json> answer;
  bool closed = false;
  std::unique_ptr<net::ControlClient> client;  // Its thread calls note().
};

JobCall::JobCall(const RunningJob& job) : impl_(std::make_unique<Impl>(job.place.coordinator)) {
  Impl* const impl = impl_.get();
  const net::ClientEvents events{
      .received = [impl](Json message) { impl->note(std::move(message)); },
      .closed = [impl](const std::string&) { impl->note(std::nullopt); }};
  impl_->client = std::make_unique<net::ControlClient>(
      job.place.coordinator, job.place.token, events, Deadline::after(kJobTimeout),
      net::ControlOptions{.purpose = net::Purpose::scale});
}

JobCall::~JobCall() = default;

Json JobCall::ask(Json question) {
  std::unique_lock lock(impl_->mutex);
  impl_->answer.reset();
  question["generation"] = membership::kNoGeneration;
  lock.unlock();
  impl_->client->send(std::move(question));
  lock.lock();
  impl_->changed.wait_until(lock, Deadline::after(kJobTimeout).at(),
                            [&] { return impl_->answer || impl_->closed; });
  if (!impl_->answer)
    throw Error(ErrorCode::timeout, "cli",
                fmt::format("the job's coordinator at {} does not answer", impl_->at.describe()),
                "check whether it is stopped, or has just ended");
  return *std::exchange(impl_->answer, std::nullopt);
}

}  // namespace trireme::cli
